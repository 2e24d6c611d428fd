"""Figures in prose match the measurements, and no text names a distribution of other owners."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, PAGES, ROOT

RESULTS = (ROOT / "bench/RESULTS.md").read_text(encoding="utf-8")
MEASURED = re.compile(
    r"\b(\d[\d,]*) (SIGKILLs|(?:external )?effects|trees|freezes|moves|steps)\b|\b(\d[\d,.]*) ms after the decision"
)
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


@pytest.mark.parametrize("text", TEXTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_text_installs_another_projects_distribution(text: Path) -> None:
    """The distribution is `holdfast-agents`; `holdfast` on a package index belongs to somebody else."""
    installing = re.findall(
        r"(?:pip|uv|pipx|poetry)\b[^\n`]*?\b(?:install|add)\b[^\n`]*", text.read_text(encoding="utf-8")
    )
    assert [line for line in installing if re.search(r"(?<![\w./-])holdfast(?![\w-])", line)] == []


def test_the_distribution_leads_to_the_repository() -> None:
    """The index page of the distribution has links to the repository, the documentation, the changes and the issues."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == "holdfast-agents"
    assert {"Repository", "Documentation", "Changelog", "Issues"} <= project["urls"].keys()
