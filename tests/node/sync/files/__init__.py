"""The home's files: on one disk, between devices, and when somebody dies in the middle."""
