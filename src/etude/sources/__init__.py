"""Databases and files of data: the only way to data."""
