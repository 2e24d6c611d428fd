r"""Converts JSON as LLMs write it to strict JSON, if it has only one meaning. Numbers keep their digits.

Beyond JSON, it accepts a byte order mark, a code fence around the whole text, line breaks and control characters in
strings, a trailing comma, and the spelling of other languages: single quotes, `\'`, `True`, `False`, `None`, a name
without quotes as a key. It rejects incomplete text and ambiguous text, such as two elements without a comma or a
duplicate key.
"""

import json
import re

MAX_DEPTH = 100
"""Maximum nesting; deeper text is rejected."""

MAX_VALUES = 4
"""Maximum number of values that follow each other."""

_FENCES = ("```", "~~~")
_LANGUAGE = re.compile(r"[ \t]*\w*[ \t]*\n?")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])", re.ASCII)
_KEY = re.compile(r"[A-Za-z_]\w*")
_END_TAGS = re.compile(r"(?:\s*<[^<>\n]{1,60}>){1,4}\s*\Z")
_END_CHARS = 300
"""Number of characters at the end of a text that are searched for tags."""

_WORD = re.compile(r"[A-Za-z]+")
_WORDS = {"true": "true", "false": "false", "null": "null", "True": "true", "False": "false", "None": "null"}
_DOUBLE = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_SINGLE = re.compile(r"'((?:[^'\\]|\\.)*)'", re.DOTALL)
_ESCAPED = re.compile(r"\\.|\"", re.DOTALL)
_AROUND = "\ufeff\u200b\u2060\xa0 \t\r\n"


def strict_json(text: str) -> str | None:
    """Convert `text` to strict JSON; None if it is incomplete or ambiguous."""
    values = strict_values(text)
    return values[0] if len(values) == 1 else None


def strict_values(text: str) -> list[str]:
    """Convert up to `MAX_VALUES` values that follow each other to strict JSON; return none if there are more, or if one
    is incomplete or ambiguous.
    """
    text = unfenced(text.strip(_AROUND))
    values: list[str] = []
    at = 0
    try:
        while at < len(text):
            if len(values) == MAX_VALUES:
                return []
            value, at = _value(text, at, 0)
            values.append(value)
            while text[at : at + 1].isspace():
                at += 1
    except (ValueError, IndexError):
        return []
    return values


def unfenced(text: str) -> str:
    """Remove a code fence around the whole text, if there is one."""
    fence = text[:3]
    if fence not in _FENCES or not text[3:].endswith(fence):
        return text
    inner = text[3:-3].strip(fence[0])
    language = _LANGUAGE.match(inner)
    return inner[language.end() if language else 0 :].strip(_AROUND)


def without_end_tags(text: str) -> str:
    """Remove up to four tags at the end of a text, as a template writes them after a call."""
    return text[:-_END_CHARS] + _END_TAGS.sub("", text[-_END_CHARS:])


def _value(text: str, at: int, depth: int) -> tuple[str, int]:
    """Return the value that begins at a position, as strict JSON, and the position of its end.

    Raises:
        ValueError: No value begins there.
        IndexError: The text ends before the value does.
    """
    if depth > MAX_DEPTH:
        raise ValueError("too deep")
    at = _after_space(text, at)
    match text[at]:
        case "{":
            return _members(text, at + 1, depth)
        case "[":
            return _elements(text, at + 1, depth)
        case '"' | "'":
            return _string(text, at)
    if number := _NUMBER.match(text, at):
        return number[0], number.end()
    word = _WORD.match(text, at)
    if word is None or word[0] not in _WORDS:
        raise ValueError("no value")
    return _WORDS[word[0]], word.end()


def _members(text: str, at: int, depth: int) -> tuple[str, int]:
    members: dict[str, str] = {}
    while text[at := _after_space(text, at)] != "}":
        key, at = _key(text, at)
        if key in members or text[at := _after_space(text, at)] != ":":
            raise ValueError("no pair, or one key twice")
        members[key], at = _value(text, at + 1, depth + 1)
        at = _after_comma(text, at, "}")
    return "{" + ",".join(f"{key}:{value}" for key, value in members.items()) + "}", at + 1


def _elements(text: str, at: int, depth: int) -> tuple[str, int]:
    elements: list[str] = []
    while text[at := _after_space(text, at)] != "]":
        element, at = _value(text, at, depth + 1)
        elements.append(element)
        at = _after_comma(text, at, "]")
    return "[" + ",".join(elements) + "]", at + 1


def _key(text: str, at: int) -> tuple[str, int]:
    name = _KEY.match(text, at)
    if name and name[0] in _WORDS:  # Python's own JSON has `true` for the key `True`
        raise ValueError("no name")
    return (json.dumps(name[0]), name.end()) if name else _string(text, at)


def _string(text: str, at: int) -> tuple[str, int]:
    match = (_DOUBLE if text[at] == '"' else _SINGLE).match(text, at)
    if match is None:
        raise ValueError("no text")
    inner = _ESCAPED.sub(lambda part: {"\\'": "'", '"': '\\"'}.get(part[0], part[0]), match[1])
    return json.dumps(json.loads(f'"{inner}"', strict=False)), match.end()


def _after_space(text: str, at: int) -> int:
    while text[at] in " \t\r\n\xa0\ufeff":
        at += 1
    return at


def _after_comma(text: str, at: int, end: str) -> int:
    """Skip the comma after an element; after the last one it is optional."""
    at = _after_space(text, at)
    if text[at] == ",":
        return at + 1
    if text[at] != end:
        raise ValueError("no comma")
    return at
