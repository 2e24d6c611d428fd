"""Derives members from a log: the intent of its runs, and the context in which they ran.

It reads the stored JSON of events rather than models, so that a later release derives the same bytes.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.core.base.canonical import canonical, digest
from holdfast.core.run.state.features import KEEPS_TRACE
from holdfast.portable.format.members import AGENTS, CONTEXT, INTENT, KEYS, POLICIES
from holdfast.portable.format.origins import trace_id

JSON = Mapping[str, Any]

_TYPES = (
    "run_started",
    "user_message_received",
    "task_refined",
    "run_reclassified",
    "constraint_lifted",
    "agent_loaded",
    "tool_call_started",
    "run_reset",
    "run_forked",
    "run_imported",
    "subagent_started",
    "subagent_ended",
)

_SCOPE = ("run_id", "first_run_id", "agent", "depth", "trust", "user_proven", "sealed", "schedule", "lineage")
"""Fields of `run_started` with the identity and the trust level of the run."""

_BEGINNINGS = ("run_started", "run_forked", "run_imported")
"""Types of events with the first run id of the chain of Temporal runs that recorded them and the events after them."""

FIRST_PROPAGATED, MAX_PROPAGATED = 900_000_000, 50
"""The numbers of constraints that parents and sub-agents pass to one another (`Constraints.take_over`)."""


class DerivedMembers:
    """Collects from the events of a log, in their order. Its size grows with its output, not with the log."""

    def __init__(self) -> None:
        self.keys: set[str] = set()
        """Keys of the effects that the log starts, or that a reset names."""
        self._thread = ""
        self._runs: list[dict[str, Any]] = []
        self._tasks: list[dict[str, Any]] = []
        self._refinements: list[dict[str, Any]] = []
        self._constraints: dict[int, dict[str, Any]] = {}
        self._agents: dict[str, JSON] = {}
        self._policies: dict[str, JSON] = {}
        self._forks: list[dict[str, Any]] = []
        self._imports: list[dict[str, Any]] = []
        self._subagents: list[dict[str, Any]] = []
        self._segments: list[dict[str, Any]] = []

    def take(self, kind: str, line: bytes) -> None:
        """Take the next event: its type, and its line in the log."""
        if kind in _TYPES or (kind == "tool_call_finished" and b'"status":"cannot"' in line):
            self._take(json.loads(line))

    def _take(self, event: JSON) -> None:
        if event["type"] in _BEGINNINGS:
            moved = event["type"] == "run_imported" and event.get("features", 0) >= KEEPS_TRACE
            self._begin(event["position"], event["first_run_id"], moved=moved)
        match event["type"]:
            case "run_started":
                self._thread = event["thread"]
                above = [self._policy(policy) for policy in event.get("policies", ())]
                self._runs.append(_picked(event, "position", "at", *_SCOPE) | ({"policies": above} if above else {}))
                self._take_over(event, 0)
            case "run_forked":
                self._thread = event["thread"]
                own = ("thread", "first_run_id", "point", "origin", "by", "llm")
                above = [self._policy(policy) for policy in event.get("policies", ())]
                forked = _picked(event, "position", "at", *own) | ({"policies": above} if above else {})
                self._forks.append(forked)
            case "run_imported":
                self._imports.append(_picked(event, "position", "at", "run_id", "first_run_id", "point", "by"))
            case "subagent_started":
                self._subagents.append(_picked(event, "position", "at", "number", "thread", "agent", "run_id"))
            case "subagent_ended":
                self._take_over(event, event["number"])
            case "user_message_received" if event.get("task"):
                self._tasks.append(_picked(event, "position", "at", "by", "content", "key", "signature"))
            case "task_refined":
                picked = ("position", "at", "refinement", "kind", "by", "text", "call", "key", "signature")
                self._refinements.append(_picked(event, *picked))
            case "run_reclassified":
                picked = ("position", "at", "agent", "trust", "budget", "by", "reason", "key", "signature")
                self._refinements.append({**_picked(event, *picked), "kind": "reclassify"})
            case "tool_call_finished" if event["status"] == "cannot" and event.get("scope"):
                own = ("position", "at", "number", "scope", "until", "content")
                self._constraints[event["number"]] = _picked(event, *own)
            case "constraint_lifted" if event["constraint"] in self._constraints:
                self._constraints[event["constraint"]]["lifted"] = event["position"]
            case "agent_loaded":
                self._agents[event["spec_hash"]] = event["spec"]
                self._policy(event["spec"].get("policy", {}))
            case "policy_changed":
                self._policy(event["policy"])
            case "tool_call_started":
                self.keys.add(event["key"])
            case "run_reset":
                self.keys.update(effect["key"] for effect in event.get("effects", ()))
            case _:
                pass

    def _begin(self, position: int, run: str, *, moved: bool) -> None:
        last = self._segments[-1] if self._segments else None
        if last is None or last["first_run_id"] != run:
            trace = last["trace_id"] if last and moved else trace_id(run)
            self._segments.append({"position": position, "first_run_id": run, "trace_id": trace})

    def _policy(self, policy: JSON) -> str:
        """Add a policy; return its digest."""
        name = digest(["policy/1", {field: value for field, value in policy.items() if field != "signers"}])
        self._policies[name] = policy
        return name

    def _take_over(self, event: JSON, number: int) -> None:
        """Add the constraints that a parent passed with a start, or a sub-agent returned at its end."""
        for index, each in enumerate(event.get("constraints", ())):
            own = FIRST_PROPAGATED + number * MAX_PROPAGATED + index
            self._constraints[own] = {**_picked(event, "position", "at"), "number": own, "handed": each}

    def members(self, *, redacted: bool = False) -> Iterator[tuple[str, bytes]]:
        """Yield the derived members with their content, in their order."""
        context = {
            "thread": self._thread,
            "runs": self._runs,
            "segments": self._segments,
            "agents": sorted(self._agents),
            "policies": sorted(self._policies),
            **({"forks": self._forks} if self._forks else {}),
            **({"imports": self._imports} if self._imports else {}),
            **({"subagents": self._subagents} if self._subagents else {}),
        }
        yield CONTEXT, canonical(context)
        if redacted:
            return
        yield AGENTS, _lines({"hash": key, "agent": agent} for key, agent in sorted(self._agents.items()))
        yield POLICIES, _lines({"hash": key, "policy": policy} for key, policy in sorted(self._policies.items()))
        yield KEYS, canonical({"approvers": self._people("approvers"), "gateways": self._people("gateways")})
        constraints = [self._constraints[number] for number in sorted(self._constraints)]
        yield INTENT, canonical({"tasks": self._tasks, "refinements": self._refinements, "constraints": constraints})

    def _people(self, kind: str) -> list[JSON]:
        """Return the people or gateways of all policies, each once."""
        people = {canonical(each): each for policy in self._policies.values() for each in policy.get(kind, ())}
        return [people[key] for key in sorted(people)]


def _picked(event: JSON, *names: str) -> dict[str, Any]:
    return {name: event[name] for name in names if name in event}


def _lines(rows: Iterator[JSON]) -> bytes:
    return b"".join(canonical(row) + b"\n" for row in rows)
