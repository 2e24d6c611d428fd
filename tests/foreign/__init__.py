"""Foreign MCP servers (`make test-mcp`)."""
