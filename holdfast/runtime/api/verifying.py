"""Verify a thread for a program, as `holdfast verify` does for a person."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from holdfast.errors import SettingsError
from holdfast.runtime.audit.verdicts import Check, Verification, required
from holdfast.runtime.client.threads import Threads
from holdfast.runtime.programs import setup_command
from holdfast.runtime.reading.record import Evidence


async def verify_thread(
    threads: Threads,
    thread: str,
    *,
    evidence: Evidence | None,
    keys: Path | str | None,
    anchors: Sequence[Path],
    nodes: Sequence[str],
    require: Sequence[Check],
) -> Verification:
    """Verify a thread; arguments are as for `Thread.verify`.

    Raises:
        SettingsError: A file or an anchor cannot be read, or a package is missing.
    """
    if not find_spec("psycopg"):
        raise SettingsError(f"verifying needs packages of the command line: {setup_command('cli')}")
    from holdfast.authority.signatures import check_key
    from holdfast.runtime.audit.anchors import Anchors
    from holdfast.runtime.audit.verify import verify
    from holdfast.runtime.config.policy_file import load_policy

    try:
        known = {check_key(node): None for node in nodes} or None
    except ValueError as error:
        raise SettingsError(f"nodes: {error}") from None
    trusted = load_policy(Path(keys)) if keys else None
    sealed = Anchors(anchors, known) if anchors else None
    return required(await verify(threads, thread, evidence=evidence, trusted=trusted, anchors=sealed), require)
