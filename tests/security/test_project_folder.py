"""A project folder from others decides neither whom its user trusts nor which code the user's commands run."""

import json
import os
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from holdfast.cli.redirects import is_new
from holdfast.config.project import ENV, TOML, Project, read_project
from holdfast.config.settings import variables
from holdfast.config.stack_file import Stack, read_stack, record_fault, write_stack
from holdfast.errors import SettingsError
from tests.support import forked

ROOT = Path(__file__).parents[2]
FOREIGN = ("HOLDFAST_", "TEMPORAL_", "OPENAI_", "DATABASE_URL", "XDG_")
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


def read(folder: Path, *, runs_code: bool = True, **environ: str) -> Project:
    """Read the files of a folder."""
    return read_project(environ, folder=folder, default_root=folder, runs_code=runs_code)


def write(folder: Path, *, env: str = "", toml: str = "") -> None:
    """Write both files, with the permissions that they must have."""
    for name, text, mode in ((TOML, toml, 0o644), (ENV, env, 0o600)):
        (folder / name).write_text(text)
        (folder / name).chmod(mode)


def test_client_commands_run_no_code_of_the_folder(tmp_path: Path) -> None:
    """In a cloned project, neither `doctor` nor any other verb imports the catalog or script that its files name."""
    write(tmp_path, toml='catalog = "trap:catalog"\nscript = "trap:script"\n', env="HOLDFAST_CATALOG=trap:catalog\n")
    (tmp_path / "trap.py").write_text(TRAP)
    (tmp_path / "sitecustomize.py").write_text(TRAP)
    environ = {name: text for name, text in os.environ.items() if not name.startswith(("HOLDFAST_", "PYTHON"))}
    environ["TEMPORAL_ADDRESS"] = "127.0.0.1:1"
    (tmp_path / "runs").mkdir()
    command = [sys.executable, str(ROOT / "starter.py"), "doctor"]
    ran = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert ran.returncode in (0, 1, 2, 4), ran
    for words in (["list"], ["start", "x"], ["eval", "runs", "--llm", "recorded"], ["replay", "--all"]):
        ended = forked.run("starter", words, environ=environ, folder=tmp_path)
        assert ended.code in (0, 1, 2, 4), ended
    assert not (tmp_path / "ran").exists()
    assert read(tmp_path, runs_code=False).code["HOLDFAST_CATALOG"] == "trap:catalog"


def test_eval_runs_only_a_catalog_named_by_the_user(tmp_path: Path) -> None:
    """A catalog that only the folder's files name is not imported; the error prints the option to copy."""
    write(tmp_path, toml='catalog = "trap:catalog"\n')
    (tmp_path / "trap.py").write_text(TRAP)
    (tmp_path / "run.toml").write_text("[[run]]\nfile = 'x.holdfast'\n")
    (tmp_path / "x.holdfast").touch()
    environ = {name: text for name, text in os.environ.items() if not name.startswith(("HOLDFAST_", "PYTHON"))}

    def evaluate(*words: str) -> str:
        command = ["eval", "run.toml", "--llm", "recorded", *words]
        return forked.run("starter", command, environ=environ, folder=tmp_path).err.decode()

    assert "--catalog trap:catalog" in evaluate()
    assert not (tmp_path / "ran").exists()
    assert "has no attribute 'catalog'" in evaluate("--catalog", "trap:catalog")
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "flags",
    [
        ["-m", "holdfast"],
        ["-Wdefault", "-Bm", "holdfast"],
        pytest.param(["-mholdfast"], marks=pytest.mark.extended),
    ],
)
def test_python_m_takes_no_module_from_the_current_folder(tmp_path: Path, flags: list[str]) -> None:
    """`python -m` puts that folder first, but files there with the names of modules that we import do not run."""
    for name in ("typing", "typer", "psutil", "rich", "temporalio", "pydantic", "openai", "ssl", "dotenv"):
        (tmp_path / f"{name}.py").write_text(TRAP)
    environ = {name: text for name, text in os.environ.items() if not name.startswith(("HOLDFAST_", "PYTHON"))}
    environ |= {"PYTHONPATH": str(ROOT), "TEMPORAL_ADDRESS": "127.0.0.1:1"}
    ran = subprocess.run(
        [sys.executable, *flags, "list"], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, (tmp_path / "ran").exists()) == (4, False), ran.stderr


