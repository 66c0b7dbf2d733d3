"""The catalog: what a source holds, told by its own data."""
