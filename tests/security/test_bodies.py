"""What a proxy judged in a body is what the gateway reads."""

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
def test_an_object_has_one_value_of_a_name(body: bytes) -> None:
    """Of two values, parsers differ in which one counts: a filter may have let the other one pass."""
    with pytest.raises(HTTPProblem, match="two values of one name"):
        read_body(body, DecisionBody)
    assert read_body(b'{"decision": "approve", ' + DIGEST + b"}", DecisionBody).decision == "approve"
