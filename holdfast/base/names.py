"""Names of people and roles: one spelling each, so that no variant of a name is another person.

1. A name is trimmed, decomposed (NFKD), freed of combining marks, case-folded, and its inner white space collapsed.
2. What is not ASCII after that is refused: `alice` with a Cyrillic first letter looks like Alice, and is somebody else.
3. The tables are those of Unicode 3.2, which every Python has: a replay spells a name as the run did.
"""

from typing import Annotated
from unicodedata import ucd_3_2_0

from pydantic import AfterValidator, StringConstraints

NAME_CHARS = 200
"""Length of a name."""

SHOWN_CHARS = 60
"""Characters of a refused name that are shown."""


def person_name(text: str) -> str:
    """The one spelling of a person's or role's name; empty for an empty one.

    Raises:
        ValueError: It cannot be a name.
    """
    name = text.strip()
    if any(ucd_3_2_0.category(character).startswith("C") for character in name):
        raise ValueError(_refused(text, "it has characters that cannot be seen"))
    bare = "".join(c for c in _decomposed(name) if not ucd_3_2_0.category(c).startswith("M"))
    spelt = " ".join(_decomposed(bare.casefold()).split())
    if not spelt.isascii():
        raise ValueError(_refused(text, "this has other letters"))
    if name and not spelt:
        raise ValueError(_refused(text, "nothing of it is left without accents"))
    if len(spelt) > NAME_CHARS:
        raise ValueError(f"a name has {NAME_CHARS} characters at the most, and this one {len(spelt)}")
    return spelt


def _decomposed(text: str) -> str:
    return ucd_3_2_0.normalize("NFKD", text)


def _refused(text: str, why: str) -> str:
    shown = text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"
    return f"{shown!a} is no name: names are ids in ASCII letters, digits and punctuation, and {why}"


PersonName = Annotated[str, StringConstraints(max_length=NAME_CHARS), AfterValidator(person_name)]
"""A name as whoever sends it may spell it; read as its one spelling."""
