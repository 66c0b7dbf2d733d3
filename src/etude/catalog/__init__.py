"""The catalog: a profile of every table of a source, computed from its data."""
