"""Everything that Crystal has for the published prototype's sake. README.md beside this file says how to drop it."""
