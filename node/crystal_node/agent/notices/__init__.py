"""Desktop notices of what needs a person: ``desktop`` shows them, ``job`` decides what and when."""
