"""Telemetry: structured logs without secrets.

It formats and redacts; each module decides which events it logs.
"""
