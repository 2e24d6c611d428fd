"""One suite, every store."""
