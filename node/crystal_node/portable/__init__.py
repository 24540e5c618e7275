"""Taking a memory out as plain files, and bringing one in: an export of ours, or what the published prototype left."""
