"""The agent: its timetable, its process, its pulse and log, the services that start it."""
