"""The background service: schedule, commands, health, system services, hooks and notices."""
