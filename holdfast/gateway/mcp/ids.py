"""The ids of tasks, which are the ids of their threads: unguessable, and bound to the caller by their own digits.

An id has 128 bits from the caller's key, or random ones, and a digest of these and the caller's name. So any number of
servers can tell, without a store, whether an id is the caller's own. A caller who makes up an id for itself finds no
task; one who learns another caller's id cannot use it.
"""

import hmac
import re
import secrets
from collections.abc import Mapping
from typing import Any

from holdfast.core.base.canonical import digest
from holdfast.gateway.callers import Caller
from holdfast.gateway.http.problems import HTTPProblem

KEY = "holdfast/effect-key"
"""The member of `_meta` with the key of a call, under which Holdfast's own MCP client sends the call's effect key."""

_KEY = re.compile(r"[!-~]{16,255}")

TASK_ID = re.compile(r".*task-([0-9a-f]{32})([0-9a-f]{32})", re.DOTALL)


def key_of(meta: Mapping[str, Any] | None) -> str:
    """Return the key of a call; empty for a call without a key.

    Raises:
        HTTPProblem: 422: it is no key, or so short that it could be guessed.
    """
    key = (meta or {}).get(KEY)
    if key is None:
        return ""
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise HTTPProblem(422, f"_meta: {KEY} has 16 to 255 visible ASCII characters, such as a UUID")
    return key


def task_id(caller: Caller, key: str) -> str:
    """Return the id of the task that a caller starts.

    Args:
        caller: The caller.
        key: The key of the call: the same key is the same task. Empty for a new task.
    """
    number = digest(["mcp-task-key/1", caller.name, key])[:32] if key else secrets.token_hex(16)
    return f"{next(iter(caller.threads), '')}task-{number}{_binding(caller, number)}"


def is_own(caller: Caller, task: str) -> bool:
    """Whether a task id is one that this caller can have got."""
    match = TASK_ID.fullmatch(task) if len(task) <= 200 else None
    if match is None or not caller.reaches(task):
        return False
    return hmac.compare_digest(match[2], _binding(caller, match[1]))


def _binding(caller: Caller, number: str) -> str:
    return digest(["mcp-task/1", caller.name, number])[:32]
