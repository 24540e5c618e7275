"""The Dream Weaver: writes journals, notes and memories from an agent's conversations."""
