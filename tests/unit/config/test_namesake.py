"""The other distribution called `holdfast` is detected, and ours is not mistaken for it."""

from pathlib import Path

import pytest

from holdfast.config import namesake
from holdfast.doctor.project import namesake_check


def test_the_other_distribution_is_named_with_the_remedy(tmp_path: Path) -> None:
    """The warning names its version and folder, and says to remove both distributions."""
    (tmp_path / "holdfast-0.5.1.dist-info").mkdir()
    warning = namesake.namesake_warning(["no-such-folder", str(tmp_path)])
    assert warning is not None
    for text in ("`holdfast` 0.5.1", str(tmp_path), "pip uninstall holdfast holdfast-agents"):
        assert text in warning


def test_our_own_distribution_is_not_the_other_one(tmp_path: Path) -> None:
    """Our distribution, and others whose names begin alike, cause no warning."""
    for name in ("holdfast_agents-0.2.0.dist-info", "holdfaster-1.0.dist-info", "holdfast", "holdfast-notes.txt"):
        (tmp_path / name).mkdir()
    assert namesake.namesake_warning([str(tmp_path)]) is None


def test_programs_and_doctor_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the other distribution is installed, a program that imports `holdfast` gets a warning, and `doctor` a line."""
    assert namesake_check() is None
    (tmp_path / "holdfast-0.5.1.dist-info").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.warns(RuntimeWarning, match=r"`holdfast` 0\.5\.1"):
        namesake.warn_of_namesake()
    check = namesake_check()
    assert check is not None
    assert (check.name, check.status) == ("installation", "missing")
