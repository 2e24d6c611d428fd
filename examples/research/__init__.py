"""Agents that research a question: one splits it over sub-agents, waits, sleeps, and asks before it publishes."""
