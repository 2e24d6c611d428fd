"""Figures in prose match the measurements, and no text names a distribution of other owners."""

import ast
import re
import tomllib
from collections.abc import Iterator
from datetime import timedelta
from importlib import import_module
from pathlib import Path

import pytest

from holdfast.core.agents.agent import Limits
from holdfast.core.run.rules.backoff import Pace
from holdfast.devstack.temporal_server import DYNAMIC_CONFIG
from tests.docs.pages import DOCS, PAGES, ROOT

RESULTS = (ROOT / "bench/RESULTS.md").read_text(encoding="utf-8")
MEASURED = re.compile(
    r"\b(\d[\d,]*) (SIGKILLs|(?:external )?effects|trees|freezes|moves|steps)\b|\b(\d[\d,.]*) ms after the decision"
)
ROW = re.compile(r"^\| (.+) \| (.+) \| (.+) \|$", re.MULTILINE)
NUMBER = re.compile(r"(\d[\d,]*(?:\.\d+)?)(?: (MB|years))?")
UNITS = {"": 1, "MB": 1_000_000, "years": 365 * 86_400}
MODULE = re.compile(r"`((?:holdfast|activities)/[\w/]+\.py)`")
TEMPLATES = [path for path in ROOT.glob("holdfast/cli/templates/**/*.*") if path.suffix != ".pyc"]
TEXTS = [*PAGES, *TEMPLATES, *ROOT.glob("examples/**/*.md")]


@pytest.mark.parametrize("page", [ROOT / "README.md", DOCS / "explanation/effects.md"], ids=lambda page: page.name)
def test_figures_in_prose_are_those_of_the_results(page: Path) -> None:
    """A number of kills, effects, trees or steps in prose is in the measurements, too."""
    figures_in_page = {
        number for match in MEASURED.finditer(page.read_text(encoding="utf-8")) for number in match.groups()[::2]
    }
    figures = {number for number in figures_in_page if number}
    assert figures
    assert {number for number in figures if not re.search(rf"(?<![\d,]){number}(?![\d,])", RESULTS)} == set()


def limits_of(file: str) -> Iterator[float]:
    """Yield the numbers among the constants of a module, and the large ones in its code."""
    module = file.removesuffix(".py").replace("/", ".")
    constants = vars(import_module(module if module.startswith("holdfast") else f"holdfast.{module}"))
    for constant in (value for name, value in constants.items() if name.isupper()):
        values = vars(constant).values() if isinstance(constant, Pace) else (constant,)
        for value in constant if isinstance(constant, tuple) else values:
            if isinstance(value, int | float):
                yield value
            elif isinstance(value, timedelta):
                yield value.total_seconds()
    for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, int) and node.value >= 1_000:
            yield node.value


def test_limits_are_those_of_the_code() -> None:
    """Each number of the page of limits is a constant of a module, or the default of a field, that its row names."""
    wrong, checked = [], 0
    for what, numbers, where in ROW.findall((DOCS / "reference/limits.md").read_text(encoding="utf-8")):
        known = {limit for file in MODULE.findall(where) for limit in limits_of(file)}
        known |= {float(DYNAMIC_CONFIG[setting]) for setting in re.findall(r"`(history\.\w+)`", where)}
        known |= {float(getattr(Limits(), name)) for name in re.findall(r"`(?:Limits\.)?([a-z_]+)`", where)}
        if known:
            given = [float(n.replace(",", "")) * UNITS[unit] for n, unit in NUMBER.findall(numbers)]
            wrong += [(what, number) for number in given if number not in known]
            checked += len(given)
    assert wrong == []
    assert checked > 100


def test_no_text_installs_another_projects_distribution() -> None:
    """The distribution is `holdfast-agents`; `holdfast` on a package index belongs to somebody else."""
    installs = re.compile(r"(?:pip|uv|pipx|poetry)\b[^\n`]*?\b(?:install|add)\b[^\n`]*")
    lines = ((text, line) for text in TEXTS for line in installs.findall(text.read_text(encoding="utf-8")))
    assert [(str(text), line) for text, line in lines if re.search(r"(?<![\w./-])holdfast(?![\w-])", line)] == []


def test_the_distribution_leads_to_the_repository() -> None:
    """The index page of the distribution has links to the repository, the documentation, the changes and the issues."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == "holdfast-agents"
    assert {"Repository", "Documentation", "Changelog", "Issues"} <= project["urls"].keys()
