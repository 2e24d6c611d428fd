"""Temporal's view of a run: payload conversion, and a run's events rebuilt from a Temporal history.

It decodes and checks; fetching histories from a server is `holdfast.runtime.reading`.
"""
