"""Secrets of tools: declared by name, read from the worker's environment, and accessed at the moment of use.

    @tool(effect="verifiable", check=find_payment, secrets=("STRIPE_KEY",))
    async def pay(cents: int, context: ToolContext) -> str:
        '''Pay an invoice.'''
        return await stripe(context.secret("STRIPE_KEY")).pay(cents, key=context.key)

1. A worker reads only the secrets that the tools of its catalog declare, and no other part of the environment.
2. Names are never recorded, and values leave this module only through `Secrets.value`.
3. Text passes through `Secrets.redact` before it is recorded, logged or shown to the LLM. It finds a value verbatim, as
   written in JSON, `repr` or URLs, and in base64; it does not find one that was cut, encrypted or reversed.
"""

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Final
from urllib.parse import quote, quote_plus

from holdfast.errors import HoldfastError

MIN_CHARS: Final = 8
"""Minimum length of a value that is redacted: shorter ones would match everywhere."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


class SecretNotDeclared(HoldfastError):
    """A tool requests a secret that its `@tool` does not declare."""


class Secrets:
    """Secret values by name. The `repr` shows names only, so that logs and tracebacks reveal nothing.

    Args:
        values: Each secret's value by its name; redaction puts the name in place of the value.
        more: Further names and texts that reveal a secret, such as the user and password of a URL.
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
        # The longest first, because one value may be part of another.
        self._forms = sorted(self._names, key=len, reverse=True)

    def value(self, name: str) -> str:
        """Return the value of a secret.

        Raises:
            SecretNotDeclared: The tool does not declare a secret with this name.
        """
        try:
            return self._values[name]
        except KeyError:
            known = ", ".join(self._values) or "none"
            raise SecretNotDeclared(
                f"the tool does not declare the secret {name!r} (declared: {known}); "
                f'declare it with @tool(secrets=("{name}",)), and set it where workers run'
            ) from None

    def redact(self, text: str) -> str:
        """Replace every value of `MIN_CHARS` characters or more in `text` with `[secret NAME]`."""
        # Searching for each form is faster than one pattern for all, and most texts contain none.
        present = [form for form in self._forms if form in text]
        if not present:
            return text
        pattern = re.compile("|".join(map(re.escape, present)))
        return pattern.sub(lambda match: f"[secret {self._names[match[0]]}]", text)

    @cached_property
    def forms(self) -> Mapping[str, Sequence[str]]:
        """The texts that `redact` replaces, by their first character."""
        forms: dict[str, list[str]] = {}
        for form in self._forms:
            forms.setdefault(form[0], []).append(form)
        return forms

    @cached_property
    def pattern(self) -> re.Pattern[str] | None:
        """Finds these texts, the longest first; None if there are none."""
        return re.compile("|".join(map(re.escape, self._forms))) if self._forms else None

    def only(self, names: Iterable[str]) -> "Secrets":
        """Return the subset of secrets with these names, such as those of one tool; unknown names are ignored."""
        return Secrets({name: self._values[name] for name in names if name in self._values})

    def __or__(self, other: "Secrets") -> "Secrets":
        return Secrets({**self._values, **other._values}, more=(*self._more, *other._more))

    def __repr__(self) -> str:
        return f"Secrets({', '.join(self._values)})"


NO_SECRETS: Final = Secrets({})


def is_secret_name(name: object) -> bool:
    """Whether `name` can be the name of an environment variable."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def _forms(value: str) -> set[str]:
    """Return the forms of a value in texts: plain, in JSON, in `repr`, nested in each other, in URLs and in base64."""
    forms = {value, value.encode("utf-8", "replace").decode()}
    in_urls = {write(text, errors="replace") for text in forms for write in (partial(quote, safe=""), quote_plus)}
    for _ in range(2):  # such as the `repr` of a KeyError's text in a line of JSON
        forms |= {
            written[1:-1]
            for text in forms
            for written in (json.dumps(text), json.dumps(text, ensure_ascii=False), repr(text))
        }
    return forms | in_urls | set(_in_base64(value.encode("utf-8", "replace")))


def _in_base64(value: bytes) -> Iterator[str]:
    """Yield a value in base64: alone, and within longer data, in which it can start at any of three byte offsets."""
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        alone = encode(value).decode()
        yield from (alone, alone.rstrip("="))
        for before in range(3):
            first = (0, 2, 3)[before]  # characters that encode part of the preceding bytes
            whole = (before + len(value)) * 8 // 6  # characters that encode nothing of the following bytes
            if len(within := encode(bytes(before) + value)[first:whole].decode()) >= MIN_CHARS:
                yield within
