"""Settings from `holdfast.toml` and `.env` in the current folder."""

import os
from pathlib import Path

import pytest

from holdfast.config.project import ENV, IN_TOML, TOML, Project, read_project
from holdfast.config.settings import Settings, variables
from holdfast.errors import SettingsError

ELSEWHERE = Path("/srv/holdfast")


def project(
    folder: Path, *, toml: str | None = "", env: str | None = None, environ: dict[str, str] | None = None
) -> Project:
    """Write the files, and read them as a worker does."""
    for name, text, mode in ((TOML, toml, 0o644), (ENV, env, 0o600)):
        if text is not None:
            (folder / name).write_text(text)
            (folder / name).chmod(mode)
    return read_project(environ or {}, folder=folder, default_root=ELSEWHERE, runs_code=True)


def test_flags_and_environment_win_over_env_and_env_over_toml(tmp_path: Path) -> None:
    """The first source with a value wins; blank variables do not count."""
    loaded = project(
        tmp_path,
        toml='llm = "toml"\ntask_queue = "toml"\nlog_level = "error"\nlog_format = "json"\n',
        env='HOLDFAST_LLM=env\nexport HOLDFAST_TASK_QUEUE="env"\nOPENAI_API_KEY=sk-1 # comment\n',
        environ={"HOLDFAST_LLM": "given", "HOLDFAST_LOG_LEVEL": " "},
    )
    settings = Settings.from_env(loaded.environ, root=loaded.root)
    assert (settings.llm, settings.task_queue, settings.log_level, settings.log_format) == (
        *("given", "env", "ERROR"),
        "json",
    )
    assert settings.openai_api_key is not None
    assert settings.openai_api_key.get_secret_value() == "sk-1"
    assert settings.home == tmp_path / ".holdfast"
    assert loaded.listing() == [
        f"{tmp_path / TOML} (HOLDFAST_LOG_LEVEL, HOLDFAST_LOG_FORMAT)",
        f"{tmp_path / ENV} (HOLDFAST_TASK_QUEUE, OPENAI_API_KEY)",
    ]


def test_a_folder_without_holdfast_toml_is_no_project(tmp_path: Path) -> None:
    """The `.env` of another program and the `holdfast.toml` of a parent folder are ignored."""
    (tmp_path / "inner").mkdir()
    (tmp_path / TOML).write_text('llm = "parent"\n')
    loaded = project(tmp_path / "inner", toml=None, env="DATABASE_URL=postgres://app@db/app\n")
    assert loaded == Project({}, ELSEWHERE, {})


def test_a_file_that_chooses_servers_is_named(tmp_path: Path) -> None:
    """Clients print the file that chooses the server; an environment variable is the user's own choice."""
    env = "TEMPORAL_ADDRESS=here:7233\nHOLDFAST_HOME=state\nHOLDFAST_BY=ann\n"
    assert project(tmp_path, env=env).redirects == [f"{tmp_path / ENV} sets HOLDFAST_HOME, TEMPORAL_ADDRESS"]
    assert project(tmp_path, env=env, environ={"TEMPORAL_ADDRESS": "x:1", "HOLDFAST_HOME": "y"}).redirects == []


def test_tools_secrets_may_be_in_env_but_not_in_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other names in `.env` are the secrets that tools declare; no child process gets them."""
    monkeypatch.delenv("STRIPE_API_KEY", raising=False)
    assert project(tmp_path, env="STRIPE_API_KEY=sk-live\n").environ["STRIPE_API_KEY"] == "sk-live"
    with pytest.raises(KeyError):
        os.environ["STRIPE_API_KEY"]


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ('catalogue = "a:b"', "no setting catalogue. Did you mean catalog?"),
        ('HOLDFAST_CATALOG = "a:b"', "write catalog instead of HOLDFAST_CATALOG"),
        ("llm = true", "llm must be a text or a number"),
        ("[worker]\nllm = 'x'", "no setting worker."),
        ("llm", "is not valid TOML"),
    ],
)
def test_a_faulty_toml_is_rejected_by_name(tmp_path: Path, toml: str, said: str) -> None:
    """The error names the file, the key, and the nearest known one."""
    with pytest.raises(SettingsError) as caught:
        project(tmp_path, toml=toml)
    assert str(caught.value).startswith(str(tmp_path / TOML))
    assert said in str(caught.value)


def test_a_misspelt_variable_in_env_is_rejected(tmp_path: Path) -> None:
    """One of our names that is no setting is a mistake; the error names the nearest setting."""
    with pytest.raises(SettingsError, match=r"no setting HOLDFAST_FLEET_KEY. Did you mean HOLDFAST_FLEET_KEYS"):
        project(tmp_path, env="HOLDFAST_FLEET_KEY=k1:x\n")


def test_every_setting_is_either_for_toml_or_for_the_environment() -> None:
    """`holdfast.toml` accepts any setting except those that say whom to trust."""
    trust = {
        "home",
        "policy",
        "key",
        "by",
        "database_url",
        "openai_api_key",
        "openai_base_url",
        "fleet_keys",
        "plain_starts",
    }
    assert set(IN_TOML) < variables().keys() - trust


def test_a_line_of_env_that_sets_nothing_is_rejected(tmp_path: Path) -> None:
    """A key behind an open quote is rejected, or the worker would run on the script. The text is not shown."""
    with pytest.raises(SettingsError) as caught:
        project(tmp_path, env='HOLDFAST_LLM=large\nOPENAI_API_KEY="sk-1\nfoo bar\n')
    assert f"{tmp_path / ENV}, line 2, 3: write NAME=value there" in str(caught.value)
    assert "sk-1" not in str(caught.value)


def test_an_invalid_setting_names_its_file(tmp_path: Path) -> None:
    """The author of a file looks for an invalid value there, not in the environment."""
    loaded = project(tmp_path, toml='catalog = "agents.catalog"\n', environ={"HOLDFAST_LOG_LEVEL": "loud"})
    with pytest.raises(SettingsError) as caught:
        Settings.from_env(loaded.environ, root=loaded.root, files=loaded.files)
    assert f"HOLDFAST_CATALOG=agents.catalog, set in {tmp_path / TOML}, is not valid" in str(caught.value)
    assert "HOLDFAST_LOG_LEVEL=loud is not valid" in str(caught.value)
    assert "Correct the file or the variable" in str(caught.value)
