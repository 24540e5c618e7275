"""The memory home's files: decisions over three states, transfers, and a round over the ports to disk and database."""
