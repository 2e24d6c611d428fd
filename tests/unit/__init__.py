"""Pure code and small pieces."""
