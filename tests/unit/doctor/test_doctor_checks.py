"""`doctor` on a project: each fault that a newcomer meets is named, with the next step."""

import os
import socket
from pathlib import Path

import pytest

from holdfast.config.project import TOML, Project, read_project
from holdfast.config.settings import Settings
from holdfast.doctor.project import (
    catalog_check,
    home_check,
    llm_check,
    offers,
    port_check,
    queue_check,
)
from holdfast.worker.takeover.liveness import this_process
from holdfast.worker.takeover.registry import Offer, WorkerRegistry

QUEUE = ("127.0.0.1:7233", "default", "holdfast")


def project(folder: Path, toml: str | None, **environ: str) -> tuple[Settings, Project]:
    """Return the project as the CLI reads it from a folder."""
    if toml is not None:
        (folder / TOML).write_text(toml)
    loaded = read_project(environ, folder=folder, default_root=folder, runs_code=False)
    return Settings.from_env(loaded.environ, root=loaded.root), loaded


def offer(folder: Path, *, catalog: str = "agents:catalog", llm: str = "scripted", digest: str = "") -> Offer:
    """Return the offer that a worker publishes."""
    return Offer(catalog=catalog, agents=("dunning",), llm=llm, folder=str(folder), digest=digest)


def test_only_the_worker_itself_declares_its_offer(tmp_path: Path) -> None:
    """`doctor` reads only the offer that a worker registered; another queue, a foreign worker and a broken file have
    none.
    """
    me = this_process()
    assert me
    registry = WorkerRegistry(tmp_path, *QUEUE)
    registry.add(me, offer(tmp_path))
    assert offers(tmp_path, [str(me), "1234@elsewhere"], *QUEUE) == {str(me): offer(tmp_path)}
    assert offers(tmp_path, [str(me)], "127.0.0.1:7233", "default", "other") == {}
    (file,) = (tmp_path / "workers").iterdir()
    file.write_text("{")
    assert offers(tmp_path, [str(me)], *QUEUE) == {}
    assert offers(tmp_path / "nowhere", [str(me)], *QUEUE) == {}
    assert not (tmp_path / "nowhere").exists()


def test_the_workers_catalog_is_compared_with_the_folders(tmp_path: Path) -> None:
    """A different catalog, or the same module name in another folder, is a fault that names both."""
    (tmp_path / "agents.py").touch()
    loaded = project(tmp_path, 'catalog = "agents:catalog"\n')
    own = catalog_check(*loaded, [offer(tmp_path)])
    assert (own.status, "the worker offers dunning" in own.detail) == ("ok", True)
    for other in (offer(tmp_path, catalog="other:catalog"), offer(tmp_path / "elsewhere")):
        check = catalog_check(*loaded, [other])
        assert check.status == "missing"
        assert f"offers dunning from {other.catalog}, and was started in {other.folder}" in check.detail
        assert f"in {tmp_path}" in check.fix
    assert catalog_check(*loaded, []).status == "open"
    assert catalog_check(*project(tmp_path, None, HOLDFAST_CATALOG="nothing:there"), []).status == "missing"


def test_workers_with_different_agents_on_one_queue_are_a_fault(tmp_path: Path) -> None:
    """Workers are compared by the digest of their agents; older releases by the catalog and the agents' names."""
    ours = offer(tmp_path, digest="a")
    assert queue_check([]) is None
    assert queue_check([ours, offer(tmp_path / "elsewhere", digest="a")]) is None
    assert queue_check([ours, offer(tmp_path)]) is None
    for other in (offer(tmp_path, digest="b"), offer(tmp_path, catalog="other:catalog")):
        check = queue_check([ours, other])
        assert check
        assert (check.status, "HOLDFAST_TASK_QUEUE" in check.fix) == ("missing", True)
        assert f"another one offers dunning from {other.catalog}" in check.detail


@pytest.mark.parametrize(
    ("toml", "environ", "workers", "status"),
    [
        ("", {}, [], "missing"),
        ('script = "script:script"', {}, [], "ok"),
        ("", {}, ["gpt-5-mini"], "ok"),
        (None, {}, [], "open"),
    ],
)
def test_a_project_without_key_endpoint_and_script_is_a_fault(
    tmp_path: Path, toml: str | None, environ: dict[str, str], workers: list[str], status: str
) -> None:
    """The fault applies to a local project only: elsewhere, the key may be on the workers' machine."""
    check = llm_check(*project(tmp_path, toml, **environ), [offer(tmp_path, llm=each) for each in workers])
    assert check
    assert check.status == status
    assert check.status == "ok" or "OPENAI_API_KEY" in check.fix


def test_a_port_that_is_taken_is_named_with_its_program(tmp_path: Path) -> None:
    """The line names the program and its process id if this user may see it; a free port gets no line."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        check = port_check({"target_host": "temporal.example:7233"}, reached=False, gateway=port)
        assert check
        assert f"port {port}, for the gateway, is taken by" in check.detail
        assert f"(process {os.getpid()})" in check.detail
        here = port_check({"target_host": f"127.0.0.1:{port}"}, reached=False, gateway=1)
        assert here
        assert f"port {port}, for Temporal, is taken by" in here.detail
    assert port_check({"target_host": "temporal.example:7233"}, reached=False, gateway=port) is None


def test_a_stack_file_of_others_is_a_fault(tmp_path: Path) -> None:
    """A state folder whose record is not trusted is named, with the reason; a named server needs no stack."""
    (tmp_path / ".holdfast").mkdir()
    (tmp_path / ".holdfast/stack.json").write_text("{}")
    (tmp_path / ".holdfast/stack.json").chmod(0o644)
    settings, loaded = project(tmp_path, "")
    check = home_check(loaded, settings.home, "localhost:7233", reached=False)
    assert check
    assert (check.status, "can be read by other users" in check.detail) == ("missing", True)
    settings, named = project(tmp_path, "", TEMPORAL_ADDRESS="temporal:7233")
    assert home_check(named, settings.home, "temporal:7233", reached=False) is None
