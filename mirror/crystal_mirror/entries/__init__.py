"""What entries of the streams and of the mirror hold, and what control entries leave behind in the replica."""
