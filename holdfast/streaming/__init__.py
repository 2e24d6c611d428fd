"""Carries the chunks of replies from workers to readers: the transports, the publisher and the hub of a process.

What chunks are, and in which order they are shown, is in `holdfast.core.streams`. Nothing here can fail or delay a run.
"""
