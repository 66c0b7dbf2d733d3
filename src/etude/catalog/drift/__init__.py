"""Compare two profiles of a source and find the changes that are not due to chance."""
