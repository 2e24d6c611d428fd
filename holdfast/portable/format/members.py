"""The members of a portable file: their names, their order, and the limits that a reader enforces.

`docs/reference/portable-file.md` describes the format. A file has exactly the members that its manifest lists.
"""

import re

FORMAT = "holdfast-portable/1"
"""Names the format and its version. A change that an older reader would misread gets another version."""

LOG = "memory/log.jsonl"
REDACTED_LOG = "memory/redacted.jsonl"
"""Replaces the log if bodies were dropped."""
LEDGER = "memory/ledger.jsonl"
SEALS = "memory/seals.jsonl"
CHILDREN = "memory/children/"
ARTIFACTS = "memory/artifacts/"
CONTEXT = "context/context.json"
AGENTS = "context/agents.jsonl"
POLICIES = "context/policies.jsonl"
KEYS = "context/keys.json"
NODES = "context/nodes.json"
"""The nodes that made the seals; present if there are seals."""
INTENT = "intent/intent.json"
MANIFEST = "manifest.json"
STATEMENT = "statement.dsse.json"

DERIVED = (CONTEXT, AGENTS, POLICIES, KEYS, INTENT)
"""Members derived from the log."""

ORDER = (
    LOG,
    REDACTED_LOG,
    LEDGER,
    SEALS,
    CHILDREN,
    ARTIFACTS,
    CONTEXT,
    AGENTS,
    POLICIES,
    KEYS,
    NODES,
    INTENT,
    MANIFEST,
    STATEMENT,
)
"""The order of members: each sub-agent comes after its parent and before the next one; artifacts are sorted by name."""

MAX_MEMBERS = 60_000
MAX_FILE_BYTES = 4_000_000_000
"""A zip file of this format has no 64-bit fields."""
MAX_SMALL_BYTES = 64_000_000
"""Maximum size of a member that a reader holds in memory: all but log, ledger and artifacts."""
MAX_LINE_BYTES = 64_000_000
"""Maximum size of an event."""

MAX_LEVELS = 20
"""The deepest nesting of sub-agents; `Limits.max_depth` allows no more."""
MAX_NAME_BYTES = 240
"""The longest name of a member."""

MemberOrder = tuple[int, tuple[int, ...], str]
"""Sort key of a member."""

_ARTIFACT = re.compile(rf"{ARTIFACTS}[0-9a-f]{{64}}", re.ASCII)
_KINDS = ("log.jsonl", "redacted.jsonl", "ledger.jsonl")
_NUMBER = r"[1-9]\d{0,8}"
_CHILD = re.compile(
    rf"{CHILDREN}((?:{_NUMBER}\.){{0,{MAX_LEVELS - 1}}}{_NUMBER})/({'|'.join(map(re.escape, _KINDS))})", re.ASCII
)
"""`memory/children/3.1/log.jsonl` is the log of thread `T.3.1` in the file of thread `T`: the numbers are those of the
calls that started it and its parent, so each log has exactly one possible name."""


def rank(name: str) -> MemberOrder | None:
    """Return the sort key of a member; None for a name that is not in the format."""
    if child := _CHILD.fullmatch(name):
        numbers = tuple(int(number) for number in child[1].split("."))
        return ORDER.index(CHILDREN), numbers, str(_KINDS.index(child[2]))
    entry = ARTIFACTS if _ARTIFACT.fullmatch(name) else name
    return (ORDER.index(entry), (), name) if entry in ORDER and name not in (ARTIFACTS, CHILDREN) else None


def child_member(name: str, path: str) -> str:
    """Return the name of a sub-agent's log or ledger.

    Args:
        name: The name of the root thread's member: `LOG`, `REDACTED_LOG` or `LEDGER`.
        path: The numbers of the calls below the root thread, as `3.1`; empty for the root itself.
    """
    return f"{CHILDREN}{path}/{name.removeprefix('memory/')}" if path else name


def is_log(name: str) -> bool:
    """Whether a member is a log, whole or redacted."""
    return name.endswith((f"/{_KINDS[0]}", f"/{_KINDS[1]}"))


def path_of(name: str) -> str:
    """Return the path of a member that belongs to a sub-agent, as `3.1`; empty for any other member."""
    return name.removeprefix(CHILDREN).rpartition("/")[0] if name.startswith(CHILDREN) else ""


def artifact_member(address: str) -> str:
    """Return the name of the member with an artifact's content."""
    return ARTIFACTS + address.removeprefix("sha256:")
