"""Comparing two profiles of a source: which changes are more than chance."""
