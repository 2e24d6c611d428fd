"""Temporal's view of a run: payload conversion, and rebuilding a run's events from a Temporal history.

This package decodes and verifies; `holdfast.client.reading` fetches histories from a server.
"""
