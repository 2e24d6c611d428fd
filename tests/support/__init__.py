"""Shared test support: rigs, servers, stand-in services, agents that programs load, and made-up runs."""