def test_a_program_that_imports_holdfast_keeps_its_folder(tmp_path: Path) -> None:
    """`python -m mine` finds the modules beside it: only our own programs skip the folder."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/__init__.py").write_text("import holdfast\n")
    (tmp_path / "mine/__main__.py").write_text("import beside\nprint(beside.VALUE)\n")
    (tmp_path / "beside.py").write_text("VALUE = 'found'\n")
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "mine", "-m", "holdfast"]
    ran = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert ran.stdout == "found\n", ran.stderr


def test_a_folder_adds_no_code_to_another_catalog(tmp_path: Path) -> None:
    """If the environment names the catalog, the folder's script does not run in that catalog's worker."""
    write(tmp_path, toml='catalog = "trap:catalog"\nscript = "trap:script"\n')
    environ = read(tmp_path, HOLDFAST_CATALOG="mycompany.agents:catalog").environ
    assert environ == {"HOLDFAST_CATALOG": "mycompany.agents:catalog"}
    write(tmp_path, env="HOLDFAST_SCRIPT=trap:script\n")
    assert "HOLDFAST_SCRIPT" not in read(tmp_path, HOLDFAST_CATALOG="mycompany.agents:catalog").environ


@pytest.mark.parametrize("toml", ['"\\u001b[2J" = 1', 'log_level = "\\u001b[2J"', '"\\u202e" = 1'])
def test_a_faulty_file_does_not_act_on_the_terminal(tmp_path: Path, toml: str) -> None:
    """An error quotes neither escape sequences nor bidirectional controls."""
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
def test_holdfast_toml_does_not_affect_trust(tmp_path: Path, key: str) -> None:
    """A file from a repository names no server, key, policy, person or state folder."""
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
        ("TEMPORAL_ADDRESS=evil:7233", "TEMPORAL_TLS_CLIENT_KEY_PATH"),
        ("TEMPORAL_ADDRESS=evil:7233", "TEMPORAL_TLS_CLIENT_KEY_DATA"),
        ("TEMPORAL_ADDRESS=evil:7233", "HOLDFAST_FLEET_KEYS"),
        ("OPENAI_BASE_URL=https://evil/v1", "OPENAI_ADMIN_KEY"),
        ("DATABASE_URL=postgresql://evil/db", "PGPASSWORD"),
        ("DATABASE_URL=postgresql://evil/db", "PGSERVICE"),
        ("HOLDFAST_WEBHOOKS=https://evil/hook", "HOLDFAST_WEBHOOK_SECRET"),
    ],
)
def test_no_secret_of_the_environment_is_sent_to_an_address_of_a_file(
    tmp_path: Path, address: str, secret: str
) -> None:
    """An address in `.env` beside a secret in the environment is rejected; the environment's own address is used."""
    write(tmp_path, env=f"{address}\n")
    environ = {secret: "hunter2"}
    with pytest.raises(SettingsError, match=f"{secret} of the environment") as caught:
        read_project(environ, folder=tmp_path, default_root=tmp_path, runs_code=True)
    assert "hunter2" not in str(caught.value)
    name = address.partition("=")[0]
    project = read_project({**environ, name: "mine"}, folder=tmp_path, default_root=tmp_path, runs_code=True)
    assert project.environ[name] == "mine"


@pytest.mark.parametrize(
    "more",
    [
        *(
            "hostaddr=10.0.0.1",
            "passfile=/home/ann/.pgpass",
            "service=prod",
            "servicefile=/x",
            "options=-csearch_path=x",
        ),
        *(
            "sslkey=/x",
            "sslcert=/x",
            "sslrootcert=/x",
            "sslcrl=/x",
            "sslpassword=x",
            "sslmode=disable",
            "sslmode=prefer",
        ),
        *("krbsrvname=x", "gsslib=x", "target_session_attrs=any", "load_balance_hosts=random", "require_auth=none"),
        *("application_name=x#&hostaddr=10.0.0.1", "host=/tmp/evil", "host=a,b", "port=1,2", "%68ostaddr=10.0.0.1"),
        *(
            "keepalives=1&passfile=/x",
            "sslmode=disable",
            "sslmode=require&sslmode=disable",
            "nonsense=1",
            "host=%40abstract",
        ),
    ],
)
def test_a_folders_database_url_uses_none_of_the_users_settings(tmp_path: Path, more: str) -> None:
    """A host, address or file that libpq would combine with the user's passwords is rejected; the URL stays hidden."""
    write(tmp_path, env=f"DATABASE_URL=postgresql://app:hunter2@db.example/app?{more}\n")
    with pytest.raises(SettingsError, match="DATABASE_URL") as caught:
        read(tmp_path)
    assert "hunter2" not in str(caught.value)
    assert read(tmp_path, DATABASE_URL="postgresql://mine/db").environ["DATABASE_URL"] == "postgresql://mine/db"


