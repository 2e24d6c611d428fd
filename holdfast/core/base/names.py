"""Normalisation of the names of people and roles, so that no spelling variant of a name counts as another person.

1. A name is trimmed, decomposed (NFKD), stripped of combining marks and case-folded; inner white space is collapsed.
2. A name that is not ASCII after that is rejected: `alice` with a Cyrillic first letter looks like Alice.
3. The tables are those of Unicode 3.2, which every Python version has, so a replay normalises a name as the run did.
4. Anybody may send a name of any length, so each distinct letter is decomposed alone. Decomposing the whole text would
   sort its runs of combining marks in quadratic time while holding the GIL: 100,000 of them would stop a worker. Marks
   are dropped, so their order is irrelevant.
"""

from typing import Annotated
from unicodedata import ucd_3_2_0

from pydantic import AfterValidator, StringConstraints

NAME_CHARS = 200
"""Maximum length of a name."""

SHOWN_CHARS = 60
"""Characters of a rejected name that an error shows."""


def person_name(text: str) -> str:
    """Normalise the name of a person or a role; an empty name stays empty.

    Raises:
        ValueError: The text is not a valid name.
    """
    name = text.strip()
    letters = dict.fromkeys(name)
    if any(ucd_3_2_0.category(letter).startswith("C") for letter in letters):
        raise ValueError(_rejection(text, "it contains invisible characters"))
    spelled = {ord(letter): _spelled(letter) for letter in letters}
    if not all(each.isascii() for each in spelled.values()):
        raise ValueError(_rejection(text, "it contains other letters"))
    normalised = " ".join(name.translate(spelled).split())
    if name and not normalised:
        raise ValueError(_rejection(text, "it consists of accents alone"))
    if len(normalised) > NAME_CHARS:
        raise ValueError(f"a name has at most {NAME_CHARS} characters, and this one has {len(normalised)}")
    return normalised


def _spelled(letter: str) -> str:
    bare = "".join(part for part in _decomposed(letter) if not ucd_3_2_0.category(part).startswith("M"))
    spelled = "".join(map(_decomposed, bare.casefold()))
    return " " if spelled.isspace() else spelled


def _decomposed(letter: str) -> str:
    return ucd_3_2_0.normalize("NFKD", letter)


def _rejection(text: str, why: str) -> str:
    shown = text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"
    return f"{shown!a} is not a valid name: names are ids in ASCII letters, digits and punctuation; {why}"


PersonName = Annotated[str, StringConstraints(max_length=NAME_CHARS), AfterValidator(person_name)]
"""A name in any spelling; validation normalises it."""
