"""What the commands share: options, prompts, output, and what a terminal can show."""
