"""Build the wheel, and install it into environments of its own, as users have them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes import reserve_ports

ROOT = Path(__file__).parents[2]
SECONDS = 360.0
"""Seconds after which a command that does not end, or a worker that is not ready, is a failure."""

OURS = ("HOLDFAST_", "TEMPORAL_", "OPENAI_", "DATABASE_URL", "PG", "PYTHON", "VIRTUAL_ENV")


def build(kind: str, folder: Path, *, source: Path = ROOT) -> Path:
    """Build the `wheel` or the `sdist` from a checkout, and return its path."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (built,) = folder.iterdir()
    return built


@dataclass(frozen=True)
class Installation:
    """An environment with Holdfast, from its wheel."""

    folder: Path
    programs: tuple[Path, ...]
    """Folders of programs: its own, and that of the packages beside."""

    @property
    def python(self) -> str:
        """Return its interpreter."""
        return str(self.folder / "bin/python")

    @property
    def command(self) -> str:
        """Return the command `holdfast`."""
        return str(self.folder / "bin/holdfast")

    @property
    def environ(self) -> dict[str, str]:
        """Return the environment of a user who has activated it, without any setting of ours."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        path = os.pathsep.join([*map(str, self.programs), kept.get("PATH", os.defpath)])
        return {**kept, "PATH": path, "TEMPORAL_CONFIG_FILE": os.devnull}

    def run(
        self, *words: str, folder: Path, stdin: str | None = None, **variables: str
    ) -> "subprocess.CompletedProcess[str]":
        """Run a program to its end in a folder."""
        environ = self.environ | variables
        return subprocess.run(
            words, cwd=folder, env=environ, input=stdin, capture_output=True, text=True, timeout=SECONDS
        )

    def holdfast(self, *words: str, folder: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
        """Run `holdfast` to its end in a folder."""
        return self.run(self.command, *words, folder=folder, **variables)

    @contextmanager
    def worker(self, *words: str, folder: Path) -> Iterator[str]:
        """Run `holdfast worker …` during the block, on ports of its own; yield its output until it was ready."""
        if not (folder / ".holdfast").exists():
            reserve_ports(folder / ".holdfast")
        log = folder / "worker.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [self.command, "worker", *words],
                cwd=folder,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        try:
            deadline = time.monotonic() + SECONDS
            while "\nReady" not in log.read_text():
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.02)
            yield log.read_text()
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(SECONDS) == 0, log.read_text()


def install(wheel: Path, folder: Path, *, beside: Path | None) -> Installation:
    """Install the wheel, without its dependencies, into a new environment. Needs no network.

    Args:
        wheel: The wheel.
        folder: The new environment.
        beside: The interpreter of an environment whose packages the new one has, too; None for none.
    """
    subprocess.run([beside or sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = (folder / "lib").glob("python*/site-packages")
    programs = [folder / "bin"]
    if beside:
        say = "import sysconfig; print(sysconfig.get_path('purelib'))"
        output = subprocess.run([beside, "-c", say], check=True, capture_output=True, text=True).stdout
        (packages / "beside.pth").write_text(output)
        programs.append(beside.parent)
    target = ["--python", str(folder / "bin/python"), "--no-config", "--no-cache", "--offline", "--no-index"]
    command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-deps", *target, str(wheel)]
    subprocess.run(command, check=True)
    return Installation(folder, tuple(programs))
