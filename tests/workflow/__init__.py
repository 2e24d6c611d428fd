"""Tests of workflows on a real server."""
