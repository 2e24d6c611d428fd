"""Tools: the `@tool` decorator, specifications, arguments, secrets, and the effects of calls.

`holdfast.core.authority` decides whether a call may run; `activities.tool_calls.call_tool` runs it.
"""
