"""The command line: verbs, screens for people, JSON for programs, the live view, and `doctor`.

Verbs act on threads through `holdfast.client`.
"""