@pytest.mark.parametrize("host", ["a,b", "%2Ftmp%2Fevil", "%40abstract", "a:1,b:2"])
def test_a_folders_database_is_one_host(tmp_path: Path, host: str) -> None:
    """Neither a list of hosts nor a socket folder is accepted, not even as a host name."""
    write(tmp_path, env=f"DATABASE_URL=postgresql://app@{host}/app\n")
    with pytest.raises(SettingsError, match="one host and no folder of a socket"):
        read(tmp_path)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://app:own@db.example:5433/app?sslmode=verify-full&sslrootcert=system&connect_timeout=3",
        "postgres://app@db.example/app",
        "postgresql:///app",
    ],
)
def test_a_folders_database_has_only_its_own_password(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a folder's URL, the installed libpq finds neither `~/.pgpass` nor a client certificate."""
    (tmp_path / "home/.postgresql").mkdir(parents=True)
    (tmp_path / "home/.pgpass").write_text("*:*:*:*:hunter2\n")
    (tmp_path / "home/.pgpass").chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    write(tmp_path, env=f"DATABASE_URL={url}\n")
    parameters = conninfo_to_dict(read(tmp_path).environ["DATABASE_URL"])
    assert not Path(str(parameters["passfile"])).exists()
    assert not Path(str(parameters["sslcert"])).exists()
    assert parameters["gssencmode"] == "disable"
    assert {name: parameters[name] for name in conninfo_to_dict(url)} == conninfo_to_dict(url)


def sent_to(port: int, url: str) -> bytes:
    """Return what libpq sends to a server that asks for the password."""
    got = b""
    with socket.create_server(("127.0.0.1", port)) as server:

        def serve() -> None:
            nonlocal got
            connection, _ = server.accept()
            with connection:
                connection.recv(8)  # SSLRequest
                connection.sendall(b"N")
                connection.recv(1_000)
                connection.sendall(b"R" + struct.pack("!ii", 8, 3))  # AuthenticationCleartextPassword
                got = connection.recv(1_000)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(url.format(port=server.getsockname()[1]), connect_timeout=30)
        thread.join(60)
    return got


def test_the_password_file_stays_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server named by a folder asks for the password and gets none; an unprotected URL would send it."""
    (tmp_path / "pgpass").write_text("*:*:*:*:hunter2\n")
    (tmp_path / "pgpass").chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "pgpass"))
    url = "postgresql://app@127.0.0.1:{port}/app"
    assert b"hunter2" in sent_to(0, url)
    write(tmp_path, env=f"DATABASE_URL={url.format(port=1)}\n")
    own = read(tmp_path).environ["DATABASE_URL"].replace(":1/", ":{port}/")
    assert b"hunter2" not in sent_to(0, own)


@pytest.mark.parametrize("name", ["TEMPORAL_TLS", "TEMPORAL_TLS_SERVER_CA_CERT_PATH", "TEMPORAL_TLS_SERVER_NAME"])
def test_a_folder_does_not_weaken_the_connection_to_the_users_server(tmp_path: Path, name: str) -> None:
    """Settings on how to trust a server count only beside its address, in the same file."""
    write(tmp_path, env=f"{name}=false\n")
    with pytest.raises(SettingsError, match=f"{name}, and not the TEMPORAL_ADDRESS"):
        read(tmp_path, TEMPORAL_ADDRESS="mine:7233")
    with pytest.raises(SettingsError, match=f"{name}, and not the TEMPORAL_ADDRESS"):
        read(tmp_path)
    write(tmp_path, env=f"TEMPORAL_ADDRESS=theirs:7233\n{name}=false\n")
    assert read(tmp_path).environ[name] == "false"


def test_proxies_and_certificates_of_a_folder_have_no_effect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are at most secrets for tools: the process's environment, which HTTP clients read, does not change."""
    names = ("HTTPS_PROXY", "ALL_PROXY", "SSL_CERT_FILE", "PYTHONPATH", "PGHOSTADDR", "GIT_SSH_COMMAND")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    write(tmp_path, env="".join(f"{name}=evil\n" for name in names))
    read(tmp_path)
    assert not [name for name in names if name in os.environ]


def test_temporals_config_file_is_not_read_beside_an_address_of_env(tmp_path: Path) -> None:
    """The user's Temporal configuration may have an API key, which must not be sent to an address in `.env`."""
    write(tmp_path, env="TEMPORAL_ADDRESS=evil:7233\n")
    assert read(tmp_path).environ["TEMPORAL_CONFIG_FILE"] == os.devnull


def test_env_takes_nothing_from_the_environment(tmp_path: Path) -> None:
    """`${…}` is not expanded: otherwise, a URL could leak a secret."""
    write(tmp_path, env="HOLDFAST_GATEWAY_URL=https://evil/${OPENAI_API_KEY}\n")
    environ = read(tmp_path, OPENAI_API_KEY="hunter2").environ
    assert environ[variables()["gateway_url"]] == "https://evil/${OPENAI_API_KEY}"


def test_files_that_others_can_access_are_rejected(tmp_path: Path) -> None:
    """A file that others can write, an `.env` that others can read, a link, and a pipe are not used."""
    write(tmp_path)
    for name, mode, advice in ((TOML, 0o646, "chmod go-w"), (ENV, 0o640, "chmod 600"), (ENV, 0o604, "chmod 600")):
        write(tmp_path)
        (tmp_path / name).chmod(mode)
        with pytest.raises(SettingsError, match=advice):
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
def test_a_file_of_another_user_is_rejected(tmp_path: Path) -> None:
    """Another user's file in a shared folder such as /tmp does not count."""
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
        ("database_url", "postgresql:///db?port=1&host=/run/x#&hostaddr=10.0.0.1", "not on this machine"),
        ("database_url", "postgresql:///db?host=/run/x&port=1&host=evil.example", "not on this machine"),
        ("fleet_keys", "/home/somebody/.holdfast/fleet.keys", "it is the record of /home/somebody/.holdfast"),
        ("ui_url", "https://evil.example", "not on this machine"),
    ],
)
def test_a_cloned_stack_file_names_no_server(tmp_path: Path, field: str, value: str, said: str) -> None:
    """A `.holdfast/stack.json` from a repository sends no command to its author's machine."""
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


