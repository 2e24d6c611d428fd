"""A cancelled task ends, so that people can leave a screen, and servers and workers can stop."""

import ast

from tests.support.sources import ROOT, files, parsed


def test_no_code_waits_in_a_way_that_may_lose_a_cancellation() -> None:
    """Before Python 3.12, `asyncio.wait_for` ignores a cancellation that arrives as its wait ends."""
    for file in files("holdfast", "activities", "workflows"):
        for node in ast.walk(parsed(file)):
            if isinstance(node, ast.Attribute) and node.attr == "wait_for" and ast.unparse(node) == "asyncio.wait_for":
                raise AssertionError(f"{file.relative_to(ROOT)}:{node.lineno}: use asyncio.timeout")
