"""What a device knows of the others, and tells the relay of them."""
