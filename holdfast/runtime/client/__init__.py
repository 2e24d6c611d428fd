"""The client: connect to Temporal; start, message, decide, follow, list and prune threads and loops.

The command line and the gateway are built on it; reading is `holdfast.runtime.reading`.
"""
