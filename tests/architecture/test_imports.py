"""Imports point one way: `workflows → holdfast.core ← rooms, activities`. Workflows load no library that does I/O."""

import ast
import inspect
import re
import subprocess
import sys
from importlib import import_module
from typing import Any, get_args

import pytest

import holdfast
from holdfast import testing
from holdfast.core.loop.activities import LOOP_ACTIVITIES
from holdfast.core.run.contracts.commands import Request, Result
from holdfast.core.run.contracts.table import ACTIVITIES, Activity
from tests.support.sources import ROOT, files, import_statements, imports

PURE = (
    *("holdfast.core", "holdfast.audit.judge", "holdfast.portable.format", "holdfast.evaluation.compare"),
    "holdfast.telemetry.traces",
)
"""The packages without I/O, clock and randomness."""
APART = ("errors", "version", "core", "testing", "activities", "examples", "workflows", "__main__", "starter")
"""The members of `holdfast` that are not rooms of an adapter or a surface."""
ROOMS = tuple(
    f"holdfast.{path.stem}"
    for path in sorted((ROOT / "holdfast").iterdir())
    if path.stem not in APART and (path / "__init__.py").exists()
)
"""The rooms around the core, one for each adapter and each surface."""
SURFACES = tuple(f"holdfast.{name}" for name in ("api", "cli", "client", "devstack", "evaluation", "gateway"))
READING = "holdfast.client.reading"
"""The room that reads runs and records, for activities as well as for surfaces."""
LINKS = {
    "holdfast/activities": "activities",
    "holdfast/examples": "examples",
    "holdfast/workflows": "workflows",
    "holdfast/starter.py": "starter.py",
    "holdfast/gateway/__main__.py": "gateway.py",
    "holdfast/worker/__main__.py": "worker.py",
}
"""The links in `holdfast` to the top-level modules, which are imported by these names."""
PROGRAMS = ("holdfast.worker.__main__", "holdfast.starter", "holdfast.gateway.__main__")
HOSTING = "holdfast.hosting"
"""The room that puts workflows and activities together, for the programs and for users' own."""
APPLICATION = ("holdfast.workflows", "holdfast.activities", HOSTING, *PROGRAMS)
IO_LIBRARIES = ("openai", "httpx", "httpx2", "psycopg", "structlog", "typer", "rich", "psutil", "docstring_parser")


def within(module: str, packages: tuple[str, ...]) -> bool:
    """Return whether a module is one of these, or below one."""
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def test_workflows_import_of_ours_the_core_alone() -> None:
    """This is the one law: `holdfast.core` is pure, and the only code of ours that workflows import."""
    for file in [*files("workflows"), ROOT / "holdfast/workflow.py"]:  # that one is part of users' workflows
        ours = {module for module in imports(file) if within(module, ("holdfast",))}
        wrong = {module for module in ours if not within(module, ("holdfast.core", "holdfast.workflows"))}
        assert not wrong - {"holdfast"}, f"{file.relative_to(ROOT)} imports {wrong}"
        assert not {module for module in imports(file) if within(module, IO_LIBRARIES)}


def test_the_core_imports_no_room_and_no_io() -> None:
    """The core and the pure parts of rooms import no room and no library or module that does I/O."""
    impure = ("os", "subprocess", "socket", "asyncio", "time", "random", "uuid", *IO_LIBRARIES)
    allowed = {"definition.py": ("docstring_parser",)}  # used when a tool is defined, never by workflows
    folders = [package.replace(".", "/") for package in PURE]
    for file in files(*folders):
        imported = imports(file)
        wrong = {
            module
            for module in imported
            if within(module, (*impure, *ROOMS, *APPLICATION)) and not within(module, PURE)
        }
        assert not {module for module in wrong if not within(module, allowed.get(file.name, ()))}, file


