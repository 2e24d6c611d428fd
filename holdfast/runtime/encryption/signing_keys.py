"""Private keys in files, and what is signed with them: decisions, delegations, revocations, messages.

A key file holds one line, `ed25519:…`, and is for its owner's eyes alone. The public half stands in the policy.
"""

import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from holdfast.authority.approvals import shown_digest
from holdfast.authority.follow_ups import read_message
from holdfast.authority.signatures import encode_key, public_key, sign
from holdfast.authority.statements import AuthorityDelegation, Decision, Revocation, read_signed
from holdfast.errors import Refused, SettingsError

GOOD_SECONDS = 86_400
"""For how long a signed message is good: a worker may be down for so long."""


def make_key(path: Path) -> str:
    """Write a new private key to a file that only its owner can read; returns the public key.

    Raises:
        SettingsError: The file is there already, or cannot be written.
    """
    private = encode_key(os.urandom(32))
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    except FileExistsError:
        raise SettingsError(f"{path} is there already, and no key is overwritten; name another file") from None
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {error.strerror}") from None
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(private + "\n")
    return public_key(private)


def read_key(path: Path) -> str:
    """The private key in a file.

    Raises:
        SettingsError: There is none. The message does not show what is in the file.
    """
    try:
        private = path.read_text(encoding="ascii").strip()
        public_key(private)
    except OSError as error:
        raise SettingsError(f"the key {path} cannot be read: {error.strerror}; `starter.py keygen` makes one") from None
    except ValueError:  # its text could hold the key
        raise SettingsError(
            f"{path} holds no private key (one line, ed25519:…); `starter.py keygen` makes one"
        ) from None
    return private


def readable_by_others(path: Path) -> bool:
    """Whether more than its owner can read the file."""
    return bool(path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))


def signed_message(payload: dict[str, Any], *, thread: str, private: str) -> dict[str, Any]:
    """A message with a signature, an id of its own, and the time until which it is good: it counts once.

    Args:
        payload: What is to be sent.
        thread: Where it is sent to.
        private: The key.
    """
    until = datetime.now(UTC) + timedelta(seconds=GOOD_SECONDS)
    payload = {**payload, "id": uuid4().hex, "until": until.isoformat()}
    said = read_message(payload)
    if isinstance(said, tuple):
        return payload  # the run tells what is wrong with it
    return {**payload, "signature": sign(private, said.signed_bytes(thread))}


def check_shown(request: dict[str, Any]) -> None:
    """Refuse to sign what is not what is shown: the digest is recomputed from the tool and arguments displayed.

    Args:
        request: As `pending` gives it.

    Raises:
        Refused: The digest is of something else.
    """
    try:
        shown = shown_digest(request)
    except (KeyError, ValueError):
        shown = ""
    if shown != request["digest"]:
        raise Refused(
            f"request {request['request']} claims the digest {request['digest']}, and what it shows has "
            f"{shown or 'none'}: nothing was signed. Find out who answers for this thread before you decide anything."
        )


def signed(
    payload: dict[str, Any],
    kind: type[Decision] | type[AuthorityDelegation] | type[Revocation],
    *,
    thread: str,
    private: str,
) -> dict[str, Any]:
    """The payload with a signature over what it says; as it is, where it says nothing that can be read.

    Args:
        payload: What is to be sent. A decision has to give the digest of the request that it is about.
        kind: What it is.
        thread: Where it is sent to.
        private: The key.
    """
    said = read_signed(payload, kind)
    if isinstance(said, str):
        return payload  # whoever gets it tells what is wrong with it
    return {**payload, "signature": sign(private, said.signed_bytes(thread))}
