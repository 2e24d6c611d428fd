"""Verify and replay recorded threads: gather the evidence here, and audit it with `holdfast.audit.judge`.

`holdfast.cli` reports the results to people.
"""
