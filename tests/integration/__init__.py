"""Tests with separate processes, real servers and a browser."""
