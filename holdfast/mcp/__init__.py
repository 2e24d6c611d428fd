"""Tools of MCP servers: pins of their definitions, connections, and calls. Whether a call runs, the run decides, as for
any tool; nothing here is imported by workflows.
"""
