"""What the commands share: options, prompts, output, errors, and what a terminal can show."""
