"""Finding on a device: the agent that answers, and deep searches."""
