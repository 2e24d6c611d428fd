"""The packages of `holdfast` form a ladder: each names its permitted imports, and no import points back up."""

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.support.sources import ROOT, files, import_statements, parsed

LINKED = ("activities", "examples", "workflows")
"""Folders at the top that `holdfast` has links to: their modules are `holdfast.activities` and so on."""
PROGRAMS = {"holdfast.starter": "starter", "holdfast.worker.__main__": "worker", "holdfast.gateway.__main__": "gateway"}
"""Files at the top that `holdfast` has links to, by module. They, and `holdfast.__main__`, stand above the ladder."""

PURE_PARTS = ("audit.judge", "portable.format", "telemetry.traces", "evaluation.compare")
"""The pure parts of rooms: the fold may import them, as it may import the core."""

ROOMS = {
    "errors": "",
    "version": "",
    "core": "errors version",
    "workflow": "core",
    "evaluation.compare": "core errors",
    "portable.format": "core errors",
    "config": "core errors version",
    "audit.judge": "core",
    "workspace": "config core errors",
    "mcp": "config core errors version workspace",
    "encryption": "config core errors",
    "endpoints": "config core errors",
    "devstack": "config core encryption errors",
    "client": "config core encryption errors",
    "storage": "config core endpoints errors",
    "telemetry.traces": "core portable.format",
    "streaming": "client config core",
    "audit": "audit.judge client config core errors",
    "portable": "audit audit.judge client core errors portable.format storage",
    "composition": "audit client config core devstack encryption endpoints errors mcp storage streaming",
    "telemetry": "composition config core endpoints errors storage telemetry.traces version",
    "retention": "audit audit.judge client composition config core errors storage version",
    "api": "audit client composition config core encryption errors portable portable.format streaming",
    "worker": "client composition config core devstack errors mcp storage telemetry telemetry.traces version",
    "doctor": "audit client composition config core encryption errors worker workspace",
    "gateway": (
        "api audit client composition config core doctor encryption errors portable portable.format streaming version"
    ),
    "evaluation": (
        "api client core devstack endpoints errors evaluation.compare portable portable.format storage worker"
    ),
    "cli": (
        "audit client composition config core doctor encryption endpoints errors evaluation evaluation.compare gateway "
        "mcp portable portable.format retention streaming telemetry telemetry.traces version worker workspace"
    ),
}
"""The rooms of `holdfast`, each with its permitted imports."""

CORE = {
    "base": "",
    "stores": "",
    "trust": "base",
    "nodes": "base",
    "mac": "base",
    "llm": "base",
    "budget": "base",
    "tools": "base llm nodes trust",
    "memory": "base llm trust",
    "streams": "base llm tools",
    "lineage": "base budget",
    "authority": "base budget llm tools trust",
    "agents": "authority base budget llm memory nodes stores tools trust",
    "log": "agents authority base budget lineage llm memory nodes tools trust",
    "transcript": "agents base llm log memory",
    "run": "agents authority base budget lineage llm log mac memory nodes tools transcript trust",
    "schedule": "agents base budget llm mac nodes run",
    "loop": "agents base budget llm log mac nodes run trust",
    "temporal": "base log loop mac run",
}
"""Packages (and modules) of the pure core."""

RUN = {
    "state": "",
    "rules": "state",
    "fold": "rules state",
    "contracts": "fold state",
    "waits": "contracts rules state",
    "inputs": "fold rules state waits",
    "decide": "contracts inputs rules state waits",
    "views": "contracts decide fold rules state",
    "machine": "contracts decide fold inputs rules state views waits",
}
"""Packages of a run."""

CLI = {
    "exits": "",
    "options": "",
    "text": "",
    "output": "",
    "places": "",
    "redirects": "",
    "new_project": "",
    "replay": "exits output text",
    "session": "output places redirects text",
    "main": "exits options session text",
    "screens": "exits session text",
    "reports": "exits screens session text",
    "checks": "exits session text",
    "verbs": "checks exits new_project options replay reports screens session text",
    "app": "main options verbs",
}
"""The command line."""

GATEWAY = {
    "callers": "",
    "http": "",
    "signed_requests": "callers http",
    "stream": "http",
    "answers": "http",
    "bodies": "http",
    "authentication": "callers http signed_requests",
    "descriptions": "http",
    "feeds": "bodies http",
    "routes": "answers authentication bodies callers descriptions feeds http stream",
    "page": "answers authentication bodies callers http routes stream",
    "mcp": "authentication bodies callers http page routes",
    "app": "authentication callers descriptions http mcp page routes",
    "process": "app callers http mcp page",
}
"""The gateway."""

LADDERS = {
    "holdfast": ROOMS,
    "holdfast.core": CORE,
    "holdfast.core.run": RUN,
    "holdfast.cli": CLI,
    "holdfast.gateway": GATEWAY,
}
"""The ladder of each package: a member names the members above it that it may import."""


@cache
def modules() -> dict[str, Path]:
    """Return every module of the project by its dotted name."""
    named = {module: ROOT / f"{name}.py" for module, name in PROGRAMS.items()}
    for file in files("holdfast", *LINKED):
        if "templates" not in file.parts:  # the files that `holdfast init` copies
            name = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            named[name if name.split(".")[0] == "holdfast" else f"holdfast.{name}"] = file
    return named


def imported(file: Path, known: dict[str, Path]) -> Iterator[str]:
    """Yield the modules of the project that a file imports, anywhere in it."""
    for node in import_statements(file):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif node.module in known:
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in known else node.module for name in full)


def arrows(package: str) -> dict[str, set[str]]:
    """Return each member of `package` with its imports; the pure part of a room is a member of its own."""
    known = modules()
    above = (
        {*LINKED, "__main__", "__init__", "starter", "testing", "hosting", "plugin"} if package == "holdfast" else set()
    )
    imports: dict[str, set[str]] = {}
    for name, file in known.items():
        if not name.startswith(f"{package}.") or name in PROGRAMS:
            continue
        importer = member(package, name)
        others = {member(package, other) for other in imported(file, known) if other.startswith(f"{package}.")}
        if importer not in above and others - {importer}:
            imports.setdefault(importer, set()).update(others - {importer})
    return imports


def member(package: str, module: str) -> str:
    """Return the member of a package that a module belongs to."""
    parts = module.removeprefix(f"{package}.").split(".")
    return ".".join(parts[:2]) if ".".join(parts[:2]) in PURE_PARTS else parts[0]


@pytest.mark.parametrize(("package", "ladder"), LADDERS.items())
def test_each_package_imports_only_what_it_names(package: str, ladder: dict[str, str]) -> None:
    """The tables above list exactly the imports that exist, and each entry names only packages above it."""
    names = list(ladder)
    for at, (name, allowed) in enumerate(ladder.items()):
        assert set(allowed.split()) <= set(names[:at]), f"{name} may import what is below it"
    assert arrows(package) == {name: set(allowed.split()) for name, allowed in ladder.items() if allowed}


def test_every_package_says_what_it_owns() -> None:
    """Each package has a docstring that says what it owns and what it leaves to others."""
    for name, file in modules().items():
        if file.name == "__init__.py":
            docstring = ast.get_docstring(parsed(file)) or ""
            assert len(docstring.split()) >= 8, f"{name} does not say what it owns"


def test_no_modules_import_each_other() -> None:
    """Modules import each other in one direction only, without a cycle of any length."""
    known = modules()
    graph = {name: set(imported(file, known)) - {name} for name, file in known.items()}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the cycle
