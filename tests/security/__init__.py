"""Attacks that once got through, each made against the real thing."""
