"""Public sets, measured where they lie: nothing of them is part of this project. See bench/README.md."""
