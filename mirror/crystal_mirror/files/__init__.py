"""The memory home's files: names that may travel, decisions over three states, and a round of sync over two ports."""
