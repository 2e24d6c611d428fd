"""The search attributes by which the Web UI and `list` find runs."""

SEARCH_ATTRIBUTES = {
    "HoldfastAgent": "Keyword",
    "HoldfastStatus": "Keyword",
    "HoldfastPending": "Int",
    "HoldfastStep": "Int",
}
"""Search attributes by name, with Temporal's name of their type. `Pending` counts open requests;
`Step` is as of the last change of status."""
