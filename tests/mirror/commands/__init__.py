"""Tests: the commands of one device to another, flow by flow."""
