"""A vault comes back with its recovery kit."""
