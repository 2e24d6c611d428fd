"""Canonical JSON (RFC 8785), which gives each value one encoding; its digests, digest chains and content addresses."""

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
"""Up to this size every integer is exact as a double, so all JSON parsers read the same number."""

_SPELLED_OUT = 10**21
"""Below this magnitude, RFC 8785 writes a double that is an integer without an exponent."""


def canonical(value: Any) -> bytes:
    """Encode `value` (JSON types only) as canonical JSON, RFC 8785, the text that digests are computed over.

    An integer beyond `MAX_INTEGER` is accepted if RFC 8785 writes a double with the same digits, because a parser may
    return such a double as an integer. So encoding a value parsed from canonical JSON yields the same bytes.

    Raises:
        NotPortable: The value holds any other integer beyond `MAX_INTEGER`, NaN, infinity, a lone surrogate, a key that
            is not a string, a type that JSON does not have, or thousands of levels.
    """
    return _encoded(value, exact=False)


def exact_json(value: Any) -> str:
    """Encode `value` as canonical JSON in which integers of any size are written in full.

    Meant for the arguments of a call, which are digested as text before any parser reads them: two different ids beyond
    `MAX_INTEGER` never get the same digest.

    Raises:
        NotPortable: As for `canonical`, but an integer is rejected only if it has thousands of digits.
    """
    return _encoded(value, exact=True).decode()


def unportable(value: Any) -> str:
    """Return why a value (JSON types only) has no canonical JSON; empty if it has."""
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
    """Encode `value` as canonical JSON if Python's encoder writes exactly that; None otherwise.

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
    """Return an encoder for JSON with sorted keys and without spaces: written in C, and created once for all values."""
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
    """Whether Python's encoder, which is ten times as fast, writes exactly RFC 8785: if all keys are ASCII, and all
    floats have digits after the point and no exponent.
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
    try:  # rfc8785 could write every float, but takes ten times as long, and a message may hold 400,000 of them
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
    """Parse JSON as `json.loads` does, in a third of the time.

    Falls back to `json.loads` for texts that the fast parser rejects, such as those with lone surrogates or hundreds of
    levels.

    Raises:
        ValueError: The text is not JSON.
        RecursionError: It is nested too deeply.
    """
    try:
        return from_json(text)
    except (ValueError, TypeError):  # TypeError: a `str` that UTF-8 cannot represent
        return json.loads(text)


def parsed(arguments: str) -> Any:
    """Parse a call's arguments as JSON for display; return the text unchanged if it is not portable JSON.

    Some parsers reject lone surrogates, NaN and deep nesting.
    """
    try:
        return from_json(arguments or "{}", allow_inf_nan=False)
    except (ValueError, TypeError):
        return arguments


MAX_DEPTH = 100
"""Maximum nesting of JSON in a message. Parsers of recorded events fail at 200 levels, the envelope included."""


def too_deep(value: Any) -> bool:
    """Whether JSON has more than `MAX_DEPTH` levels."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        inner = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        if not inner:
            return False
        level = [each for values in inner for each in values]
    return True
