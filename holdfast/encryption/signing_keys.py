"""Private keys in files, and signing statements of people with them, such as decisions.

A key file holds one line, `ed25519:…`, and only its owner may read it. The policy holds the public key.
"""

import os
import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from holdfast.config.programs import CLI
from holdfast.core.authority.approvals import shown_digest
from holdfast.core.authority.interventions import GOOD_SECONDS
from holdfast.core.authority.signatures import encode_key, public_key, sign
from holdfast.core.authority.statements import Signed, read_signed
from holdfast.errors import Refused, SettingsError


def make_key(path: Path) -> str:
    """Write a new private key to a file that only its owner can read; return the public key.

    Raises:
        SettingsError: The file exists already, or cannot be written.
    """
    private = encode_key(os.urandom(32))
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    except FileExistsError:
        raise SettingsError(f"{path} exists already, and keys are never overwritten; name another file") from None
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {error.strerror}") from None
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(private + "\n")
    return public_key(private)


def read_key(path: Path) -> str:
    """Read the private key in a file.

    Raises:
        SettingsError: The file holds no key. The message does not show its content.
    """
    try:
        private = path.read_text(encoding="ascii").strip()
        public_key(private)
    except OSError as error:
        raise SettingsError(
            f"the key {path} cannot be read: {error.strerror}; `{CLI.command('keygen')}` makes one"
        ) from None
    except ValueError:  # its message could contain the key
        raise SettingsError(
            f"{path} does not hold a private key (one line, ed25519:…); `{CLI.command('keygen')}` makes one"
        ) from None
    return private


def readable_by_others(path: Path) -> bool:
    """Whether users other than its owner can read the file."""
    return bool(path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))


def signed_once(
    payload: dict[str, Any],
    read: Callable[[Any], Any],
    *,
    thread: str,
    private: str,
) -> dict[str, Any]:
    """Sign a message, a refinement or an extension, with an id and an expiry time, so that it counts only once.

    Args:
        payload: The message to sign; it may have an `id`.
        read: Parses it as a statement, or returns an error message.
        thread: The thread that receives it.
        private: The private key.
    """
    until = datetime.now(UTC) + timedelta(seconds=GOOD_SECONDS)
    payload = {"id": uuid4().hex, **payload, "until": until.isoformat()}
    statement = read(payload)
    if not isinstance(statement, Signed):
        return payload  # the receiver reports the error
    return {**payload, "signature": sign(private, statement.signed_bytes(thread))}


def check_shown(request: dict[str, Any]) -> None:
    """Check that a request's digest is that of the tool and the arguments shown, before a decision is signed.

    Args:
        request: As returned by `pending`.

    Raises:
        Refused: The digest does not match.
    """
    try:
        digest = shown_digest(request)
    except (KeyError, ValueError):
        digest = ""
    if digest != request["digest"]:
        raise Refused(
            f"request {request['request']} claims the digest {request['digest']}, but the call shown has "
            f"{digest or 'none'}: nothing was signed. Find out which worker serves this thread before you decide "
            "anything."
        )


def signed(
    payload: dict[str, Any],
    kind: type[Signed],
    *,
    thread: str,
    private: str,
) -> dict[str, Any]:
    """Sign a payload; one that cannot be parsed is returned unchanged.

    Args:
        payload: The statement. A decision must contain the digest of its request.
        kind: The kind of statement.
        thread: The thread that receives it.
        private: The private key.
    """
    statement = read_signed(payload, kind)
    if isinstance(statement, str):
        return payload  # the receiver reports the error
    return {**payload, "signature": sign(private, statement.signed_bytes(thread))}
