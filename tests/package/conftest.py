"""Installations of the wheel, made once per test process."""

import sys
from pathlib import Path

import pytest

from tests.package.installation import ROOT, Installation, build, install

CLEAN = ROOT / ".venv-package"
LOCK = ROOT / "requirements/package.lock"


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel of this checkout."""
    return build("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Return Holdfast alone, without any of its dependencies."""
    return install(wheel, tmp_path_factory.mktemp("bare"), beside=None)


@pytest.fixture(scope="session")
def developed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Return Holdfast beside the packages that these tests run with."""
    return install(wheel, tmp_path_factory.mktemp("developed"), beside=Path(sys.executable))


@pytest.fixture(scope="session")
def clean(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Return Holdfast beside the packages of its extra `embedded`, and one that owns the top-level name `workflows`."""
    installed = CLEAN / "installed.lock"
    if not installed.exists() or installed.read_bytes() != LOCK.read_bytes():
        pytest.skip("there is no .venv-package with requirements/package.lock: `make test-package` makes it")
    return install(wheel, tmp_path_factory.mktemp("clean"), beside=CLEAN / "bin/python")
