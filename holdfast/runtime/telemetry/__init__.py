"""Telemetry: structured logs without secrets.

What is worth logging is decided where it happens.
"""
