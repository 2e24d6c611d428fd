"""Separates reasoning ("thoughts") from the answer, if an LLM wrote it into its text because its server has no parser.

1. A tag counts only outside of code, and only at the beginning of a line: an answer may be about tags.
2. An unclosed tag makes the rest of the text a thought: the answer had not begun.
3. A closing tag that is alone on a line closes a thought that began in the prompt.
4. Harmony's channels other than `final` are thoughts, unless they are calls (`holdfast.core.llm.written_calls`).
"""

import re
from collections.abc import Iterable, Iterator

from holdfast.core.base.text import is_blank
from holdfast.core.llm.blocks import OutputBlock, ReasoningBlock, TextBlock

_NAME = r"(?:think(?:ing)?|thought|seed:think|antml:thinking)"
_OPEN = re.compile(rf"^[ \t]*(?:<({_NAME})>|\[THINK\]|<\|begin_of_thought\|>|◁think▷)", re.IGNORECASE | re.MULTILINE)
_CLOSE = re.compile(rf"</{_NAME}>|\[/THINK\]|<\|end_of_thought\|>|◁/think▷", re.IGNORECASE)
_CLOSE_ALONE = re.compile(rf"^[ \t]*(?:{_CLOSE.pattern})[ \t]*$", re.IGNORECASE | re.MULTILINE)
FENCE = re.compile(r"^[ \t]*(```+|~~~+).*?(?:^[ \t]*\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_CHANNEL = re.compile(
    r"(?:<\|start\|>assistant)?<\|channel\|>(\w+)(?:<\|constrain\|>\w+)?\s*<\|message\|>"
    r"(.*?)(?=<\|end\|>|<\|return\|>|<\|start\|>|<\|channel\|>|\Z)(?:<\|end\|>|<\|return\|>)?",
    re.DOTALL,
)


def without_thoughts(blocks: Iterable[OutputBlock]) -> Iterator[OutputBlock]:
    """Yield the blocks of a reply, with thoughts in its text turned into reasoning blocks."""
    for block in blocks:
        if not isinstance(block, TextBlock):
            yield block
            continue
        thought, text = split_thoughts(block.text)
        if thought:
            yield ReasoningBlock(text=thought)
        if text == block.text:
            yield block
        elif not is_blank(text):
            yield block.model_copy(update={"text": text})


def split_thoughts(text: str) -> tuple[str, str]:
    """Split a text into its thoughts and the rest."""
    thoughts: list[str] = []
    text = _without_channels(text, thoughts)
    if "<" not in text and "[" not in text and "◁" not in text:
        return "\n\n".join(thoughts), text
    prose = blank_code(text)
    rest: list[str] = []
    at = 0
    opened, alone = _OPEN.search(prose), _CLOSE_ALONE.search(prose)
    if alone and (opened is None or alone.start() < opened.start()):
        thoughts.append(text[: alone.start()])
        at = alone.end()
    while opened := _OPEN.search(prose, at):
        rest.append(text[at : opened.start()])
        closed = _CLOSE.search(text, opened.end())
        thoughts.append(text[opened.end() : closed.start() if closed else len(text)])
        at = closed.end() if closed else len(text)
    rest.append(text[at:])
    stripped = [each.strip() for each in thoughts if each.strip()]
    if len(rest) == 1 and not at:
        return "\n\n".join(stripped), text
    return "\n\n".join(stripped), "".join(rest).lstrip()


def blank_code(text: str) -> str:
    """Replace fenced code by blanks, so that the text keeps its length."""
    return FENCE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def _without_channels(text: str, thoughts: list[str]) -> str:
    """Remove harmony's channels from a text: `final` stays as text, the others are appended to `thoughts`."""
    if "<|channel|>" not in text:
        return text

    def replacement(match: re.Match[str]) -> str:
        if match[1] == "final":
            return match[2]
        thoughts.append(match[2])
        return ""

    return _CHANNEL.sub(replacement, text)
