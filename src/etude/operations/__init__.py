"""What an operator does: see how things are, delete what is old, back up and restore."""
