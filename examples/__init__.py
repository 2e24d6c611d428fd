"""Agents to run, to read and to start one's own from."""
