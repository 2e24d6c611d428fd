"""The gateway reads a body exactly as a proxy in front of it did."""

import pytest

from holdfast.gateway.bodies import DecisionBody, read_body
from holdfast.gateway.http.problems import HTTPProblem

DIGEST = b'"request": "1", "digest": "' + b"0" * 64 + b'"'


@pytest.mark.parametrize(
    "body",
    [
        b'{"decision": "deny", "decision": "approve", ' + DIGEST + b"}",
        b'{"decision": "approve", "d\\u0065cision": "deny", ' + DIGEST + b"}",
        b'{"decision": "approve", ' + DIGEST + b', "arguments": {"cents": 1, "cents": 100000}}',
    ],
)
def test_a_duplicate_key_in_an_object_is_rejected(body: bytes) -> None:
    """Parsers disagree on which duplicate counts, so a filter may have approved the other value."""
    with pytest.raises(HTTPProblem, match="two values of one name"):
        read_body(body, DecisionBody)
    assert read_body(b'{"decision": "approve", ' + DIGEST + b"}", DecisionBody).decision == "approve"
