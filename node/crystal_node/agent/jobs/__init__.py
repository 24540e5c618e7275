"""Background jobs of a home: their records in ``jobs.db``, when each runs, and which process runs them."""
