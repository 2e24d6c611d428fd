"""Verify a log of Holdfast: `starter.py log THREAD --json | python verify.py`, or `python verify.py FILE [HEAD]`.

Checks that each line is canonical JSON (RFC 8785), has its position, and continues the chain of digests; with HEAD, the
digest of the last event, that the log ends there. Without it, a truncated log is not detected. Not checked:
signatures, the meaning of the events, and their authors: anybody can compute a chain anew.
"""

import decimal
import hashlib
import json
import sys


def canonical(value):
    """Write JSON as RFC 8785 does; all numbers are floats here."""
    if isinstance(value, float):
        return number(value)
    if isinstance(value, list):
        return f"[{','.join(map(canonical, value))}]"
    if isinstance(value, dict):
        items = sorted(value.items(), key=lambda item: item[0].encode("utf-16-be"))
        return "{" + ",".join(f"{canonical(key)}:{canonical(each)}" for key, each in items) + "}"
    return json.dumps(value, ensure_ascii=False)


def number(value):
    """Write a number as ECMAScript does."""
    _, digits, exponent = decimal.Decimal(repr(value)).normalize().as_tuple()
    digits, point = "".join(map(str, digits)), len(digits) + exponent
    shift, power = (point, "") if -6 < point <= 21 else (1, f"e{point - 1:+d}")
    digits, shift = digits.rjust(len(digits) + 1 - min(shift, 1), "0").ljust(shift, "0"), max(shift, 1)
    return "-" * (value < 0) + f"{digits[:shift]}.{digits[shift:]}".rstrip(".") + power


def verify(data, head):
    """Return the first event that is not sound, or the head of a sound log."""
    digest, lines = "0" * 64, data.removesuffix(b"\n").split(b"\n")
    for place, line in enumerate(lines):
        try:
            event = json.loads(line.decode(), parse_int=float)
            if not isinstance(event, dict) or canonical(event).encode() != line:
                return f"event {place}: the line is not canonical JSON"
            claimed, position = event.pop("digest", None), event.get("position")
            digest = hashlib.sha256((digest + canonical(event)).encode()).hexdigest()
        except (ValueError, TypeError, RecursionError):  # TypeError: a number is infinite
            return f"event {place}: the line is not canonical JSON"
        if (type(position), position, claimed) != (float, place, digest):
            return f"event {place}: it was altered, or another one is in its place"
    return f"head {digest}, {place + 1} events" if head in ("", digest) else f"event {place + 1}: the head is another"


if __name__ == "__main__":
    try:
        with open(sys.argv[1] if sys.argv[1:] else 0, "rb") as file:  # noqa: PTH123  # 0 is stdin
            found = verify(file.read(), "".join(sys.argv[2:]))
    except OSError as error:
        found = f"event 0: {error}"
    print(found)
    sys.exit(found.startswith("event"))
