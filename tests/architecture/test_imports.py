"""Imports point one way: `workflows → holdfast ← activities`. Workflows load no library that does I/O."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

from holdfast.loop.activities import LOOP_ACTIVITIES
from holdfast.run.activities import ACTIVITIES, Activity
from holdfast.run.commands import Request, Result

ROOT = Path(__file__).resolve().parents[2]
SURFACES = tuple(f"holdfast.runtime.{name}" for name in ("cli", "client", "devstack", "gateway"))
PROGRAMS = ("worker", "starter", "gateway")
APPLICATION = ("holdfast.workflows", "holdfast.activities", *(f"holdfast.{name}" for name in PROGRAMS))
AT_THE_TOP = ("activities", "examples", "workflows", *PROGRAMS)
"""What has a link in `holdfast`, which is the name that it is imported by."""
IO_LIBRARIES = ("openai", "httpx", "httpx2", "psycopg", "structlog", "typer", "rich", "psutil", "docstring_parser")


def imports(file: Path) -> set[str]:
    """Return the modules that a file names in import statements."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def files(*folders: str) -> list[Path]:
    """Python files below these folders, without those behind links."""
    found = (file for folder in folders for file in (ROOT / folder).rglob("*.py"))
    return sorted(file for file in found if file.resolve() == file)


def within(module: str, packages: tuple[str, ...]) -> bool:
    """Return whether a module is one of these, or below one."""
    return any(module == package or module.startswith(f"{package}.") for package in packages)


@pytest.mark.parametrize(
    ("folder", "forbidden"),
    [
        ("holdfast", (*APPLICATION, "holdfast.examples")),
        ("workflows", ("holdfast.activities", *APPLICATION[2:], "holdfast.runtime", "holdfast.testing", *IO_LIBRARIES)),
        ("activities", ("holdfast.workflows", *APPLICATION[2:], "holdfast.testing", "holdfast.run.state", *SURFACES)),
        ("examples", APPLICATION),
    ],
)
def test_imports_point_one_way(folder: str, forbidden: tuple[str, ...]) -> None:
    """No file of a layer imports a module of a layer that it must not depend on."""
    for file in files(folder):
        if file == ROOT / "holdfast/__main__.py":
            continue  # the command knows the programs
        wrong = {module for module in imports(file) if within(module, forbidden)}
        assert not wrong, f"{file.relative_to(ROOT)} imports {wrong}"


def test_each_module_has_one_name() -> None:
    """What is at the top has a link in `holdfast`, is imported by that name, as in the wheel, and by no other."""
    for name in AT_THE_TOP:
        top = next(path for path in (ROOT / name, ROOT / f"{name}.py") if path.exists())
        assert (ROOT / "holdfast" / top.name).readlink() == Path("..") / top.name
    for file in [*files("holdfast", "workflows", "activities", "examples", "bench", "tests"), *ROOT.glob("*.py")]:
        assert not [module for module in imports(file) if within(module, AT_THE_TOP)], file


def test_the_top_of_holdfast_is_pure() -> None:
    """Outside `runtime` and `testing`, `holdfast` imports no library or module that does I/O."""
    impure = ("holdfast.runtime", "holdfast.testing", "os", "subprocess", "socket", "asyncio", "time", "random", "uuid")
    allowed = {"decorator.py": ("docstring_parser",)}  # used when a tool is defined, never by workflows
    apart = ("__init__.py", "__main__.py", "runtime", "testing")  # `__init__` imports a name on its first use
    own = [file for file in files("holdfast") if file.relative_to(ROOT).parts[1] not in apart]
    for file in own:
        wrong = {module for module in imports(file) if within(module, (*impure, *IO_LIBRARIES))}
        assert not {module for module in wrong if not within(module, allowed.get(file.name, ()))}, file


def test_loading_the_workflows_loads_no_io_library() -> None:
    """A workflow's imports, direct or not, load no network, database or terminal library."""
    program = "import sys, holdfast.workflows; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    forbidden = (
        "holdfast.activities",
        "holdfast.runtime",
        "holdfast.testing",
        "holdfast.tools.decorator",
        *IO_LIBRARIES,
    )
    assert not [module for module in loaded if within(module, forbidden)]


def test_every_activity_of_the_table_has_an_implementation_of_the_same_signature() -> None:
    """The activities' names, requests and answers are those of the table, no more and no fewer."""
    from holdfast.activities.archive import Archive
    from holdfast.activities.call_llm import LLM
    from holdfast.activities.call_tool import Tools
    from holdfast.activities.children import Children
    from holdfast.activities.load_agent import Agents
    from holdfast.activities.load_thread import Threads
    from holdfast.activities.loop_iteration import Loops
    from holdfast.activities.loop_record import LoopRecord
    from holdfast.activities.notify import Notifier

    activities: tuple[Activity[Any, Any, Any], ...] = (*ACTIVITIES.values(), *LOOP_ACTIVITIES)
    table = {activity.name: activity for activity in activities}
    implementations: dict[str, Any] = {
        function.__temporal_activity_definition.name: function
        for implemented in (Archive, Threads, LLM, Tools, Agents, Loops, LoopRecord, Notifier, Children)
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


def test_every_test_states_its_rule() -> None:
    """Each test has a docstring: the rule that it proves."""
    silent = [
        f"{file.relative_to(ROOT)}: {node.name}"
        for file in files("tests")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]
    assert not silent
