"""The tools that a model may call. The name of a tool is the name of its file."""
