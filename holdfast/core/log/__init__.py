"""The event log: the closed union of events, their chain of digests, stored lines, and upcasters of old schemas.

`holdfast.core.run.fold.evolve` applies events to the state; a `holdfast.core.stores.ThreadStore` keeps the lines.
"""
