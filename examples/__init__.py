"""Example agents: run them, read them, and use them as a starting point for your own."""
