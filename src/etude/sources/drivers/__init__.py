"""The database drivers, one file each. They run in engine processes."""
