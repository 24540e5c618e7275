"""What search finds, measured on sets with known answers: `make bench-quality`. See README.md beside this folder."""
