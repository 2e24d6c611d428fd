"""Recorded histories, replayed."""
