"""How much room a text takes in a prompt, and texts cut to their room, visibly.

A token is taken to be four bytes of UTF-8: about right for English and for code, too low for most other scripts. It is
a rule that everybody can check and that needs no tables: what the provider itself counted stands beside it wherever
people read it, and decides on folds.
"""

BYTES_PER_TOKEN = 4


def tokens_of(content: str | bytes) -> int:
    """Tokens, estimated."""
    return -(-size_of(content) // BYTES_PER_TOKEN)


def size_of(content: str | bytes) -> int:
    """Bytes, as UTF-8."""
    return len(content if isinstance(content, bytes) else content.encode("utf-8", "replace"))


def first_of(text: str, tokens: int, *, where: str, unread: int = 0) -> str:
    """As much of the beginning as there is room for, and a line that says how much is left out.

    Args:
        text: The text.
        tokens: The room, that line included.
        where: What has all of it: a file.
        unread: Bytes that follow the text.
    """
    return _cut(text, tokens, where=where, unread=unread, newest=False)


def newest_of(text: str, tokens: int, *, where: str, unread: int = 0) -> str:
    """As much of the end as there is room for, and a line before it that says how much is left out.

    Args:
        text: The text.
        tokens: The room, that line included.
        where: What has all of it: a file.
        unread: Bytes that come before the text.
    """
    return _cut(text, tokens, where=where, unread=unread, newest=True)


def _cut(text: str, tokens: int, *, where: str, unread: int, newest: bool) -> str:
    encoded = text.encode("utf-8", "replace")
    room, size = tokens * BYTES_PER_TOKEN, len(encoded) + unread
    if not unread and len(encoded) <= room:
        return text
    room -= size_of(_mark(size, size, where)) + 1
    if room <= 0:
        return ""
    if newest:
        tail = encoded[max(0, len(encoded) - room) :]
        # From a whole line on, if that costs no more than half of the room.
        whole = tail.find(b"\n") + 1 if len(tail) < len(encoded) and tail.find(b"\n") < room // 2 else 0
        kept = tail[whole:].decode("utf-8", "ignore")
        return f"{_mark(size - size_of(kept), size, where)}\n{kept}"
    head = encoded[:room]
    whole = head.rfind(b"\n") if len(head) < len(encoded) and head.rfind(b"\n") > room // 2 else len(head)
    kept = head[:whole].decode("utf-8", "ignore")
    return f"{kept}\n{_mark(size - size_of(kept), size, where)}"


def _mark(left_out: int, size: int, where: str) -> str:
    return f"[… {left_out:,} of {size:,} bytes left out; {where} has all of it …]"
