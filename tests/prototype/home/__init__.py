"""Tests of taking over the prototype's home and databases."""