def commands(folder: Path, *words: str, home: Path | None) -> tuple[int, bool]:
    """Run a command in a folder; return its exit code, and whether it reported where the folder sends it."""
    environ = {name: text for name, text in os.environ.items() if not name.startswith(FOREIGN)}
    environ |= {"HOME": str(home) if home else "/nonexistent"}
    command = [sys.executable, str(ROOT / "starter.py"), *words]
    ran = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=120)
    return ran.returncode, f"{folder / ENV} sets TEMPORAL_ADDRESS\n" in ran.stderr


@pytest.mark.extended
def test_a_folders_redirect_is_reported_once_and_after_each_change(tmp_path: Path, stack: Stack) -> None:
    """It is reported once per folder and content, at every failing command, and always if that cannot be stored."""
    user = tmp_path / "user"
    user.mkdir()
    folder, other = tmp_path / "project", tmp_path / "other"
    for each in (folder, other):
        each.mkdir()
        write(each, env=f"TEMPORAL_ADDRESS={stack.temporal_address}\n")
        assert [commands(each, "list", home=user) for _ in range(2)] == [(0, True), (0, False)]
    assert commands(folder, "show", "nothing", home=user) == (3, True)
    assert commands(folder, "list", home=None) == (0, True)
    host, _, port = stack.temporal_address.rpartition(":")
    write(folder, env=f"TEMPORAL_ADDRESS={'localhost' if host == '127.0.0.1' else '127.0.0.1'}:{port}\n")
    assert [commands(folder, "list", home=user) for _ in range(2)] == [(0, True), (0, False)]


def test_a_folder_cannot_suppress_the_report_of_its_redirect(tmp_path: Path) -> None:
    """Neither a home inside the folder, a link nor a file that others can read suppresses the report."""
    write(tmp_path, env="TEMPORAL_ADDRESS=127.0.0.1:1\nXDG_STATE_HOME=.\n")
    project = read(tmp_path)
    assert [is_new(project, {"HOME": str(tmp_path)}) for _ in range(2)] == [True, True]
    assert [is_new(project, given) for given in ({}, {"HOME": ""}, {"XDG_STATE_HOME": "."})] == [True] * 3
    user = tmp_path.parent / f"{tmp_path.name}-user"
    user.mkdir()
    assert [is_new(project, {"HOME": str(user)}) for _ in range(2)] == [True, False]
    (kept,) = (user / ".local/state/holdfast/redirects").iterdir()
    assert kept.stat().st_mode & 0o077 == 0
    kept.chmod(0o644)
    assert is_new(project, {"HOME": str(user)})
    target = kept.rename(tmp_path / "note")
    kept.symlink_to(target)
    assert is_new(project, {"HOME": str(user)})
