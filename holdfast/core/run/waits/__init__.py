"""Waits of a run: dormancy and its wake triggers, polling, and sub-agents."""