@pytest.mark.parametrize(
    ("folder", "forbidden"),
    [
        ("holdfast", (*APPLICATION, "holdfast.examples")),
        (
            "activities",
            ("holdfast.workflows", HOSTING, *PROGRAMS, "holdfast.testing", "holdfast.core.run.state.state", *SURFACES),
        ),
        ("examples", APPLICATION),
    ],
)
def test_imports_point_one_way(folder: str, forbidden: tuple[str, ...]) -> None:
    """No file of a layer imports a module of a layer that it must not depend on."""
    for file in files(folder):
        above = (ROOT / "holdfast/__main__.py", ROOT / "holdfast/plugin.py")
        if file in above or file.is_relative_to(ROOT / "holdfast/hosting"):
            continue  # the command imports the programs; hosting and the plugin import both sides
        wrong = {module for module in imports(file) if within(module, forbidden) and not within(module, (READING,))}
        assert not wrong, f"{file.relative_to(ROOT)} imports {wrong}"


def test_each_module_has_one_name() -> None:
    """Each top-level module has one link in `holdfast`, and is imported only by that name, as in the wheel."""
    links = {str(path.relative_to(ROOT)) for path in (ROOT / "holdfast").rglob("*") if path.is_symlink()}
    assert links == set(LINKS)
    for link, top in LINKS.items():
        assert (ROOT / link).resolve() == ROOT / top
    at_the_top = tuple(top.removesuffix(".py") for top in LINKS.values())
    imported = re.compile(rf"^\s*(?:from|import)\s+(?:{'|'.join(at_the_top)})\b", re.MULTILINE)
    everywhere = files("holdfast", "workflows", "activities", "examples", "bench", "tests")
    for file in [each for each in (*everywhere, *ROOT.glob("*.py")) if imported.search(each.read_text())]:
        assert not [module for module in imports(file) if within(module, at_the_top)], file


def test_examples_import_what_is_public_from_its_public_place() -> None:
    """People copy examples: what `holdfast` or `holdfast.testing` exports is imported from there."""
    for file in files("examples"):
        for statement in import_statements(file):
            if isinstance(statement, ast.ImportFrom) and within(statement.module or "", ("holdfast.core", *ROOMS)):
                module = import_module(statement.module or "")
                for name in (each.name for each in statement.names):
                    for public in (holdfast, testing):
                        assert getattr(public, name, None) is not getattr(module, name, public), f"{file.name}: {name}"


def test_loading_the_workflows_loads_no_io_library() -> None:
    """A workflow's imports, direct or not, load no network, database or terminal library."""
    program = "import sys, holdfast.workflows; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    forbidden = ("holdfast.activities", *ROOMS, "holdfast.testing", "holdfast.core.tools.decorator", *IO_LIBRARIES)
    assert not [module for module in loaded if within(module, forbidden)]


def test_every_activity_of_the_table_has_an_implementation_of_the_same_signature() -> None:
    """The activities' names, requests and results are exactly those of the table."""
    from holdfast.activities.llm_calls.call_llm import LLM
    from holdfast.activities.load_agent import Agents
    from holdfast.activities.loop_iteration import Loops
    from holdfast.activities.notify import Notifier
    from holdfast.activities.record.archive import Archive
    from holdfast.activities.record.load_thread import Threads
    from holdfast.activities.record.loop_record import LoopRecord
    from holdfast.activities.subagents import Subagents
    from holdfast.activities.tool_calls.call_tool import Tools
    from holdfast.activities.tool_calls.previews import Previews

    activities: tuple[Activity[Any, Any, Any], ...] = (*ACTIVITIES.values(), *LOOP_ACTIVITIES)
    table = {activity.name: activity for activity in activities}
    implementations: dict[str, Any] = {
        function.__temporal_activity_definition.name: function
        for implemented in (Archive, Threads, LLM, Tools, Previews, Agents, Loops, LoopRecord, Notifier, Subagents)
        for function in vars(implemented).values()
        if hasattr(function, "__temporal_activity_definition")
    }
    assert table.keys() == implementations.keys()
    for name, activity in table.items():
        made = inspect.signature(implementations[name], eval_str=True)
        assert [activity.request] == [p.annotation for p in list(made.parameters.values())[1:]]
        assert made.return_annotation is activity.answer


def test_every_request_of_a_run_has_an_activity() -> None:
    """The table has an entry for each kind of request, and for each kind of result, and no other."""
    assert set(get_args(Request)) == set(ACTIVITIES)
    assert set(get_args(Result)) == {activity.answer for activity in ACTIVITIES.values()}
    for activity in ACTIVITIES.values():
        assert set(activity.compared) <= set(activity.request.model_fields)
