"""Tests of the service managers."""
