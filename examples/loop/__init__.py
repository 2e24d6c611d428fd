"""An agent that works off a list of features, one task and one fresh run at a time, until all of them pass."""
