"""CI checks besides the tests: secrets in tracked files, known vulnerabilities, and images by digest."""

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOISE = base64.b64encode(hashlib.sha512(b"noise").digest()).decode().replace("/", "x").replace("+", "y")
"""Random text, written in parts so that this file has no secret."""

PLANTED = {
    "private key": "-----BEGIN " + f"PRIVATE KEY-----\n{NOISE}\n",
    "private key in JSON": "-----BEGIN EC " + f"PRIVATE KEY-----\\n{NOISE}",
    "AWS": "AKIA" + "ABCDEFGHIJKLMNOP",
    "GitHub": "ghp_" + NOISE[:36],
    "Slack": "https://hooks.slack.com/services/" + "T0123456/B0123456/" + NOISE[:24],
    "LLM": "sk-" + "proj-" + NOISE[:48],
    "token": "eyJ" + NOISE[:20] + ".eyJ" + NOISE[:20] + "." + NOISE[:30],
    "password": "DB_PASS" + f"WORD={NOISE[:24]}",
    "api key": "api_" + f'key = "{NOISE[:32]}"',
    "yaml": "webhook_" + f"secret: {NOISE[:32]}",
    "fleet": "HOLDFAST_FLEET_" + f"KEYS=2026-11:{NOISE[:43]}=",
    "url": "postgresql://app:" + f"{NOISE[:20]}@db.example/app",
}
HARMLESS = (
    "token = secrets.token_urlsafe(32)",
    "password: ${POSTGRES_PASSWORD:?run `make up`}",
    "OPENAI_API_KEY=your-key-of-the-endpoint",
    "postgresql://app:${PASSWORD_OF_THE_DATABASE}@db/app",
    "api_key=settings.openai_api_key.get_secret_value()",
    "secret_that_has_a_long_name_and_no_value = None",
)


def scan(folder: Path) -> subprocess.CompletedProcess[str]:
    """Scan a checkout."""
    command = [sys.executable, str(ROOT / ".ci/secret_scan.py"), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def checkout(folder: Path, text: str, name: str = "settings.txt") -> Path:
    """Make a checkout with one tracked file."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    for arguments in (["init", "-q"], ["add", name]):
        subprocess.run(["git", *arguments], cwd=folder, check=True)
    return folder


@pytest.mark.parametrize("kind", PLANTED)
def test_a_planted_secret_is_found_and_not_shown(tmp_path: Path, kind: str) -> None:
    """The file and the line are named, and the secret is not: CI's log has many readers."""
    ran = scan(checkout(tmp_path / "checkout", f"first line\n{PLANTED[kind]}\n"))
    assert (ran.returncode, "settings.txt:" in ran.stderr) == (1, True)
    assert NOISE[:16] not in ran.stderr
    assert PLANTED[kind].strip() not in ran.stderr


@pytest.mark.parametrize("text", HARMLESS)
def test_code_and_placeholders_are_no_secrets(tmp_path: Path, text: str) -> None:
    """False alarms would make somebody switch the scan off."""
    ran = scan(checkout(tmp_path / "checkout", text))
    assert ran.returncode == 0, ran.stderr


def test_an_untracked_file_does_not_count(tmp_path: Path) -> None:
    """A developer's own `.env` is ignored."""
    folder = checkout(tmp_path / "checkout", "nothing")
    (folder / ".env").write_text(PLANTED["api key"])
    assert scan(folder).returncode == 0


def test_an_archive_without_git_is_scanned_whole(tmp_path: Path) -> None:
    """An unpacked archive has no list of tracked files; packages and caches beside it do not count."""
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/package.txt").write_text(PLANTED["api key"])
    assert scan(tmp_path).returncode == 0
    (tmp_path / "settings.txt").write_text(PLANTED["api key"])
    assert scan(tmp_path).returncode == 1


def test_an_exception_is_for_one_file_and_one_value() -> None:
    """Each has a reason; one that names no tracked file is reported as unused."""
    lines = (ROOT / ".ci/secrets-allowed.txt").read_text(encoding="utf-8").splitlines()[1:]
    for fingerprint, name, reason in (line.split(maxsplit=2) for line in lines):
        assert len(fingerprint) == 16
        assert (ROOT / name).is_file()
        assert reason


def audit(folder: Path, lock: str, **affected: object) -> tuple[int, str]:
    """Audit a lock file with one advisory."""
    (folder / "some.lock").write_text(lock)
    (folder / "database").mkdir(exist_ok=True)
    advisory = {"id": "PYSEC-1", "affected": [{"package": {"ecosystem": "PyPI", "name": "Some_Package"}, **affected}]}
    (folder / "database/one.json").write_text(json.dumps(advisory))
    command = [sys.executable, str(ROOT / ".ci/audit.py"), str(folder / "database"), str(folder / "some.lock")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("version", "code", "said"),
    [("1.9", 0, "none applies"), ("2.0", 1, "fixed in 2.3"), ("2.3", 0, "none applies"), ("3.1", 1, "no version is")],
)
def test_a_known_vulnerability_of_a_locked_package_is_found(tmp_path: Path, version: str, code: int, said: str) -> None:
    """The advisory's ranges decide; a package has one name in any spelling."""
    ranges = [{"introduced": "2.0"}, {"fixed": "2.3"}, {"introduced": "3.0"}]
    lock = f"some-package=={version} \\\n    --hash=sha256:0\nother==1.0\n"
    exit_code, text = audit(tmp_path, lock, ranges=[{"type": "ECOSYSTEM", "events": ranges}])
    assert (exit_code, said in text) == (code, True), text


def test_an_advisory_may_list_versions(tmp_path: Path) -> None:
    """OSV allows that; a folder without advisories is no clean result."""
    assert audit(tmp_path, "some.package==1.0\n", versions=["1.0"])[0] == 1
    assert audit(tmp_path, "some.package==1.1\n", versions=["1.0"])[0] == 0
    shutil.rmtree(tmp_path / "database")
    (tmp_path / "database").mkdir()
    command = [sys.executable, str(ROOT / ".ci/audit.py"), str(tmp_path / "database"), str(tmp_path / "some.lock")]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 2


def test_an_image_without_a_digest_is_named(tmp_path: Path) -> None:
    """A tag can be moved: `docker/pin-images.sh --check` lists images with only a tag, and pins the others."""
    for name in ("docker-compose.yml", "Dockerfile"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "docker").mkdir()
    shutil.copy(ROOT / "docker/pin-images.sh", tmp_path / "docker")
    engine = tmp_path / "bin/docker"
    engine.parent.mkdir()
    engine.write_text(f"#!/bin/sh\necho sha256:{'0' * 64}\n")
    engine.chmod(0o755)
    environ = os.environ | {"PATH": f"{engine.parent}{os.pathsep}{os.environ['PATH']}"}

    def pin(*words: str) -> subprocess.CompletedProcess[str]:
        script = str(tmp_path / "docker/pin-images.sh")
        return subprocess.run([script, *words], env=environ, capture_output=True, text=True, check=False)

    assert pin().returncode == 0
    assert pin("--check").returncode == 0
    text = (tmp_path / "docker-compose.yml").read_text()
    assert text.count(f"@sha256:{'0' * 64}") == 4
    (tmp_path / "docker-compose.yml").write_text(text.replace(f"@sha256:{'0' * 64}", "", 1))
    loose = pin("--check")
    assert (loose.returncode, "pgvector/pgvector:0.8.5-pg18-trixie is not pinned" in loose.stderr) == (1, True)
