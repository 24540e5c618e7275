"""Moving the Core to another device: planned, by force, to a device of choice, or to none."""
