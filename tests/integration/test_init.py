"""`init` creates projects that run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.config.loading import load
from holdfast.config.project import read_project
from holdfast.config.settings import Settings
from holdfast.core.agents.catalog import Catalog

ROOT = Path(__file__).parents[2]
TEMPLATES = ROOT / "holdfast/cli/templates"
FULL = """import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600))
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"""
"""Runs a program that cannot write files over 600 bytes, as on a disk that fills up."""


def init(*words: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run `starter.py init` in a folder."""
    command = [sys.executable, str(ROOT / "starter.py"), "init", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.slow
def test_the_new_projects_own_tests_pass(tmp_path: Path) -> None:
    """`init` writes the templates unchanged, its catalog is found, and `pytest` passes in the new project."""
    ran = init("hello", "--json", folder=tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    project = tmp_path / "hello"
    assert json.loads(ran.stdout)["folder"] == str(project)
    written = {path.name.lstrip("."): path.read_bytes() for path in project.iterdir()}
    assert written == {path.name: path.read_bytes() for path in (TEMPLATES / "agent").iterdir() if path.is_file()}
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore"]
    tests = subprocess.run(command, cwd=project, env=environ, capture_output=True, text=True, check=False)
    assert tests.returncode == 0, tests.stdout


@pytest.mark.parametrize(
    "example",
    ["release", pytest.param("loop", marks=pytest.mark.extended), pytest.param("research", marks=pytest.mark.extended)],
)
def test_an_example_has_a_workspace_and_a_catalog(tmp_path: Path, example: str) -> None:
    """The new project's worker offers the example; its repository has commits, or its library documents."""
    ran = init("demo", "--example", example, folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    demo = tmp_path / "demo"
    project = read_project({}, folder=demo, default_root=ROOT, runs_code=True)
    settings = Settings.from_env(project.environ, root=project.root)
    assert load(settings.catalog, Catalog).agents
    assert settings.script
    load(settings.script, object)
    if example == "research":
        assert list((demo / "library").glob("*.md"))
        assert "--dev --skip-time" in ran.stdout  # its lead sleeps overnight
        return
    git = ["git", "-C", str(demo / "package"), "log", "--oneline"]
    assert subprocess.run(git, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("name", ["agents.py", ".gitignore", "holdfast.toml"])
def test_init_overwrites_nothing(tmp_path: Path, name: str) -> None:
    """A file, or a dangling link, with the name of a template is reported, and nothing is written."""
    (tmp_path / name).symlink_to("nowhere")
    ran = init(folder=tmp_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert f"there is already {name}" in ran.stderr
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert not (tmp_path / "nowhere").exists()


def test_init_names_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """A file in place of the folder is a clear error with advice."""
    (tmp_path / "hello").touch()
    ran = init("hello", folder=tmp_path)
    assert ran.returncode == 2
    assert "nothing was written, because hello cannot be: File exists. Name a new folder" in ran.stderr


def test_init_leaves_nothing_behind_on_a_full_disk(tmp_path: Path) -> None:
    """A retry is not hindered by half a project."""
    command = [sys.executable, "-c", FULL, str(ROOT / "starter.py"), "init", "hello"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "File too large" in ran.stderr
    assert list((tmp_path / "hello").iterdir()) == []
