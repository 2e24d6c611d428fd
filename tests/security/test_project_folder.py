"""A folder that somebody gets from others decides neither whom they trust nor what code their commands run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.errors import SettingsError
from holdfast.runtime.config.project import ENV, TOML, Project, read_project
from holdfast.runtime.config.settings import variables
from holdfast.runtime.config.stack_file import Stack, read_stack, record_fault, write_stack

ROOT = Path(__file__).parents[2]
TRAP = "from pathlib import Path\nPath('ran').touch()\n"
STACK = Stack(
    temporal_address="127.0.0.1:7233",
    namespace="default",
    ui_url="http://127.0.0.1:8233",
    database_url="postgresql://postgres@/postgres?host=/run/holdfast&port=5432",
    temporal_port=7233,
    ui_port=8233,
    http_port=7243,
)


def read(folder: Path, *, runs_code: bool = True, **given: str) -> Project:
    """Read the files of a folder."""
    return read_project(given, folder=folder, default_root=folder, runs_code=runs_code)


def write(folder: Path, *, env: str = "", toml: str = "") -> None:
    """Write both files, with the permissions that they must have."""
    for name, text, mode in ((TOML, toml, 0o644), (ENV, env, 0o600)):
        (folder / name).write_text(text)
        (folder / name).chmod(mode)


def test_client_commands_run_no_code_of_the_folder(tmp_path: Path) -> None:
    """In a cloned project, no verb imports the catalog or the script that its files name; `doctor` does not, either."""
    write(tmp_path, toml='catalog = "trap:catalog"\nscript = "trap:script"\n', env="HOLDFAST_CATALOG=trap:catalog\n")
    (tmp_path / "trap.py").write_text(TRAP)
    (tmp_path / "sitecustomize.py").write_text(TRAP)
    environ = {name: text for name, text in os.environ.items() if not name.startswith(("HOLDFAST_", "PYTHON"))}
    environ["TEMPORAL_ADDRESS"] = "127.0.0.1:1"
    for words in (["list"], ["doctor"], ["start", "x"]):
        command = [sys.executable, str(ROOT / "starter.py"), *words]
        ran = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
        assert ran.returncode in (0, 1, 2, 4), ran
    assert not (tmp_path / "ran").exists()
    assert read(tmp_path, runs_code=False).code["HOLDFAST_CATALOG"] == "trap:catalog"


def test_a_folder_adds_no_code_to_another_catalog(tmp_path: Path) -> None:
    """Where the environment names the catalog, the folder's script does not run in that catalog's worker."""
    write(tmp_path, toml='catalog = "trap:catalog"\nscript = "trap:script"\n')
    found = read(tmp_path, HOLDFAST_CATALOG="mycompany.agents:catalog").environ
    assert found == {"HOLDFAST_CATALOG": "mycompany.agents:catalog"}
    write(tmp_path, env="HOLDFAST_SCRIPT=trap:script\n")
    assert "HOLDFAST_SCRIPT" not in read(tmp_path, HOLDFAST_CATALOG="mycompany.agents:catalog").environ


@pytest.mark.parametrize("toml", ['"\\u001b[2J" = 1', 'log_level = "\\u001b[2J"', '"\\u202e" = 1'])
def test_a_faulty_file_does_not_act_on_the_terminal(tmp_path: Path, toml: str) -> None:
    """An error quotes neither escape sequences nor characters that turn the direction of a text."""
    write(tmp_path, toml=toml)
    with pytest.raises(SettingsError, match="control characters") as caught:
        read(tmp_path)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "key",
    [
        *("home", "policy", "key", "by", "database_url", "openai_api_key", "openai_base_url", "fleet_keys"),
        *("encryption_keys", "plain_starts", "gateway_host", "gateway_tokens", "webhooks", "webhook_secret"),
        *("ui_url", "temporal_address", "TEMPORAL_API_KEY", "HOLDFAST_HOME", "artifacts", "takeover"),
    ],
)
def test_holdfast_toml_says_nothing_about_trust(tmp_path: Path, key: str) -> None:
    """What comes with a repository names no server, key, policy, person or folder of state."""
    write(tmp_path, toml=f'{key} = "anything"\n')
    with pytest.raises(SettingsError, match="a folder that you got from others would decide whom you trust"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("address", "secret"),
    [
        ("OPENAI_BASE_URL=https://evil/v1", "OPENAI_API_KEY"),
        ("TEMPORAL_ADDRESS=evil:7233", "TEMPORAL_API_KEY"),
        ("TEMPORAL_ADDRESS=evil:7233", "TEMPORAL_GRPC_META_AUTHORIZATION"),
        ("TEMPORAL_ADDRESS=evil:7233", "TEMPORAL_PROFILE"),
        ("DATABASE_URL=postgresql://evil/db", "PGPASSWORD"),
    ],
)
def test_no_secret_of_the_environment_goes_to_an_address_of_a_file(tmp_path: Path, address: str, secret: str) -> None:
    """An address in `.env` beside a secret in the environment is refused; the environment's own address is used."""
    write(tmp_path, env=f"{address}\n")
    given = {secret: "hunter2"}
    with pytest.raises(SettingsError, match=f"{secret} of the environment") as caught:
        read_project(given, folder=tmp_path, default_root=tmp_path, runs_code=True)
    assert "hunter2" not in str(caught.value)
    name = address.partition("=")[0]
    found = read_project({**given, name: "mine"}, folder=tmp_path, default_root=tmp_path, runs_code=True)
    assert found.environ[name] == "mine"


