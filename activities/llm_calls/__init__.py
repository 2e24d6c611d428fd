"""The activity that calls an LLM, and the readers of its replies and failures."""
