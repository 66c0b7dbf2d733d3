"""Models answer a conversation with text or with tool calls."""
