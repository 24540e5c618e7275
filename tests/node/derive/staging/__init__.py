"""Agents that are new to the Core, step by step."""
