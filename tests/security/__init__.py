"""Attacks, each made against the real thing: what gets through here is a hole."""
