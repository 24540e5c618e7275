"""A planned change of the Core: the device that asks for the lead, and the Core that hands it over."""
