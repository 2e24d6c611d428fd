"""Verification and replay of recorded threads: evidence is gathered here and judged by `holdfast.audit`.

Reports for people are `holdfast.runtime.cli`.
"""
