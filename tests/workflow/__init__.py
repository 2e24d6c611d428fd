"""The workflow on a real server."""
