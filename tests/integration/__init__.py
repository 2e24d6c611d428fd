"""Processes, servers, a browser."""
