"""Programs that hold their agents: one file and one process each, with nothing else to start."""
