"""How large a message to a run may be. A sender of ours checks it before sending, a worker before it reads.

Each field has a limit of its own besides, which the run enforces (`holdfast.authority.statements`).
"""

from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json

from holdfast.authority.statements import ARGUMENT_CHARS

CLAIM_BYTES = 1_500_000
"""Maximum size of any message, as JSON: a message to the agent in content blocks is the largest."""

STATEMENT_BYTES = 2 * ARGUMENT_CHARS
"""Maximum size of a decision, an event, or any other message that is not for the agent, as JSON."""

REASON_CHARS = 2_000
"""Maximum length of the reason for a cancellation, which Temporal keeps."""


def too_large(payload: Mapping[str, Any], *, limit: int = STATEMENT_BYTES) -> str:
    """Return why a message is too large to be sent, in words; empty if it is not.

    Args:
        payload: The message.
        limit: The most bytes of JSON.
    """
    sizes = {name: len(to_json(value, fallback=str)) for name, value in payload.items()}
    if sum(sizes.values()) <= limit:
        return ""
    largest = max(sizes, key=lambda name: sizes[name])
    return (
        f"`{largest}` has {sizes[largest]:,} bytes as JSON, and the whole message may have {limit:,}. Nothing was "
        "sent: shorten it, or put it into a file in the workspace and name the file"
    )
