"""The pages for people who write clients of their own name each signal, update, query and field that the code has."""

import re

from temporalio.workflow import _Definition

from holdfast.core.run.inputs.interventions import INTERVENTIONS, SIGNALS, UPDATES
from holdfast.workflows.agent_run import AgentRunWorkflow
from tests.docs.pages import DOCS

CODE = re.compile(r"`([^`]+)`")
ROW = re.compile(r"^\| (.+?) \| (.+?) \| (.+) \|$", re.MULTILINE)
LEVELS = re.compile(r"^\| `(\w+)` \| .+ \| (\d|–) \| (\d|–) \|$", re.MULTILINE)
BETWEEN_RUNS = {"subagent_ended", "session", "transcript"}
"""What runs and workers send each other."""


def test_every_signal_update_and_query_is_named() -> None:
    """Programs in other languages know them, and the feature levels that have them, from this page alone."""
    page = (DOCS / "reference/temporal-clients.md").read_text(encoding="utf-8")
    rows = {name: levels for name, *levels in LEVELS.findall(page)}
    named = {name: [str(levels.get(name, "–")) for levels in (SIGNALS, UPDATES)] for name in INTERVENTIONS}
    assert rows == {name: levels for name, levels in named.items() if name not in BETWEEN_RUNS}
    queries = {name for name in _Definition.must_from_class(AgentRunWorkflow).queries if name}
    (row,) = re.findall(r"^\| queries \| (.+) \|$", page, re.MULTILINE)
    assert queries - set(CODE.findall(row)) <= BETWEEN_RUNS


def test_every_statement_that_can_be_signed_has_its_fields() -> None:
    """A program that signs elsewhere finds every field there; one that has a default stands in brackets."""
    page = (DOCS / "reference/log-format.md").read_text(encoding="utf-8")
    documented = {name: fields for names, _, fields in ROW.findall(page) for name in CODE.findall(names)}
    for statement in {row.statement for row in INTERVENTIONS.values() if row.statement}:
        fields = {
            name if field.is_required() else f"[{name}]"
            for name, field in statement.model_fields.items()
            if name not in ("signature", "via")
        }
        assert set(CODE.findall(documented[statement.FORMAT])) == fields, statement.FORMAT
