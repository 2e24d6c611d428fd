"""The event log: the closed union of events, their chain of digests, stored lines, and upcasters of old schemas.

What an event changes is `holdfast.run.evolve`; where lines are kept is a `holdfast.stores.ThreadStore`.
"""
