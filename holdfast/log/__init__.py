"""The event log: the closed union of events, their chain of digests, stored lines, and upcasters of old schemas.

`holdfast.run.evolve` applies events to the state; a `holdfast.stores.ThreadStore` keeps the lines.
"""
