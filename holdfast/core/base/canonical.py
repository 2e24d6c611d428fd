"""Canonical JSON (RFC 8785), one spelling of each value; digests of it, chains of digests, and addresses of content."""

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable
from json.encoder import encode_basestring
from typing import Any

import rfc8785
from pydantic_core import from_json

from holdfast.errors import ArtifactNotFound, NotPortable

MAX_INTEGER = 2**53 - 1
"""The largest integer up to which every integer is a double, and so the same number to every JSON parser."""

_SPELLED_OUT = 10**21
"""Below this magnitude, RFC 8785 writes a double that is an integer without an exponent."""


def canonical(value: Any) -> bytes:
    """Encode `value` (JSON types only) as canonical JSON, RFC 8785, the text that digests are computed over.

    An integer beyond `MAX_INTEGER` counts as the double that RFC 8785 writes with the same digits, for that is what a
    parser returns for such a double: what was parsed from canonical JSON has the same canonical JSON.

    Raises:
        NotPortable: The value holds another integer beyond `MAX_INTEGER`, NaN, infinity, a lone surrogate, a key that
            is not a string, a value of no JSON type, or thousands of levels.
    """
    return _encoded(value, exact=False)


def exact_json(value: Any) -> str:
    """Encode `value` as canonical JSON in which integers of any size are written in full.

    For the text of a call's arguments, which is digested as text, before any parser reads it: two ids beyond
    `MAX_INTEGER` never coincide.

    Raises:
        NotPortable: As for `canonical`, except for integers; but those of thousands of digits are refused, too.
    """
    return _encoded(value, exact=True).decode()


def unportable(value: Any) -> str:
    """Return what a value (JSON types only) holds that canonical JSON cannot; empty if it has canonical JSON."""
    try:
        canonical(value)
    except NotPortable as error:
        return str(error)
    return ""


