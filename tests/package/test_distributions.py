"""The wheel has every module imported below `holdfast`, and nothing else; the sdist makes the same wheel."""

import ast
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib import import_module
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import holdfast
from holdfast.config.extras import EXTRAS
from tests.package.installation import ROOT, build

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EVERY = {module for modules in EXTRAS.values() for module in modules}
BLOCKED = """
import importlib, pkgutil, sys

class Without:
    def __init__(self, finder):
        self.finder = finder
    def __getattr__(self, name):
        return getattr(self.finder, name)
    def find_spec(self, name, path=None, target=None):
        return None if name.split(".")[0] in {blocked!r} else self.finder.find_spec(name, path, target)

sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
"""


def files_below(folder: Path) -> set[str]:
    """Return the files of a folder and behind its links, without those that running them has made."""
    walked = ((Path(place), name) for place, _, names in os.walk(folder, followlinks=True) for name in names)
    files = {place / name for place, name in walked if place.name != "__pycache__"}
    return {str(file.relative_to(folder.parent)) for file in files}


def test_the_wheel_has_all_of_holdfast_and_nothing_else(wheel: Path) -> None:
    """Files behind links replace the links; other distributions own `workflows`, `activities` and `examples`."""
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == files_below(ROOT / "holdfast")
    parts = {
        "py.typed",
        "__main__.py",
        "worker/__main__.py",
        "gateway/__main__.py",
        "starter.py",
        "workflows/agent_run.py",
    }
    parts |= {"activities/assembly.py", "examples/release/catalog.py", "examples/loop/skills/test-first/SKILL.md"}
    parts |= {"examples/research/library/later/2026-03-soak-test.md", "cli/templates/research/holdfast.toml"}
    assert {f"holdfast/{part}" for part in parts} < names
    assert {f"holdfast/storage/migrations/{file.name}" for file in ROOT.rglob("migrations/*.sql")} < names
    assert wheel.stat().st_size < 2_300_000


def test_links_of_the_index_page_are_absolute(wheel: Path) -> None:
    """The description that a package index shows has no relative link and no relative picture."""
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        description = archive.read(metadata).decode().partition("\n\n")[2]
    targets = re.findall(r"\]\(([^)\s]+)", description)
    assert len(targets) > 10
    assert [target for target in targets if not target.startswith("https://")] == []


def test_the_sdist_makes_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    """A build from the sdist gives the very bytes of our wheel."""
    with tarfile.open(build("sdist", tmp_path / "sdist")) as sdist:
        sdist.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    assert build("wheel", tmp_path / "wheel", source=source).read_bytes() == wheel.read_bytes()


def test_the_version_is_one() -> None:
    """`holdfast --version` prints the distribution's version."""
    assert PROJECT["version"] == holdfast.__version__


def test_public_names_are_the_same_for_programs_and_type_checkers() -> None:
    """The names that type checkers see are `__all__`, and each is the object of its module."""
    tree = ast.parse((ROOT / "holdfast/__init__.pyi").read_text())
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module != "holdfast.version"]
    listed = [(node.module or "", alias) for node in imports for alias in node.names]
    seen = {alias.asname: module for module, alias in listed if alias.name != "*"}
    seen |= {name: module for module, alias in listed if alias.name == "*" for name in import_module(module).__all__}
    assert sorted(filter(None, seen)) == getattr(holdfast, "__all__")  # noqa: B009  # the stub does not list it
    for name, module in seen.items():
        assert name in dir(holdfast)
        assert getattr(holdfast, name or "") is getattr(import_module(module), name or "")


def run_without(*blocked: str, code: str) -> list[str]:
    """Run code in a process that cannot import these modules; return its output."""
    program = BLOCKED.format(blocked=set(blocked)) + code
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.split()


def test_the_extension_api_needs_no_extra() -> None:
    """Users' catalogs, stores, clients and tests import what they need without FastAPI, typer, psycopg and the like."""
    code = """
import holdfast, holdfast.testing
for name in holdfast.__all__:
    getattr(holdfast, name)
tools = [*holdfast.workspace_tools(confine="never"), *holdfast.memory_tools()]
policy = holdfast.Policy(rules=(holdfast.ask("run_*", when="args.command != ''"), holdfast.allow()))
catalog = holdfast.Catalog(agents=[holdfast.Agent(name="a", instructions="b", policy=policy)], tools=tools)
print(*catalog.agents)
try:
    with holdfast.SyncClient.connect(address="127.0.0.1:1"):
        pass
except holdfast.ServerUnreachable:
    print("unreachable")
"""
    assert run_without(*EVERY, code=code) == ["a", "unreachable"]


def test_a_plugin_without_a_catalog_needs_no_extra() -> None:
    """Calling agents of other workers needs none; a program that runs agents learns what to install."""
    code = """
import holdfast
holdfast.HoldfastPlugin(environ={})
try:
    holdfast.HoldfastPlugin(holdfast.Catalog(agents=[holdfast.Agent(name="a", instructions="b", tools=())]), environ={})
except holdfast.SettingsError as error:
    print("missing" if "packages that run agents are missing" in str(error) else error)
"""
    assert run_without(*EVERY, code=code) == ["missing"]


@pytest.mark.parametrize(
    ("extra", "modules"),
    [
        ("cli", ("starter", "cli", "audit", "composition", "storage")),
        ("gateway", ("gateway.app", "gateway.process", "gateway.routes", "gateway.page", "composition", "storage")),
        ("worker", ("worker", "hosting", "activities", "composition", "storage")),
    ],
)
def test_a_program_needs_its_own_extra_only(extra: str, modules: tuple[str, ...]) -> None:
    """No program imports a package of another program's extra. Only `gateway.mcp` needs that of `mcp`."""
    code = f"""
for name in {modules}:
    module = importlib.import_module("holdfast." + name)
    for found in pkgutil.walk_packages(getattr(module, "__path__", ()), module.__name__ + "."):
        importlib.import_module(found.name)
"""
    blocked = EVERY - {*EXTRAS[extra], "rich"}  # typer brings rich along
    assert run_without(*blocked, code=code) == []


@pytest.mark.parametrize("extra", sorted(EXTRAS))
def test_an_extra_has_the_distributions_of_its_modules(extra: str) -> None:
    """An extra installs the modules that its program looks for before it starts."""
    named = {requirement.split(">")[0].split("[")[0] for requirement in PROJECT["optional-dependencies"][extra]}
    owners = dict(packages_distributions()) | {
        "opentelemetry.proto": ["opentelemetry-proto"]
    }  # several share its package
    assert {owner.lower() for module in EXTRAS[extra] for owner in owners[module]} - {"psycopg-pool"} == named
