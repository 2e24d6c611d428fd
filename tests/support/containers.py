"""Run PostgreSQL in a container, if a Docker engine answers."""

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from testcontainers.community.postgres import PostgresContainer

COMPOSE = Path(__file__).parents[2] / "docker-compose.yml"


def docker_answers() -> bool:
    """Return whether a Docker engine is available."""
    docker = shutil.which("docker")
    return docker is not None and subprocess.run([docker, "version"], capture_output=True, timeout=20).returncode == 0


def start_postgres() -> "PostgresContainer | None":
    """Start a new PostgreSQL of the team stack's version; None without an engine."""
    if not docker_answers():
        return None
    from testcontainers.community.postgres import PostgresContainer  # only then: it takes long

    image = yaml.safe_load(COMPOSE.read_text())["x-images"]["postgres"]
    container = PostgresContainer(image)
    container.start()
    return container
