"""Memories on a device: listed, changed, and near to each other."""
