"""The MCP server: agents that the operator exposes, as tools of any MCP client, over HTTP and stdio.

It has the gateway's callers, scopes, limits and decisions. `holdfast.mcp` is the other way: tools of foreign servers.
"""
