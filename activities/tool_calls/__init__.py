"""The activity that calls a tool: its guard, attempts, outcomes and lost effects.

`tool_functions` enforces the tool's timeout.
"""
