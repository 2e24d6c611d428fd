"""Settings come from variables, and an invalid value is reported before anything starts."""

from pathlib import Path

import pytest

from holdfast.config.settings import Settings
from holdfast.errors import SettingsError

ROOT = Path("/srv/holdfast")


def test_an_empty_environment_gives_the_defaults() -> None:
    """Every setting has a default, and the scripted LLM is used."""
    settings = Settings.from_env({}, root=ROOT)

    assert settings.home == ROOT / ".holdfast"
    assert settings.catalog == "holdfast.examples.release.catalog:catalog"
    assert settings.script is None
    assert settings.task_queue == "holdfast"
    assert settings.database_url is None
    assert settings.scripted
    assert (settings.log_level, settings.log_format) == ("INFO", "console")


def test_each_variable_sets_its_field() -> None:
    """Every field can be set by the variable that its documentation names."""
    settings = Settings.from_env(
        {
            "HOLDFAST_HOME": "/var/lib/holdfast",
            "HOLDFAST_CATALOG": "mycompany.agents:catalog",
            "HOLDFAST_POLICY": "/etc/holdfast/policy.yaml",
            "HOLDFAST_KEY": "/home/alice/alice.key",
            "HOLDFAST_BY": "alice",
            "HOLDFAST_SCRIPT": "mycompany.script:script",
            "HOLDFAST_LLM": "large",
            "HOLDFAST_TASK_QUEUE": "agents",
            "DATABASE_URL": "postgresql://db/holdfast",
            "OPENAI_API_KEY": "sk-1",
            "OPENAI_BASE_URL": "http://localhost:8000/v1",
            "HOLDFAST_ENCRYPTION_KEYS": f"k1:{'A' * 43}=",
            "HOLDFAST_LOG_LEVEL": "debug",
            "HOLDFAST_LOG_FORMAT": "JSON",
        },
        root=ROOT,
    )

    assert Path("/var/lib/holdfast") == settings.home
    assert settings.catalog == "mycompany.agents:catalog"
    assert settings.policy == Path("/etc/holdfast/policy.yaml")
    assert (settings.key, settings.by) == (Path("/home/alice/alice.key"), "alice")
    assert settings.script == "mycompany.script:script"
    assert settings.llm == "large"
    assert settings.task_queue == "agents"
    assert settings.database_url == "postgresql://db/holdfast"
    assert settings.openai_api_key is not None
    assert settings.openai_api_key.get_secret_value() == "sk-1"
    assert settings.openai_base_url == "http://localhost:8000/v1"
    assert settings.encryption_keys is not None
    assert (settings.log_level, settings.log_format) == ("DEBUG", "json")
    assert not settings.scripted


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "DATABASE_URL", "HOLDFAST_CATALOG", "HOLDFAST_HOME"])
@pytest.mark.parametrize("blank", ["", "  "])
def test_a_blank_variable_counts_as_absent(name: str, blank: str) -> None:
    """Compose files pass unset variables as empty strings."""
    assert Settings.from_env({}, root=ROOT) == Settings.from_env({name: blank}, root=ROOT)


@pytest.mark.parametrize("variable", ["OPENAI_API_KEY", "OPENAI_BASE_URL"])
def test_a_key_or_an_endpoint_replaces_the_scripted_llm(variable: str) -> None:
    """A local endpoint often needs no key, so either of the two selects a real LLM."""
    assert not Settings.from_env({variable: "http://localhost/v1"}, root=ROOT).scripted


def test_a_home_is_absolute_and_may_begin_with_a_tilde(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The state folder stays the same after a change of directory."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    assert tmp_path / "state" == Settings.from_env({"HOLDFAST_HOME": "~/state"}, root=ROOT).home
    assert tmp_path / "state" == Settings.from_env({"HOLDFAST_HOME": "state"}, root=ROOT).home


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("HOLDFAST_CATALOG", "mycompany.agents", "package.module:attribute"),
        ("HOLDFAST_SCRIPT", ":script", "package.module:attribute"),
        ("HOLDFAST_LOG_LEVEL", "loud", "'INFO'"),
        ("HOLDFAST_LOG_FORMAT", "xml", "'console' or 'json'"),
        ("DATABASE_URL", "mysql://db/holdfast", "postgresql://"),
        ("OPENAI_BASE_URL", "localhost:8000", "https://"),
    ],
)
def test_a_bad_value_is_rejected_by_the_name_of_its_variable(variable: str, value: str, words: str) -> None:
    """The error names the variable and a valid value."""
    with pytest.raises(SettingsError) as caught:
        Settings.from_env({variable: value}, root=ROOT)

    assert variable in str(caught.value)
    assert words in str(caught.value)


def test_all_bad_values_are_reported_at_once() -> None:
    """One error lists them all."""
    with pytest.raises(SettingsError, match=r"HOLDFAST_CATALOG=x (.|\n)*HOLDFAST_LOG_FORMAT=y "):
        Settings.from_env({"HOLDFAST_CATALOG": "x", "HOLDFAST_LOG_FORMAT": "y"}, root=ROOT)


def test_secrets_are_not_shown() -> None:
    """Neither `repr` nor an error nor its cause shows a key or a database password."""
    settings = Settings.from_env(
        {"DATABASE_URL": "postgres://u:hunter2@db/x", "OPENAI_API_KEY": "sk-hunter2"}, root=ROOT
    )
    with pytest.raises(SettingsError) as caught:
        Settings.from_env({"DATABASE_URL": "mysql://u:hunter2@db/x"}, root=ROOT)

    assert "hunter2" not in repr(settings)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
