"""The MCP surface: the tools and resources of etude for the agents of others. `server.create_mcp_server` makes it."""
