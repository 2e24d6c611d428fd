"""The members of a portable file: their names, their one order, and the limits that a reader keeps to.

`docs/reference/portable-file.md` describes the format. A file has exactly the members that its manifest lists.
"""

import re

FORMAT = "holdfast-portable/1"
"""Names the format and its version. A change that an older reader would misread gets another version."""

LOG = "memory/log.jsonl"
REDACTED_LOG = "memory/redacted.jsonl"
"""Stands in for the log where bodies were dropped."""
LEDGER = "memory/ledger.jsonl"
SEALS = "memory/seals.jsonl"
CHILDREN = "memory/children/"
ARTIFACTS = "memory/artifacts/"
CONTEXT = "context/context.json"
AGENTS = "context/agents.jsonl"
POLICIES = "context/policies.jsonl"
KEYS = "context/keys.json"
NODES = "context/nodes.json"
"""Whose the seals are: there if they are."""
INTENT = "intent/intent.json"
MANIFEST = "manifest.json"
STATEMENT = "statement.dsse.json"

DERIVED = (CONTEXT, AGENTS, POLICIES, KEYS, INTENT)
"""Members that follow from the log."""

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
"""The one order: each sub-agent comes after the one above it and before the next one; artifacts are sorted by name."""

MAX_MEMBERS = 60_000
MAX_FILE_BYTES = 4_000_000_000
"""A zip file of this format has no 64-bit fields."""
MAX_SMALL_BYTES = 64_000_000
"""Maximum size of a member that a reader holds in memory: all but log, ledger and artifacts."""
MAX_LINE_BYTES = 64_000_000
"""Maximum size of an event."""

MAX_LEVELS = 20
"""How many sub-agents stand above one another at most: `Limits.max_depth` allows no more."""
MAX_NAME_BYTES = 240
"""No name of a member is longer."""

Place = tuple[int, tuple[int, ...], str]
"""Where a member belongs; sorts."""

_ARTIFACT = re.compile(rf"{ARTIFACTS}[0-9a-f]{{64}}", re.ASCII)
_KINDS = ("log.jsonl", "redacted.jsonl", "ledger.jsonl")
_NUMBER = r"[1-9]\d{0,8}"
_CHILD = re.compile(
    rf"{CHILDREN}((?:{_NUMBER}\.){{0,{MAX_LEVELS - 1}}}{_NUMBER})/({'|'.join(map(re.escape, _KINDS))})", re.ASCII
)
"""`memory/children/3.1/log.jsonl` is the log of thread `T.3.1` in the file of thread `T`: the numbers are those of the
calls that started it and the one above it, so the name says whose log it is, and no other name does."""


def rank(name: str) -> Place | None:
    """Return where a member belongs in the order; None for a name that no member has."""
    if child := _CHILD.fullmatch(name):
        numbers = tuple(int(number) for number in child[1].split("."))
        return ORDER.index(CHILDREN), numbers, str(_KINDS.index(child[2]))
    place = ARTIFACTS if _ARTIFACT.fullmatch(name) else name
    return (ORDER.index(place), (), name) if place in ORDER and name not in (ARTIFACTS, CHILDREN) else None


def child_member(name: str, path: str) -> str:
    """Return the name of a sub-agent's log or ledger.

    Args:
        name: The member that has this of the thread at the top: `LOG`, `REDACTED_LOG` or `LEDGER`.
        path: The numbers of the calls below the thread at the top, as `3.1`; empty for that thread itself.
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
