"""Tools: the `@tool` decorator, their specification, their arguments and secrets, and what effect they have.

Whether a call may run is `holdfast.authority`; running it is `activities.call_tool`.
"""
