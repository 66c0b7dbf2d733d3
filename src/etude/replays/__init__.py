"""Replay: a run that worked becomes a script with guards, which answers the same question again without a model."""
