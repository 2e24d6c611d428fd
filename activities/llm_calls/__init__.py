"""The activity that calls an LLM, and how its replies and failures are read."""
