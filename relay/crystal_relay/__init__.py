"""Crystal's dead drop: the store port, its implementations and the HTTP server."""
