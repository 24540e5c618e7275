"""Tests of the support for the published prototype."""
