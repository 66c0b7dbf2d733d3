"""Keys, references and dependencies: declared ones, and those that names and data suggest."""
