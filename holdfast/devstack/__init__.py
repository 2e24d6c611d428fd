"""The embedded stack: starts and stops a real Temporal server, PostgreSQL and the guarded Web UI.

A production deployment replaces it. `holdfast.client` connects to either.
"""
