"""Token estimates for texts, and cutting texts to a token budget with a visible mark.

A token is estimated as four bytes of UTF-8: about right for English and code, too low for most other scripts. The
estimate is easy to check and needs no tables. Screens show the provider's own count beside it, and that count triggers
context compaction; if the provider reports none, an estimate takes its place.
"""

import re

BYTES_PER_TOKEN = 4

MEDIA_TOKENS = 2_000
"""Maximum estimate for one image or file in a request: its tokens do not grow with its bytes."""

_MEDIA_BYTES = MEDIA_TOKENS * BYTES_PER_TOKEN

_BASE64 = re.compile(rb"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{%d,}" % _MEDIA_BYTES)
"""Matches only from the beginning of a word: trying every byte would be slow in long texts."""


def tokens_of(content: str | bytes) -> int:
    """Estimate the number of tokens."""
    return -(-size_of(content) // BYTES_PER_TOKEN)


def tokens_of_request(body: bytes) -> int:
    """Estimate the number of tokens of an encoded request: images and files, in base64, count as `MEDIA_TOKENS`."""
    long = (part for part in body.split(b'"') if len(part) >= _MEDIA_BYTES)  # each medium is a separate JSON string
    media = [len(match[0]) for part in long for match in _BASE64.finditer(part)]
    return tokens_of(body) + len(media) * MEDIA_TOKENS - sum(media) // BYTES_PER_TOKEN


def size_of(content: str | bytes) -> int:
    """Return the size in bytes of UTF-8."""
    return len(content if isinstance(content, bytes) else content.encode("utf-8", "replace"))


def first_of(text: str, tokens: int, *, source: str, unread: int = 0) -> str:
    """Cut a text to its beginning, followed by a line that gives the number of bytes left out.

    Args:
        text: The text.
        tokens: The budget, that line included.
        source: The file that has the whole text.
        unread: Bytes that follow the text.
    """
    return _cut(text, tokens, source=source, unread=unread, newest=False)


def newest_of(text: str, tokens: int, *, source: str, unread: int = 0) -> str:
    """Cut a text to its end, preceded by a line that gives the number of bytes left out.

    Args:
        text: The text.
        tokens: The budget, that line included.
        source: The file that has the whole text.
        unread: Bytes that precede the text.
    """
    return _cut(text, tokens, source=source, unread=unread, newest=True)


def _cut(text: str, tokens: int, *, source: str, unread: int, newest: bool) -> str:
    encoded = text.encode("utf-8", "replace")
    room, size = tokens * BYTES_PER_TOKEN, len(encoded) + unread
    if not unread and len(encoded) <= room:
        return text
    room -= size_of(_mark(size, size, source)) + 1
    if room <= 0:
        return ""
    if newest:
        tail = encoded[max(0, len(encoded) - room) :]
        # Begin with a whole line, if that costs at most half of the budget.
        whole = tail.find(b"\n") + 1 if len(tail) < len(encoded) and tail.find(b"\n") < room // 2 else 0
        kept = tail[whole:].decode("utf-8", "ignore")
        return f"{_mark(size - size_of(kept), size, source)}\n{kept}"
    head = encoded[:room]
    whole = head.rfind(b"\n") if len(head) < len(encoded) and head.rfind(b"\n") > room // 2 else len(head)
    kept = head[:whole].decode("utf-8", "ignore")
    return f"{kept}\n{_mark(size - size_of(kept), size, source)}"


def _mark(left_out: int, size: int, source: str) -> str:
    return f"[… {left_out:,} of {size:,} bytes left out; the whole text is in {source} …]"
