"""Files of data, in any condition, as tables."""
