"""The Core's catalog, ``works.db``: conversations, the files made of them, and the staging state of each agent."""
