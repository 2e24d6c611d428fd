"""The reference is complete: it agrees with the code, and leaves nothing out."""

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import get_args

import pytest

import holdfast
import holdfast.testing
import holdfast.workflow
from holdfast.config.settings import Settings
from holdfast.core.authority.approvals import DecisionOutcome
from holdfast.core.authority.conditions import VARIABLES
from holdfast.core.authority.interventions import InterventionOutcome
from holdfast.core.authority.policy import Approver, Gateway, Policy, Rule, Terms
from holdfast.core.log.events import AgentEvent
from holdfast.core.run.contracts import error_types
from holdfast.errors import HoldfastError
from holdfast.gateway.http.problems import TITLES
from holdfast.gateway.routes.interventions import STATUS
from tests.docs import reference
from tests.docs.pages import DOCS, ROOT, headings
from tests.docs.settings_page import descriptions

ERRORS = DOCS / "reference/errors"
TYPE = re.compile(r"[A-Z][a-z]+(?:[A-Z]{2,}|[A-Z][a-z]+)*[A-Za-z]*")
"""A name such as `StartRefused` or `NotAReply`."""


@pytest.mark.parametrize("page", reference.PAGES)
def test_pages_are_what_the_code_says(page: str) -> None:
    """`python -m tests.docs.reference` would change nothing."""
    assert reference.PAGES[page]() == (DOCS / page).read_text(encoding="utf-8")


def test_every_setting_is_described() -> None:
    """A setting without a text below it would be in no table."""
    assert descriptions().keys() == Settings.model_fields.keys()


def code_spans(page: Path) -> set[str]:
    """Return the code spans of a page."""
    return set(re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8")))


def errors(base: type[HoldfastError]) -> Iterator[str]:
    """Yield the names of all errors below one."""
    for kind in base.__subclasses__():
        yield kind.__name__
        yield from errors(kind)


def test_every_error_has_an_entry() -> None:
    """Each error that Holdfast raises has a section, and each section is an error or a cause."""
    for module in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
        if not re.search(r"__main__|\.testing|\.examples", module.name):
            importlib.import_module(module.name)
    entries = set().union(*map(headings, ERRORS.glob("*.md")))
    assert not {name for name in errors(HoldfastError) if name not in entries}


def causes(*files: str, functions: tuple[str, ...]) -> set[str]:
    """Return the short names that these files pass to these functions, as literals."""
    names = set()
    for file in files:
        text = (ROOT / file).read_text(encoding="utf-8")
        if not any(f"{function}(" in text for function in functions):
            continue  # to parse every file takes seconds
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in functions:
                arguments = [*node.args[:1], *(word.value for word in node.keywords if word.arg in ("type", "cause"))]
                names |= {str(each.value) for each in arguments if isinstance(each, ast.Constant)}
    return {each for each in names if TYPE.fullmatch(each)}


def test_every_cause_has_an_entry() -> None:
    """Each cause of a blocked or failed run or loop, and each failure of an attempt, has a section."""
    named = {value for value in vars(error_types).values() if isinstance(value, str) and TYPE.fullmatch(value)}
    runs = headings(ERRORS / "blocked-runs.md") | headings(ERRORS / "failed-runs.md")
    attempts = headings(ERRORS / "failed-attempts.md")
    assert named <= runs | attempts
    assert causes("holdfast/core/run/decide/decide.py", functions=("Block",)) | {"ContentFiltered"} <= runs
    loops = headings(ERRORS / "blocked-loops.md")
    assert causes("holdfast/core/loop/decide.py", functions=("Block",)) == loops - {"Workspace", error_types.NOT_SEALED}
    files = [path for folder in ("activities", "holdfast") for path in (ROOT / folder).rglob("*.py")]
    raised = causes(*(str(path.relative_to(ROOT)) for path in files), functions=("ApplicationError",))
    assert raised <= attempts


def test_every_outcome_is_explained() -> None:
    """Each outcome of a decision or another intervention is listed, with the gateway's status."""
    page = (ERRORS / "decisions.md").read_text(encoding="utf-8")
    listed = {row[1]: row[-1] for row in re.findall(r"^\| (`)(\w+)` \|.*?(?:\| (\d+) )?\|$", page, re.MULTILINE) if row}
    outcomes = {*get_args(DecisionOutcome), *get_args(InterventionOutcome), *STATUS}
    assert outcomes <= listed.keys()
    assert {outcome: str(status) for outcome, status in STATUS.items()}.items() <= listed.items()


def test_every_problem_of_the_gateway_is_explained() -> None:
    """Each status that the gateway answers with has a row."""
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \|", (ERRORS / "gateway.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert dict(rows) == {str(int(HTTPStatus(status))): title for status, title in TITLES.items()}


def test_every_field_of_a_policy_is_described() -> None:
    """The page about policy files has each field and each variable of a condition."""
    fields = {name for model in (Policy, Rule, Terms, Approver, Gateway) for name in model.model_fields}
    shown = {word for each in code_spans(DOCS / "reference/policy-file.md") for word in re.findall(r"\w+", each)}
    assert not (fields | set(VARIABLES)) - shown


def test_every_public_name_is_documented() -> None:
    """The API page has each name of `holdfast`, `holdfast.workflow` and `holdfast.testing`, and no other; the types of
    events have a page of their own, and each of them is a name of `holdfast`.
    """
    page = (DOCS / "reference/python-api.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\.\. auto\w+:: (\w+)(?:\(\))?$", page, re.MULTILINE)
    public = getattr(holdfast, "__all__")  # noqa: B009  # the stub does not list it
    events = [each.__name__ for each in get_args(get_args(AgentEvent)[0])]
    assert sorted([*shown, *events]) == sorted([*public, *holdfast.workflow.__all__, *holdfast.testing.__all__])