def test_a_file_of_temporals_is_not_read_beside_an_address_of_env(tmp_path: Path) -> None:
    """The user's configuration file of Temporal may have an API key: it does not go to an address in `.env`."""
    write(tmp_path, env="TEMPORAL_ADDRESS=evil:7233\n")
    assert read(tmp_path).environ["TEMPORAL_CONFIG_FILE"] == os.devnull


def test_env_takes_nothing_from_the_environment(tmp_path: Path) -> None:
    """`${…}` stays as it is written: otherwise, a URL could carry a secret away."""
    write(tmp_path, env="HOLDFAST_GATEWAY_URL=https://evil/${OPENAI_API_KEY}\n")
    found = read(tmp_path, OPENAI_API_KEY="hunter2").environ
    assert found[variables()["gateway_url"]] == "https://evil/${OPENAI_API_KEY}"


def test_files_of_others_and_open_files_are_refused(tmp_path: Path) -> None:
    """A file that others can write, an `.env` that others can read, a link, and a pipe: none is used."""
    write(tmp_path)
    for name, mode, said in ((TOML, 0o646, "chmod go-w"), (ENV, 0o640, "chmod 600"), (ENV, 0o604, "chmod 600")):
        write(tmp_path)
        (tmp_path / name).chmod(mode)
        with pytest.raises(SettingsError, match=said):
            read(tmp_path)
    write(tmp_path)
    (tmp_path / ENV).rename(tmp_path / "elsewhere")
    (tmp_path / ENV).symlink_to("elsewhere")
    with pytest.raises(SettingsError, match="it is a link"):
        read(tmp_path)
    (tmp_path / ENV).unlink()
    os.mkfifo(tmp_path / ENV, 0o600)
    with pytest.raises(SettingsError, match="not a regular file"):
        read(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    """In a folder such as /tmp, what another user has put there counts for nothing."""
    write(tmp_path)
    os.chown(tmp_path / TOML, 1234, -1)
    with pytest.raises(SettingsError, match="belongs to another user"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("temporal_address", "evil.example:7233", "not on this machine"),
        ("database_url", "postgresql://evil.example/db", "not on this machine"),
        ("database_url", "postgresql:///db?host=/run/x&port=1&hostaddr=10.0.0.1", "not on this machine"),
        ("ui_url", "https://evil.example", "not on this machine"),
    ],
)
def test_a_cloned_stack_file_names_no_server(tmp_path: Path, field: str, value: str, said: str) -> None:
    """A `.holdfast/stack.json` that came with a repository sends no command to a machine of its author's."""
    write_stack(tmp_path, STACK)
    assert read_stack(tmp_path) == STACK
    write_stack(tmp_path, STACK.model_copy(update={field: value}))
    assert read_stack(tmp_path) is None
    assert said in record_fault(tmp_path)


def test_a_stack_file_that_git_wrote_does_not_count(tmp_path: Path) -> None:
    """Holdfast writes private files; one that others can read, or a link, is not its own."""
    (tmp_path / "stack.json").write_text(json.dumps(STACK.model_dump()))
    (tmp_path / "stack.json").chmod(0o644)
    assert read_stack(tmp_path) is None
    assert "can be read by other users" in record_fault(tmp_path)
    (tmp_path / "stack.json").rename(tmp_path / "real.json")
    (tmp_path / "stack.json").symlink_to("real.json")
    assert read_stack(tmp_path) is None
