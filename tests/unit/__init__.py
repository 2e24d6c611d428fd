"""Unit tests: pure code and small pieces."""
