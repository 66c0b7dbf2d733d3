"""How work is run and recorded."""
