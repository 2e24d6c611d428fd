"""The embedded stack: a real Temporal server, PostgreSQL and the guarded Web UI, started and stopped by process id.

A production deployment replaces it; connecting to either is `holdfast.runtime.client`.
"""
