"""Durable agents: who works in steps, and is steered, paused and brought back by a queue."""
