"""Copies of AI tools' raw sessions: each device keeps what its tools wrote, and the home's files carry it to the others."""
