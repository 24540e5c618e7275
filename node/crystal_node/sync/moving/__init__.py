"""Moving the Core from one machine to another: on purpose, by force, to a machine of choice, or to none."""
