"""Checks of an installation and of a project: `doctor`, hardening and the LLM's endpoint."""
