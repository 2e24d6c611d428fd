"""The members of a portable file: their names, their one order, and the limits that a reader keeps to.

`docs/reference/portable-file.md` describes the format. A file has exactly the members that its manifest lists. What is
still to come has its place: `memory/children/` for sub-agents' logs, `memory/seals.jsonl`, `context/nodes.json`.
"""

import re

FORMAT = "holdfast-portable/1"
"""Names the format and its version. A change that an older reader would misread gets another version."""

LOG = "memory/log.jsonl"
REDACTED_LOG = "memory/redacted.jsonl"
"""Stands in for the log where bodies were dropped."""
LEDGER = "memory/ledger.jsonl"
ARTIFACTS = "memory/artifacts/"
CONTEXT = "context/context.json"
AGENTS = "context/agents.jsonl"
POLICIES = "context/policies.jsonl"
KEYS = "context/keys.json"
INTENT = "intent/intent.json"
MANIFEST = "manifest.json"
STATEMENT = "statement.dsse.json"

DERIVED = (CONTEXT, AGENTS, POLICIES, KEYS, INTENT)
"""Members that follow from the log."""

ORDER = (LOG, REDACTED_LOG, LEDGER, ARTIFACTS, *DERIVED, MANIFEST, STATEMENT)
"""The one order; artifacts are sorted by name."""

MAX_MEMBERS = 60_000
MAX_FILE_BYTES = 4_000_000_000
"""A zip file of this format has no 64-bit fields."""
MAX_SMALL_BYTES = 64_000_000
"""Maximum size of a member that a reader holds in memory: all but log, ledger and artifacts."""
MAX_LINE_BYTES = 64_000_000
"""Maximum size of an event."""

_ARTIFACT = re.compile(rf"{ARTIFACTS}[0-9a-f]{{64}}", re.ASCII)


def rank(name: str) -> tuple[int, str] | None:
    """Return where a member belongs in the order; None for a name that no member has."""
    place = ARTIFACTS if _ARTIFACT.fullmatch(name) else name
    return (ORDER.index(place), name) if place in ORDER and name != ARTIFACTS else None


def artifact_member(address: str) -> str:
    """Return the name of the member with an artifact's content."""
    return ARTIFACTS + address.removeprefix("sha256:")
