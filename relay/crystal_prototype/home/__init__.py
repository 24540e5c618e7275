"""The prototype's home and databases, and how they become Crystal's."""
