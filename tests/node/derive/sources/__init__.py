"""Sources: folders of a person that are read into the memory."""
