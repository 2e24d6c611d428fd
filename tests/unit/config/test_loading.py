"""An object is loaded by `package.module:attribute`; otherwise an error says exactly what is wrong."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.config.loading import load
from holdfast.errors import LoadError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Start in an empty folder, and afterwards unload the modules imported from it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def message(reference: str, kind: type[object] = dict) -> str:
    """Return the text of the error that loading raises."""
    with pytest.raises(LoadError) as caught:
        load(reference, kind)
    return str(caught.value)


def test_an_object_is_found_in_the_current_directory(folder: Path) -> None:
    """A user's package needs no installation: the folder the worker starts in is searched."""
    (folder / "acme").mkdir()
    (folder / "acme" / "agents.py").write_text("catalog = {'a': 1}\n")

    assert load("acme.agents:catalog", dict) == {"a": 1}


def test_the_current_directory_is_searched_last(folder: Path) -> None:
    """A user's file with the name of an installed module does not hide that module."""
    (folder / "colorsys.py").write_text("rgb_to_hsv = {}\n")

    assert not isinstance(load("colorsys:rgb_to_hsv", object), dict)
    assert str(folder) == sys.path[-1]


def test_an_installed_module_of_the_same_name_is_named(folder: Path) -> None:
    """The error names the installed module that was imported in place of the user's `colorsys.py`."""
    (folder / "colorsys.py").write_text("catalog = {}\n")

    assert f"is installed, and precedes the one in {folder}" in message("colorsys:catalog")
    assert "is installed" not in message("json:catalog")


@pytest.mark.parametrize("reference", ["", "acme", "acme.agents", ":catalog", "acme:", "acme:a b", "acme:a.b"])
def test_a_reference_needs_a_module_and_a_name(reference: str) -> None:
    """Any other form than `module:attribute` is rejected, with the expected form."""
    assert "package.module:attribute" in message(reference)


def test_a_missing_module_is_named(folder: Path) -> None:
    """The error names the part of the path that does not exist."""
    (folder / "acme").mkdir()
    (folder / "acme" / "__init__.py").touch()

    assert "no module 'nowhere'" in message("nowhere.agents:catalog")
    assert "no module 'acme.agents'" in message("acme.agents:catalog")


def test_a_failing_import_inside_the_module_is_distinguished(folder: Path) -> None:
    """If the module exists but imports a missing one, the error names the failing import's location."""
    (folder / "agents.py").write_text("import json\nimport tools_of_mine\n")
    (folder / "outer.py").write_text("\n\nimport agents\n")

    for reference in ("agents:catalog", "outer:catalog"):
        text = message(reference)
        assert "No module named 'tools_of_mine'" in text
        assert f"{folder / 'agents.py'}, line 2" in text


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("from json import nothing\n", "ImportError"),
        ("x = 1 / 0\n", "ZeroDivisionError: division by zero"),
        ("x = (\n", "SyntaxError"),
        ("import sys; sys.exit(3)\n", "SystemExit: 3"),
    ],
)
def test_a_module_that_fails_is_reported_with_file_and_line(folder: Path, source: str, words: str) -> None:
    """Any exception of a module during its import becomes one error with its source location."""
    (folder / "agents.py").write_text(source)

    text = message("agents:catalog")

    assert words in text
    assert f"{folder / 'agents.py'}, line 1" in text


def test_a_missing_attribute_error_lists_possible_names(folder: Path) -> None:
    """Names of the right type come first; without any, all public names are listed."""
    (folder / "agents.py").write_text("import json\ncatalogue = {}\nother = 1\n_hidden = {}\n")

    assert "these of type dict: catalogue." in message("agents:catalog")
    assert "Its names are: catalogue, other." in message("agents:catalog", list)


def test_an_object_of_another_type_is_rejected(folder: Path) -> None:
    """The error gives the object's type and the expected one."""
    (folder / "agents.py").write_text("catalog = [1]\n")

    assert "'agents:catalog' is a list, not a dict." in message("agents:catalog")


def test_an_error_of_a_library_is_placed_in_the_users_file(folder: Path) -> None:
    """An error from misusing a library, ours included, names the user's line, without pydantic's values or links."""
    (folder / "rules.py").write_text("from holdfast import ask\n\nrule = ask('pay', when='arg.x > 1')\n")
    (folder / "tools.py").write_text("from holdfast import tool\n\n@tool(effect='raed')\ndef pay() -> None: ...\n")
    (folder / "data.py").write_text("import json\ncatalog = json.loads('{')\n")

    rules = message("rules:catalog")
    assert f"failed at {folder / 'rules.py'}, line 3: ValidationError: Rule: when: there is no variable 'arg'" in rules
    assert "https://" not in rules
    assert "input_value" not in rules
    assert f"failed at {folder / 'tools.py'}, line 3: ToolSignatureError" in message("tools:catalog")
    assert f"failed at {folder / 'data.py'}, line 2: JSONDecodeError" in message("data:catalog")
