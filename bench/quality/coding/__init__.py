"""Conversations with coding agents, made by rule from a seed, and questions whose answers are known."""
