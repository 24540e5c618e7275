"""The relay as a store over HTTP: the port, big blobs directly, and the calls that are not the port's."""
