"""Front matter as people write it: text that YAML would reject or truncate although its meaning is unambiguous.

description: Use when: someone asks for a report     YAML: not valid, because of the second colon
description: Answers issues such as #12              YAML: the text ends before the number sign
"""

import json
import re

_FIELD = re.compile(r"^(?P<name>[A-Za-z][\w-]*):[ \t]+(?P<text>\S.*?)[ \t]*$", re.MULTILINE)
_MORE = re.compile(r"\n(?:[ \t]+\S.*|[ \t]*(?=\n[ \t]+\S))")
"""A line that continues a field's text, or a blank one before such a line."""
_OTHER_STYLES = "\"'|>[]{}&*!%@`#,?"
"""The first characters of text in a style other than plain."""


def with_plain_text(front_matter: str, *, always: bool = False) -> str:
    """Quote the texts of top-level fields that YAML would misread.

    Args:
        front_matter: YAML.
        always: Also quote a description that begins like quoted text, a list or an alias, but not like a block of text.
    """
    parts: list[str] = []
    written = seen = 0
    for field in _FIELD.finditer(front_matter):
        if field.start() < seen:
            continue  # a line within the previous field's text
        start, end = field.span()
        is_plain = field["text"][0] not in _OTHER_STYLES
        is_quoted = field["name"] == "description" and always and field["text"][0] not in "|>"
        if not is_plain and not is_quoted:
            continue
        while more := _MORE.match(front_matter, end):
            end = more.end()
        seen = end
        text = " ".join(front_matter[field.start("text") : end].split())
        if is_quoted or _is_misread(field["name"], text):
            parts += [front_matter[written:start], f"{field['name']}: {json.dumps(text, ensure_ascii=False)}"]
            written = end
    return "".join([*parts, front_matter[written:]])


def _is_misread(name: str, text: str) -> bool:
    """Whether YAML rejects a plain text, or truncates it at an apparent comment."""
    return ": " in text or text.endswith(":") or (name == "description" and " #" in text)
