"""The consequence of a call, in a sentence that the author of its tool has written: `pays {cents} to {iban}`.

1. The sentence has the values of arguments and nothing else of the call: they are those that are judged, shown and run.
2. A text in it is quoted as JSON does, with invisible characters escaped. So no value passes for the author's words.
3. It is for people. No rule reads it, and what they decide about is the arguments, which are shown in full beside it.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from holdfast.core.base.text import invisible, visible_json
from holdfast.errors import ToolSignatureError

SENTENCE_CHARS = 300
"""Maximum length of a sentence, with its placeholders."""

VALUE_CHARS = 200
"""Maximum length of a value in the sentence; a longer one is cut, and the sentence says so."""

_PART = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


def check_consequence(tool: str, sentence: str, *, parameters: Collection[str]) -> str:
    """Return the sentence of a tool's definition, unless it cannot be used.

    Args:
        tool: The tool's name.
        sentence: The sentence, with parameters in braces; empty for none.
        parameters: The names of the tool's parameters.

    Raises:
        ToolSignatureError: It is no single line of text, or a placeholder is not the name of a parameter.
    """
    if not isinstance(sentence, str) or "\n" in sentence or invisible(sentence) or len(sentence) > SENTENCE_CHARS:
        raise ToolSignatureError(
            f"tool {tool!r}: consequence={sentence!r} is not one line of at most {SENTENCE_CHARS} visible characters"
        )
    for part in _PART.finditer(sentence):
        if part.group() in ("{{", "}}"):
            continue
        if part[1] is None:
            raise ToolSignatureError(
                f"tool {tool!r}: consequence={sentence!r} has a single {part.group()!r}: double it"
            )
        if part[1] not in parameters:
            raise ToolSignatureError(
                f"tool {tool!r}: consequence={sentence!r} names {part[1]!r}, which is not a parameter of the tool "
                f"({', '.join(parameters) or 'it has none'}); a placeholder is a name alone, without a format"
            )
    return sentence


def consequence_of(sentence: str, arguments: Any, defaults: Mapping[str, Any]) -> str:
    """Return the sentence for a call; empty if the tool has none, or if an argument that it names is missing.

    Args:
        sentence: The tool's sentence, which was checked at its definition.
        arguments: The call's arguments, parsed.
        defaults: The defaults of parameters.
    """
    if not sentence or not isinstance(arguments, Mapping):
        return ""
    values = {**defaults, **arguments}
    parts = list(_parts(sentence, values))
    return "" if None in parts else "".join(part for part in parts if part is not None)


def _parts(sentence: str, values: Mapping[str, Any]) -> Iterator[str | None]:
    end = 0
    for part in _PART.finditer(sentence):
        yield sentence[end : part.start()]
        end = part.end()
        if part[1] is None:
            yield part.group()[0]
        else:
            yield _shown(values[part[1]]) if part[1] in values else None
    yield sentence[end:]


def _shown(value: Any) -> str:
    if isinstance(value, str) and len(value) > VALUE_CHARS:
        return f"{_quoted(value[:VALUE_CHARS])}… (the first {VALUE_CHARS} of {len(value):,} characters)"
    text = _quoted(value)
    # Cutting JSON could end within a quoted text, so a long value that is no text is only counted.
    return text if isinstance(value, str) or len(text) <= VALUE_CHARS else f"a value of {len(text):,} characters"


def _quoted(value: Any) -> str:
    return visible_json(json.dumps(value, ensure_ascii=False))
