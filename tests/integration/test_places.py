"""Commands look for this user's running stacks among the processes, even for stacks of other folders."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.cli.places import searched_sources, stack_of_other_folder
from holdfast.config.project import TOML, read_project
from holdfast.config.running_stacks import running_stacks
from holdfast.config.stack_file import Stack, write_stack

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a process has the name of a link on Linux alone")


@contextmanager
def server(home: Path, port: int) -> Iterator[int]:
    """Run a process that looks like the Temporal server of an embedded stack, with the stack's record."""
    home.mkdir()
    program = home / "temporal"
    program.symlink_to(Path(sys.executable).resolve())
    argv = [str(program), "-I", "-c", "input()", "--db-filename", str(home / "temporal.db")]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE)
    stack = Stack(
        temporal_address=f"127.0.0.1:{port}",
        namespace="default",
        ui_url="",
        database_url="",
        temporal_port=port,
        ui_port=8233,
        http_port=7243,
        temporal_pid=process.pid,
    )
    write_stack(home, stack)
    try:
        yield process.pid
    finally:
        process.kill()
        process.communicate()


def found() -> set[Path]:
    """Return the state folders of the running stacks."""
    return {each.home for each in running_stacks()}


@pytest.mark.extended
def test_a_stack_of_another_folder_is_found_while_it_runs(tmp_path: Path) -> None:
    """A stack counts only with its own record: one that names another process, or that others can read, is ignored."""
    home = tmp_path / "home"
    with server(home, 29_999):
        assert home in found()
        (home / "stack.json").chmod(0o644)
        assert home not in found()
        (home / "stack.json").chmod(0o600)
        text = (home / "stack.json").read_text()
        (home / "stack.json").write_text(text.replace('"temporal_pid": ', f'"temporal_pid": {os.getpid()}, "other": '))
        assert home not in found()
    assert home not in found()


def test_an_error_lists_each_searched_location_and_each_running_stack(tmp_path: Path) -> None:
    """The error names the address's source, the files, the state folder, and `HOLDFAST_HOME` for each other stack."""
    home, here = tmp_path / "home", tmp_path / "here"
    here.mkdir()
    (here / TOML).touch(0o644)
    project = read_project({}, folder=here, default_root=here, runs_code=False)
    with server(home, 29_998):
        lines = searched_sources(project, here / ".holdfast")
        assert "the default localhost:7233; TEMPORAL_ADDRESS is not set" in lines[0]
        assert f"settings   {here / TOML} (sets nothing)" in lines
        assert f"stack      {here / '.holdfast'} has none" in lines
        assert f"running    127.0.0.1:29998: HOLDFAST_HOME={home}" in lines


@pytest.mark.extended
def test_only_the_stack_at_the_default_address_is_adopted(tmp_path: Path) -> None:
    """A client that reaches it anyway gets its key and record; an explicit server or state folder takes precedence."""
    home, here = tmp_path / "home", tmp_path / "here"
    project = read_project({}, folder=here, default_root=here, runs_code=False)
    with server(home, 29_997):
        assert stack_of_other_folder(project, here) != home
    home = tmp_path / "default"
    with server(home, 7233):
        assert stack_of_other_folder(project, here) is not None
        for name in ("TEMPORAL_ADDRESS", "TEMPORAL_PROFILE", "HOLDFAST_HOME"):
            named = read_project({name: "x"}, folder=here, default_root=here, runs_code=False)
            assert stack_of_other_folder(named, here) is None
        assert stack_of_other_folder(project, home) is None
