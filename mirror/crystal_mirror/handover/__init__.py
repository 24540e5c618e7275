"""Moving the Core on purpose: asking, draining, handing over; reigns, and what a claim by force would lose."""
