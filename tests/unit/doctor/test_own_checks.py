"""A process that serves the page makes the same checks as the command line, of itself, and runs no code for them."""

import sys
from pathlib import Path

import pytest

from holdfast.config.project import TOML, read_project
from holdfast.config.settings import Settings
from holdfast.doctor.check import Check
from holdfast.doctor.examine import examine
from holdfast.doctor.limited import Limited
from holdfast.doctor.own import OwnChecks
from holdfast.doctor.project import not_imported
from holdfast.worker.takeover.registry import Offer

NOWHERE = {"target_host": "127.0.0.1:1"}
ENVIRON = {
    "HOLDFAST_CATALOG": "trapped:catalog",
    "DATABASE_URL": "postgresql://holdfast:hunter2@127.0.0.1:1/holdfast",
    "HOLDFAST_GATEWAY_PORT": "0",
}


async def test_the_gateway_makes_the_same_checks_and_imports_no_catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its findings are those of the command line, except about what it is itself; the catalog that the environment
    names is not imported, and no password is shown.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "trapped.py").write_text("catalog = None\n")
    environ = {**ENVIRON, "HOLDFAST_HOME": str(tmp_path / "home")}
    for name, text in environ.items():
        monkeypatch.setenv(name, text)
    settings = Settings.from_env(environ, root=tmp_path)
    own = await OwnChecks(settings, NOWHERE).installation()
    assert "trapped" not in sys.modules
    project = read_project(environ, folder=tmp_path, default_root=tmp_path, runs_code=False)
    theirs = await examine(settings, NOWHERE, project, limited=Limited())
    assert "trapped" in sys.modules
    assert {check.name for check in own} == {check.name for check in theirs} - {"ports"}
    different = {check.name for check in own if check not in theirs}
    assert different <= {"catalog", "policy", "variables"}
    assert "hunter2" not in str(own)


def test_no_offer_makes_the_gateway_import_a_catalog(tmp_path: Path) -> None:
    """A worker declares its catalog itself: whatever it declares, there is one that is not imported."""
    settings = Settings.from_env({"HOLDFAST_HOME": str(tmp_path)}, root=tmp_path)
    project = read_project({}, folder=tmp_path, default_root=tmp_path, runs_code=False)
    for catalog in ("", "mine:catalog"):
        offer = Offer(catalog=catalog, agents=(), llm="scripted", folder=str(tmp_path))
        assert not_imported(project, [offer], settings, imports=False)


async def test_a_file_that_has_become_wrong_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page says which file, although the process could not start with it any more."""
    monkeypatch.chdir(tmp_path)
    settings = Settings.from_env({"HOLDFAST_HOME": str(tmp_path)}, root=tmp_path)
    (tmp_path / TOML).write_text("catalog = [\n")
    (found,) = await OwnChecks(settings, NOWHERE).installation()
    assert isinstance(found, Check)
    assert (found.name, found.status, str(tmp_path / TOML) in found.detail) == ("settings", "missing", True)
