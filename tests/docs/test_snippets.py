"""Every snippet of the pages is checked: Python runs and has types, commands exist, YAML and JSON parse.

1. Python blocks of a page run in their order, in one namespace and in a folder of their own. A block whose first line
   is a comment such as `# mycompany/agents.py` is a file there. A page that awaits something runs beside a worker.
2. Files that need more than an import are run by a test of their page (`DRIVEN`); those in `TYPED` are only
   type-checked, because they would take minutes.
3. All Python is type-checked in strict mode.
4. `sh` holds commands alone: bash parses them, and ours are parsed by the command line itself. Tutorials are carried
   out as a whole (`test_tutorials.py`).
5. Output, templates and sessions are `text` or `console`.
6. `js` and `sql` are run by tests of their pages: `test_http_api_page.py`, `tests/integration/test_log_in_sql.py`.
"""

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer import BadParameter
from typer.core import TyperGroup

from holdfast.config.policy_file import read_policy
from holdfast.config.settings import variables
from holdfast.config.stack_file import Stack
from holdfast.testing import default_script
from tests.docs.pages import PAGES, ROOT, Snippet, snippets
from tests.docs.reference import command
from tests.docs.test_client_page import CATALOG
from tests.support.rig import StartRig, environ_of

ALL = [snippet for page in PAGES for snippet in snippets(page)]
PYTHON = [snippet for snippet in ALL if snippet.language == "python"]
LANGUAGES = {"console", "js", "json", "markdown", "python", "sh", "sql", "text", "toml", "yaml", "{eval-rst}"}
DATA: dict[str, Callable[[str], Any]] = {"json": json.loads, "toml": tomllib.loads, "yaml": yaml.safe_load}
DRIVEN = {"web.py", "batch.py", "chat.py", "agents.py"}
"""Files that `test_client_page.py`, `test_tutorials.py` or `tests/package/test_newcomer.py` run."""
TYPED = {"test_kills.py", "test_mystores.py"}


def test_the_languages_are_known() -> None:
    """Each block names its language; a block that only shows something is `text` or `console`."""
    assert not [snippet.place for snippet in ALL if snippet.language not in LANGUAGES]


