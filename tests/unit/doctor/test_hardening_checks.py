"""`doctor` and the hardening profile: a line is weak if its guarantee does not hold, and ok otherwise."""

import base64
from pathlib import Path

import pytest

from holdfast.cli.checks.report import exit_code
from holdfast.config.settings import Settings
from holdfast.core.authority.signatures import encode_key, public_key
from holdfast.doctor.hardening import hardening

KEY = f"k:{base64.b64encode(bytes(32)).decode()}"
SIGNED = f"""
approvers:
  - {{name: alice, keys: ["{public_key(encode_key(bytes(32)))}"]}}
signatures: required
"""


def statuses(tmp_path: Path, *, host: str = "127.0.0.1:7233", tls: bool = False, **environ: str) -> dict[str, str]:
    """Return the status of each line by name."""
    settings = Settings.from_env({"HOLDFAST_HOME": str(tmp_path), **environ}, root=tmp_path)
    return {check.name: check.status for check in hardening(settings, {"target_host": host, "tls": tls})}


def test_a_hardened_installation_is_ok(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has keys, a signed policy, TLS, a random password, its own account and a private folder."""
    monkeypatch.setattr("os.geteuid", lambda: 1_000)
    tmp_path.chmod(0o700)
    (tmp_path / "policy.yaml").write_text(SIGNED)
    lines = statuses(
        tmp_path,
        host="temporal.internal:7233",
        tls=True,
        HOLDFAST_FLEET_KEYS=KEY,
        HOLDFAST_ENCRYPTION_KEYS=KEY,
        HOLDFAST_PLAIN_STARTS="false",
        HOLDFAST_POLICY=str(tmp_path / "policy.yaml"),
        DATABASE_URL="postgresql://holdfast:Zk3-x9Qv81@db/holdfast",
    )
    assert set(lines.values()) == {"ok"}, lines


def test_each_weakness_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If nothing is configured and everything is open, every line is weak."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    tmp_path.chmod(0o755)
    lines = statuses(
        tmp_path,
        host="temporal.internal:7233",
        HOLDFAST_ENCRYPTION_KEYS=f"{KEY},plain",
        HOLDFAST_GATEWAY_HOST="0.0.0.0",
        DATABASE_URL="postgresql://holdfast:holdfast@db/holdfast",
    )
    assert set(lines.values()) == {"weak"}, lines


def test_only_the_profile_asked_for_fails_on_weaknesses(tmp_path: Path) -> None:
    """`doctor` checks only what is necessary; `doctor --hardened` also fails on weaknesses."""
    settings = Settings.from_env({"HOLDFAST_HOME": str(tmp_path)}, root=tmp_path)
    checks = hardening(settings, {"target_host": "127.0.0.1:7233"})
    assert (exit_code(checks), exit_code(checks, hardened=True)) == (0, 1)


def test_a_policy_that_no_worker_could_start_with_is_a_fault(tmp_path: Path) -> None:
    """An unusable policy is more than a weakness: `doctor` fails, and names the command that lists its problems."""
    settings = Settings.from_env({"HOLDFAST_POLICY": str(tmp_path / "policy.yaml")}, root=tmp_path)
    checks = hardening(settings, {"target_host": "127.0.0.1:7233"})
    (policy,) = [check for check in checks if check.name == "policy"]
    assert (policy.status, exit_code(checks)) == ("missing", 1)
    assert policy.fix.endswith(f"policy check {tmp_path / 'policy.yaml'}")
