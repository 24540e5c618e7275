"""The device log: records, the verdict on its slots, the keys that follow from it, reading and extending it on the relay."""
