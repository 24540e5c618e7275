"""The mirror's history: verdicts on slots, comparing what is kept with what the relay shows, control entries."""
