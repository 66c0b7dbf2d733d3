"""Keys, references and dependencies: declared in the source, or inferred from names and data."""
