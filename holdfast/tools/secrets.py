"""Secrets of tools: declared by name, read from the worker's environment, handed out at the moment of use.

    @tool(effect="verifiable", check=find_payment, secrets=("STRIPE_KEY",))
    async def pay(cents: int, context: ToolContext) -> str:
        '''Pay an invoice.'''
        return await stripe(context.secret("STRIPE_KEY")).pay(cents, key=context.key)

1. The allow-list of a worker is what the tools of its catalog declare. Nothing else of the environment is read.
2. Names are recorded nowhere, and values leave this module in two ways only: `Secrets.value`, and not at all.
3. What is about to be recorded, logged or shown to the LLM goes through `Secrets.redact` first. It knows a value as it
   is, as JSON, `repr` and URLs write it, and in base64; not one that was cut, encrypted or reversed.
"""

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Final
from urllib.parse import quote, quote_plus

from holdfast.errors import HoldfastError

MIN_CHARS: Final = 8
"""Shorter values are not looked for in texts: they would turn up everywhere, and guard nothing."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


class SecretNotDeclared(HoldfastError):
    """A tool asks for a secret that its `@tool` does not name."""


class Secrets:
    """Values by name. Their text shows names only, so that one in a log or a traceback tells nothing.

    Args:
        values: Each secret's value by its name, which stands for it wherever it is found.
        more: Further texts that give a secret away, by the same names: an URL's user and password.
    """

    def __init__(self, values: Mapping[str, str], *, more: Iterable[tuple[str, str]] = ()) -> None:
        self._values = dict(values)
        self._more = tuple(more)
        self._names = {
            form: name
            for name, value in (*self._values.items(), *self._more)
            if len(value.strip()) >= MIN_CHARS
            for form in _forms(value.strip())
        }
        # The longest first: one value may be a part of another.
        self._forms = sorted(self._names, key=len, reverse=True)

    def value(self, name: str) -> str:
        """The secret itself.

        Raises:
            SecretNotDeclared: There is none of that name here.
        """
        try:
            return self._values[name]
        except KeyError:
            known = ", ".join(self._values) or "none"
            raise SecretNotDeclared(
                f"secret {name!r} is not one that the tool declares ({known}); "
                f'name it: @tool(secrets=("{name}",)), and set it where workers run'
            ) from None

    def redact(self, text: str) -> str:
        """`text` with `[secret NAME]` wherever it holds a value of `MIN_CHARS` characters or more."""
        # Looking for each is faster than one pattern of all, and most texts hold none.
        there = [form for form in self._forms if form in text]
        if not there:
            return text
        pattern = re.compile("|".join(map(re.escape, there)))
        return pattern.sub(lambda found: f"[secret {self._names[found[0]]}]", text)

    def only(self, names: Iterable[str]) -> "Secrets":
        """Those of these names that there are: what one tool may ask for."""
        return Secrets({name: self._values[name] for name in names if name in self._values})

    def __or__(self, other: "Secrets") -> "Secrets":
        return Secrets({**self._values, **other._values}, more=(*self._more, *other._more))

    def __repr__(self) -> str:
        return f"Secrets({', '.join(self._values)})"


NO_SECRETS: Final = Secrets({})


def is_secret_name(name: object) -> bool:
    """Whether that can be the name of an environment variable."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def _forms(value: str) -> set[str]:
    """A value as texts write it: plain, in JSON, in `repr`, in one within another, in URLs, and in base64."""
    forms = {value, value.encode("utf-8", "replace").decode()}
    in_urls = {write(text, errors="replace") for text in forms for write in (partial(quote, safe=""), quote_plus)}
    for _ in range(2):  # the `repr` of a KeyError's text, in a line of JSON
        forms |= {
            written[1:-1]
            for text in forms
            for written in (json.dumps(text), json.dumps(text, ensure_ascii=False), repr(text))
        }
    return forms | in_urls | set(_in_base64(value.encode("utf-8", "replace")))


def _in_base64(value: bytes) -> Iterator[str]:
    """A value in base64, alone or within more: three bytes are four characters, so there are three ways to begin."""
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        alone = encode(value).decode()
        yield from (alone, alone.rstrip("="))
        for before in range(3):
            first = (0, 2, 3)[before]  # characters that hold a part of what comes before
            whole = (before + len(value)) * 8 // 6  # characters that hold nothing of what comes after
            if len(within := encode(bytes(before) + value)[first:whole].decode()) >= MIN_CHARS:
                yield within
