"""MCP servers for tests, written with the official SDK or, for what that does not do, by hand. Each is a program."""
