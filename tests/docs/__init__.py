"""Tests of the documentation: links, snippets, and agreement with the code."""
