"""Signing keys, and what a signature covers: its author, its content and its encoding."""

from pathlib import Path
from typing import Any

import pytest

from holdfast.core.authority.signatures import encode_key, is_signed, public_key, sign
from holdfast.core.authority.statements import AuthorityDelegation, Decision
from holdfast.encryption.signing_keys import check_shown, make_key, read_key, readable_by_others, signed
from holdfast.errors import Refused, SettingsError
from tests.support.runs import calls, loaded_thread

ALICE = encode_key(bytes([1]) * 32)


def test_a_key_file_is_private(tmp_path: Path) -> None:
    """Only its owner can read it, it can sign, and no file is overwritten, even through a link."""
    path = tmp_path / "alice.key"
    public = make_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert not readable_by_others(path)
    payload = signed(
        {"by": "alice", "to": "bob", "seconds": 60}, AuthorityDelegation, thread="t", private=read_key(path)
    )
    statement = AuthorityDelegation.model_validate(payload)
    assert is_signed(public, statement.signature, statement.signed_bytes("t"))
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    for existing in (path, link):
        with pytest.raises(SettingsError, match="keys are never overwritten"):
            make_key(existing)
    assert public_key(read_key(path)) == public
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("text", ["", "ed25519:", "ed25519:x", "secret", "ed25519:" + "A" * 100, "é"])
def test_an_invalid_key_is_not_shown(text: str, tmp_path: Path) -> None:
    """The text may be a real key with a typing error."""
    path = tmp_path / "k"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError) as caught:
        read_key(path)
    assert (
        str(caught.value)
        == f"{path} does not hold a private key (one line, ed25519:…); `python starter.py keygen` makes one"
    )
    with pytest.raises(SettingsError, match="cannot be read"):
        read_key(tmp_path / "none")


def test_an_invalid_statement_is_not_signed() -> None:
    """The run reports what is wrong with it."""
    assert signed({"decision": "perhaps"}, Decision, thread="t", private=ALICE) == {"decision": "perhaps"}


@pytest.mark.parametrize(
    "lie",
    [{"arguments": {"cents": 1}}, {"tool": "look"}, {"digest": "d" * 64}, {"effect_key": "k"}, {"epoch": 1}],
)
def test_only_the_shown_content_is_signed(lie: dict[str, Any]) -> None:
    """A request whose digest does not match its visible content is not signed, and the error says so."""
    thread = loaded_thread()
    thread.reply(calls("pay"))
    (request,) = thread.state.authority.requests
    check_shown(request.view())
    with pytest.raises(Refused, match="nothing was signed"):
        check_shown(request.view() | lie)


def test_a_signature_and_a_key_have_one_encoding() -> None:
    """Padding, the other alphabet, white space and unused bits are rejected, so each has only one encoding."""
    key, message = public_key(ALICE), b"message"
    signature = sign(ALICE, message)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    bits = alphabet[alphabet.index(signature[-1]) ^ 1]
    assert is_signed(key, signature, message)
    for variant in (f"{signature}==", f"{signature}=", f"{signature}\n", f" {signature}", signature[:-1] + bits):
        assert not is_signed(key, variant, message)
    plain = next(sign(ALICE, bytes([n])) for n in range(100) if set("-_") & set(sign(ALICE, bytes([n]))))
    number = next(n for n in range(100) if sign(ALICE, bytes([n])) == plain)
    assert is_signed(key, plain, bytes([number]))
    assert not is_signed(key, plain.translate(str.maketrans("-_", "+/")), bytes([number]))
    assert not is_signed(f"{key}=", signature, message)
