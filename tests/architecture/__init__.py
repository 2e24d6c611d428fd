"""Tests of the code's architecture."""
