"""Support for the published prototype. README.md beside this file says how to drop it."""
