"""Collectors of telemetry: nobody but the operator decides where secrets and runs are sent."""

from pathlib import Path

import pytest

from holdfast.config.project import read_project
from holdfast.config.settings import Settings
from holdfast.errors import SettingsError


def project(folder: Path, env: str, environ: dict[str, str]) -> None:
    """Read a folder that somebody else has made, with this `.env`."""
    (folder / "holdfast.toml").write_text("")
    (folder / ".env").write_text(env)
    (folder / ".env").chmod(0o600)
    read_project(environ, folder=folder, default_root=folder, runs_code=False)


@pytest.mark.parametrize(
    ("env", "environ"),
    [
        (
            "HOLDFAST_TRACES_ENDPOINT=https://elsewhere\nHOLDFAST_TELEMETRY_HEADERS=X-Key=OPENAI_API_KEY",
            {"OPENAI_API_KEY": "sk-own"},
        ),
        (
            "HOLDFAST_TELEMETRY_HEADERS=X-Key=MINE\nMINE=theirs",
            {"MINE": "own", "HOLDFAST_TRACES_ENDPOINT": "https://own"},
        ),
        (
            "HOLDFAST_TRACES_ENDPOINT=https://elsewhere",
            {"HOLDFAST_TELEMETRY_HEADERS": "Authorization=TOKEN", "TOKEN": "own"},
        ),
    ],
)
def test_a_folder_does_not_send_secrets_of_the_environment_to_a_collector(
    tmp_path: Path, env: str, environ: dict[str, str]
) -> None:
    """A cloned folder can neither name a variable of the environment as a header, nor redirect the headers of one."""
    with pytest.raises(SettingsError, match="must not decide where your secrets are sent"):
        project(tmp_path, env, environ)


@pytest.mark.parametrize(
    ("headers", "token", "why"),
    [
        ("Authorization=COLLECTOR_TOKEN", "", "is not set"),
        ("Authorization=COLLECTOR_TOKEN", "a\nX-Evil: b", "characters that a header cannot have"),
        ("Authorization: COLLECTOR_TOKEN", "secret-value", "write NAME=VARIABLE"),
        ("Authorization=secret-value", "", "write NAME=VARIABLE"),
    ],
)
def test_headers_name_variables_and_errors_show_no_value(tmp_path: Path, headers: str, token: str, why: str) -> None:
    """A header's value is that of a variable; a value that was pasted in its place appears in no message."""
    environ = {"HOLDFAST_TELEMETRY_HEADERS": headers, "COLLECTOR_TOKEN": token}
    with pytest.raises(SettingsError, match=why) as error:
        Settings.from_env(environ, root=tmp_path)
    assert "secret-value" not in str(error.value)
    assert "Evil" not in str(error.value)


def test_headers_are_not_sent_to_other_machines_in_plain_text(tmp_path: Path) -> None:
    """A token goes over https, or stays on this machine."""
    environ = {"HOLDFAST_TELEMETRY_HEADERS": "Authorization=TOKEN", "TOKEN": "secret-value"}
    for endpoint in ("https://collector:4318", "http://127.0.0.1:4318", "http://localhost:4318/v1/traces"):
        settings = Settings.from_env({**environ, "HOLDFAST_TRACES_ENDPOINT": endpoint}, root=tmp_path)
        assert str(settings.traces_endpoint).endswith("4318/v1/traces")
        assert "secret-value" not in repr(settings)
    with pytest.raises(SettingsError, match="in plain text"):
        Settings.from_env({**environ, "HOLDFAST_TRACES_ENDPOINT": "http://collector:4318"}, root=tmp_path)


@pytest.mark.parametrize(
    "endpoint", ["collector:4318", "file:///etc/passwd", "https://me:secret-value@collector", "http://"]
)
def test_an_endpoint_is_an_address_without_secrets(tmp_path: Path, endpoint: str) -> None:
    """Only an address of a collector is accepted."""
    with pytest.raises(SettingsError, match="HOLDFAST_TRACES_ENDPOINT"):
        Settings.from_env({"HOLDFAST_TRACES_ENDPOINT": endpoint}, root=tmp_path)
