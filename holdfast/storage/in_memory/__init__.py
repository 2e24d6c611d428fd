"""Stores that keep everything in this process's memory: threads, artifacts, semantic memory and the effect ledger.

They pass the conformance suites of `holdfast.testing`, serve one worker process, and lose all content when it ends.
"""
