"""The search attributes that the Web UI and `list` use to find runs."""

SEARCH_ATTRIBUTES = {
    "HoldfastAgent": "Keyword",
    "HoldfastStatus": "Keyword",
    "HoldfastPending": "Int",
    "HoldfastStep": "Int",
}
"""Search attributes by name, with Temporal's name of their type. `HoldfastPending` counts open requests;
`HoldfastStep` is the step at the last change of status."""
