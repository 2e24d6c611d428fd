"""Waits of a run: dormancy with its wake triggers, polling, and sub-agents: their starts and results."""
