"""Workflows on a real server."""
