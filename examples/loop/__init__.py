"""An agent that implements a list of features, one task in one new run at a time, until all of them pass."""
