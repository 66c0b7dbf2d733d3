"""Models: what answers a conversation, with text or with tools to call."""
