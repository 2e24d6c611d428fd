"""A thread as one file that verifies offline: its format, the members derived from its log, and other formats of a run.

It is pure: `holdfast.portable` writes, reads and verifies such files.
"""
