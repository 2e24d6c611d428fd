"""The conformance suites, run on every store."""
