"""What is made from recorded messages: derived files, staging, the Dream Weaver, and sources."""
