"""The drivers of databases, one file each. They run in engine processes."""