def portable(value: Any) -> Any:
    """Return the nearest value (JSON types only) that has canonical JSON.

    Integers are limited to `MAX_INTEGER`, NaN and infinity become null, and a lone surrogate becomes `?`.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {portable(key): portable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [portable(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or (type(value) is int and -MAX_INTEGER <= value <= MAX_INTEGER) or not unportable(value):
        return value
    return max(-MAX_INTEGER, min(value, MAX_INTEGER)) if isinstance(value, int) else None


def plain_json(value: Any) -> bytes | None:
    """Encode `value` as canonical JSON if that is fast: if it reads the same when it is read back, and None otherwise.

    Raises:
        NotPortable: The value holds a lone surrogate.
    """
    if not _is_plain(value):
        return None
    try:
        return "".join(_PLAIN(value, 0)).encode()
    except UnicodeEncodeError as error:
        raise NotPortable(_SURROGATE) from error


def _plain_encoder() -> Callable[[Any, int], Iterable[str]]:
    """Return what writes JSON with sorted keys and without spaces: C, set up once, and not for each value."""
    encoder = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, check_circular=False)
    made = getattr(json.encoder, "c_make_encoder", None)
    if made is None:  # another Python than CPython
        return lambda value, _: (encoder.encode(value),)
    fast: Callable[[Any, int], Iterable[str]] = made(
        None, encoder.default, encode_basestring, None, ":", ",", True, False, True
    )
    return fast


_PLAIN = _plain_encoder()
_SURROGATE = "a lone surrogate, half of a character, which UTF-8 cannot represent"


def _encoded(value: Any, *, exact: bool) -> bytes:
    try:
        if (plain := plain_json(value)) is not None:
            return plain
        return _text(value, exact=exact).encode()
    except UnicodeEncodeError as error:
        raise NotPortable(_SURROGATE) from error
    except RecursionError:
        raise NotPortable("it is nested too deeply") from None


def _is_plain(value: Any) -> bool:
    """Whether Python's encoder, which is ten times as fast, writes exactly RFC 8785: for keys in ASCII, and floats with
    digits after the point but without an exponent.
    """
    values = [value]
    for each in values:  # grows while it is read
        kind = type(each)
        if kind is str or kind is bool or each is None:
            continue
        if kind is dict:
            for key in each:
                if type(key) is not str or not key.isascii():  # UTF-16 sorts characters beyond the BMP elsewhere
                    return False
            values += each.values()
        elif kind is list or kind is tuple:
            values += each
        elif kind is float:
            if not 1e-4 <= abs(each) < 1e15 or each.is_integer():  # Python writes 5.0, and more with an exponent
                return False
        elif kind is not int or not -MAX_INTEGER <= each <= MAX_INTEGER:
            return False
    return True


def _text(value: Any, *, exact: bool) -> str:
    if type(value) is float:
        return _float(value)
    match value:
        case str():
            return encode_basestring(value)
        case None | bool():
            return json.dumps(value)
        case int():
            return _integer(value, exact=exact)
        case float():
            return _float(float(value))
        case list() | tuple():
            return f"[{','.join([_text(each, exact=exact) for each in value])}]"
        case dict():
            if not all(isinstance(key, str) for key in value):
                raise NotPortable("a key that is not a string")
            items = sorted(value.items(), key=lambda item: item[0].encode("utf-16-be"))
            members = [f"{encode_basestring(key)}:{_text(each, exact=exact)}" for key, each in items]
            return f"{{{','.join(members)}}}"
    raise NotPortable(f"a value of the type {type(value).__name__}, which is no JSON")


def _integer(value: int, *, exact: bool) -> str:
    try:
        text = int.__repr__(value)
    except ValueError:
        raise NotPortable("an integer of thousands of digits") from None
    if exact or -MAX_INTEGER <= value <= MAX_INTEGER:
        return text
    if abs(value) < _SPELLED_OUT and _float(float(value)) == text:
        return text
    shown = text if len(text) < 50 else f"{text[:40]}…"
    raise NotPortable(f"the integer {shown}, beyond 2^53 - 1, which many parsers would change; write it as a string")


def _float(value: float) -> str:
    text = repr(value)
    digits, exponent, power = text.partition("e")
    if not exponent and "n" not in text:  # neither NaN nor infinity
        return "0" if value == 0 else digits.removesuffix(".0")
    if exponent and not -7 < int(power) < 21:
        return f"{digits}e{int(power):+d}"
    try:  # the library would write all of these, in ten times the time: a message may hold 400,000
        return rfc8785.dumps(value).decode()
    except rfc8785.CanonicalizationError:
        raise NotPortable("NaN or infinity, which is no JSON") from None


GENESIS = "0" * 64
"""The digest that precedes the first entry of every chain."""


def digest(value: Any) -> str:
    """Return the SHA-256 of `canonical(value)`, in hex."""
    return hashlib.sha256(canonical(value)).hexdigest()


def chain(previous: str, encoded: bytes) -> str:
    """Return a chain's digest after one more entry: SHA-256 of the previous digest (hex) and the entry's bytes."""
    return hashlib.sha256(previous.encode() + encoded).hexdigest()


_ADDRESS = re.compile(r"sha256:([0-9a-f]{64})", re.ASCII)


def address_of(content: bytes) -> str:
    """Return the address of `content`: `sha256:` and 64 hex digits."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def digest_of(address: str) -> str:
    """Return the 64 hex digits of an address, safe as a file name or a key even if the address is untrusted.

    Raises:
        ArtifactNotFound: The address is malformed.
    """
    if match := _ADDRESS.fullmatch(address):
        return match[1]
    raise ArtifactNotFound(f"{address[:100]!r} is not an artifact address; it must be 'sha256:' and 64 hex digits")


def parse_json(text: bytes | str) -> Any:
    """Return the value of a JSON text, as `json.loads` does, at a third of its cost.

    Texts that the fast parser refuses, such as those with lone surrogates or hundreds of levels, are left to
    `json.loads`.

    Raises:
        ValueError: It is not JSON.
        RecursionError: It is nested too deeply.
    """
    try:
        return from_json(text)
    except (ValueError, TypeError):  # TypeError: a `str` that has no UTF-8
        return json.loads(text)
