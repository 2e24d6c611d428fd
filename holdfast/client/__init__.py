"""The client: connect to Temporal; start, message, re-open, decide, follow, list and prune threads and loops.

The command line and the gateway are built on it; `holdfast.client.reading` reads threads.
"""
