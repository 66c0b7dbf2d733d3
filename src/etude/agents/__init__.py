"""Durable agents: they work in steps, and a queue pauses, steers and recovers them."""
