"""Sandboxed Python interpreters that keep their state."""