@pytest.mark.parametrize("page", dict.fromkeys(each.page for each in PYTHON), ids=lambda page: page.stem)
async def test_python_runs(
    page: Path, rig: StartRig, stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files can be imported, and the other blocks run in the order of the page."""
    folder = tmp_path / "page"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    own = [snippet for snippet in PYTHON if snippet.page == page]
    for snippet in own:
        if snippet.file:
            (folder / snippet.file).parent.mkdir(exist_ok=True)
            (folder / snippet.file).write_text(snippet.code, encoding="utf-8")
    before = set(sys.modules)
    try:
        for snippet in own:
            if snippet.file and snippet.file not in DRIVEN | TYPED:
                runpy.run_path(snippet.file)
        code = "".join(snippet.code for snippet in own if not snippet.file)
        if not has_await(code):
            exec(compile(code, str(page), "exec"), {"__name__": page.stem})
            return
        async with rig(CATALOG, default_script) as worker:
            environ = {
                **environ_of(stack),
                "DATABASE_URL": stack.database_url,
                "HOLDFAST_TASK_QUEUE": worker.task_queue,
            }
            for name, value in environ.items():
                monkeypatch.setenv(name, value)
            namespace: dict[str, Any] = {}
            exec(compile(in_function(code), str(page), "exec"), namespace)
            await namespace["page"]()
    finally:
        for name in set(sys.modules) - before:
            if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]


def has_await(code: str) -> bool:
    """Return whether code awaits something outside a function."""
    try:
        compile(code, "", "exec")
    except SyntaxError:
        return True
    return False


def in_function(code: str) -> str:
    """Put code that awaits something into a function."""
    return f"async def page() -> None:\n{textwrap.indent(code, '    ')}"


@pytest.mark.slow
def test_python_has_types(tmp_path: Path) -> None:
    """All Python passes a type checker in strict mode."""
    for number, page in enumerate(dict.fromkeys(snippet.page for snippet in PYTHON)):
        name = f"page{number}_{re.sub(r'[^a-z]', '_', page.stem.lower())}"
        own = [snippet for snippet in PYTHON if snippet.page == page]
        files = {snippet.file: snippet.code for snippet in own if snippet.file}
        if code := "".join(snippet.code for snippet in own if not snippet.file):
            files["inline.py"] = in_function(code) if has_await(code) else code
        modules = {file.partition("/")[0].removesuffix(".py") for file in files}
        for file, code in files.items():
            for module in modules:  # the pages' modules share names; each page becomes a package
                code = re.sub(rf"^(from|import) {module}\b", rf"\1 {name}.{module}", code, flags=re.MULTILINE)
            (tmp_path / name / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / file).write_text(code, encoding="utf-8")
    ran = subprocess.run(  # with the settings of `make check`, whose cache makes it quick
        [sys.executable, "-m", "mypy", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("snippet", [each for each in ALL if each.language in DATA], ids=lambda snippet: snippet.place)
def test_data_parses(snippet: Snippet) -> None:
    """YAML, JSON and TOML parse; a policy is a valid policy."""
    data = DATA[snippet.language](snippet.code)
    if isinstance(data, dict) and {"rules", "approvers"} & data.keys():
        read_policy(snippet.code.encode(), name=snippet.place)


SHELL = [snippet for snippet in ALL if snippet.language == "sh"]


@pytest.mark.parametrize("page", dict.fromkeys(each.page for each in SHELL), ids=lambda page: page.stem)
def test_bash_parses_the_commands(page: Path) -> None:
    """Each block of a page is a script."""
    code = "\n".join(snippet.code for snippet in snippets(page) if snippet.language == "sh")
    parsed = subprocess.run(["bash", "-n"], input=code, capture_output=True, text=True, check=False)
    assert parsed.returncode == 0, parsed.stderr


@pytest.mark.parametrize("snippet", SHELL, ids=lambda snippet: snippet.place)
def test_commands_exist(snippet: Snippet) -> None:
    """The verbs, options, variables and targets of a block exist."""
    for line in snippet.code.replace("\\\n", " ").splitlines():
        arguments = shlex.split(line, comments=True)
        settings = {word.partition("=")[0] for word in arguments if re.match(r"HOLDFAST_\w+=", word)}
        assert settings <= set(variables().values()), line
        while arguments and (re.match(r"\w+=", arguments[0]) or arguments[0] == "export"):
            arguments.pop(0)
        simple = arguments[
            : next((at for at, word in enumerate(arguments) if word in ("|", "<", ">", "&&", "&")), None)
        ]
        if simple[:1] == ["holdfast"]:
            parse(simple[1:])
        elif simple[:1] == ["make"]:
            assert simple[1] in targets(), line


def parse(arguments: list[str]) -> None:
    """Parse a command of ours, and run nothing.

    Raises:
        UsageError: There is no such option, or an argument is missing.
        KeyError: There is no such verb.
    """
    verb: Any = command()
    while isinstance(verb, TyperGroup):
        name, *arguments = arguments
        verb = verb.commands[name]
    try:
        verb.make_context("holdfast", [word for word in arguments if word != "--help"])
    except BadParameter as error:
        if "does not exist" not in str(error):  # as the files of an example do not
            raise


@cache
def targets() -> set[str]:
    """Return the targets of the Makefile."""
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


@pytest.mark.extended
def test_stores_pass_their_suite(tmp_path: Path) -> None:
    """The thread store of the page passes its suite, in the page's own test."""
    page = ROOT / "docs/how-to/use-your-own-stores.md"
    for snippet in snippets(page):
        if snippet.file:
            (tmp_path / snippet.file).write_text(snippet.code, encoding="utf-8")
    options = ["-q", "-p", "no:cacheprovider", "--asyncio-mode=auto", "--rootdir=."]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
