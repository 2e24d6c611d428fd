"""The search attributes that the Web UI and `list` use to find runs."""

SEARCH_ATTRIBUTES = {
    "HoldfastAgent": "Keyword",
    "HoldfastStatus": "Keyword",
    "HoldfastPending": "Int",
    "HoldfastStep": "Int",
    "HoldfastWakeAt": "Datetime",
    "HoldfastWaitsFor": "KeywordList",
    "HoldfastRoot": "Keyword",
}
"""Search attributes by name, with Temporal's name for their type. `HoldfastPending` counts open requests;
`HoldfastStep` is the step at the last change of status. `HoldfastWakeAt` is the time at which a dormant run wakes by
itself, and `HoldfastWaitsFor` has the names of the events that a run waits for; only agents with dormancy set these
two, and only while they apply. `HoldfastRoot` is the thread at the top of a sub-agent's tree, unset for all other runs.
"""
