"""Replay of recorded histories."""
