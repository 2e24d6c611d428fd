"""The names of agents and tools; an id is made from the name that an author wrote: `refund-agent` of `Refund agent`."""

import re
import unicodedata
from collections.abc import Iterable
from typing import Any

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_TITLE_CHARS = 100


def agent_id(name: str) -> str:
    """Return the id of an agent with this name: the name itself if it is an id, or else its words, joined by hyphens.

    Accents are dropped. A letter that has no ASCII form is an error, so that two names cannot share what is left.

    Args:
        name: Printable text of up to 100 characters.

    Raises:
        ValueError: The name gives no id of 1 to 64 characters; the message says what to write.
    """
    if _ID.fullmatch(name):
        return name
    if len(name) > _TITLE_CHARS or not name.isprintable():
        raise ValueError(f"a name has up to {_TITLE_CHARS} printable characters, not {name[:_TITLE_CHARS]!a}")
    letters = "".join(c for c in unicodedata.normalize("NFKD", name.casefold()) if not unicodedata.combining(c))
    found = re.sub(r"[^a-z0-9_.]+", "-", letters).strip("-_.")
    if not _ID.fullmatch(found) or any(c.isalnum() and not c.isascii() for c in letters):
        raise ValueError(
            f"the name {name!r} gives no id of up to 64 ASCII letters and digits; write the id as the name, and the "
            f"text that people read as the title: Agent(name='refunds', title={name!r})"
        )
    return found


def id_if_any(name: str) -> str:
    """Return the id of an agent with this name; the name itself if it gives no id, and so is nobody's."""
    try:
        return agent_id(name)
    except ValueError:
        return name


def names_of(given: Iterable[Any]) -> tuple[str, ...]:
    """Return the names of tools, or the ids of agents, each once; a name stands for itself."""
    return tuple(dict.fromkeys(each if isinstance(each, str) else getattr(each, "spec", each).name for each in given))
