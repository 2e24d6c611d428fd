"""The command line: verbs, screens for people, JSON for programs, the live view, and `doctor`.

What verbs do to threads is `holdfast.client`.
"""
