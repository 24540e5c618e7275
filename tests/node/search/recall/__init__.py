"""What hooks put before an agent."""
