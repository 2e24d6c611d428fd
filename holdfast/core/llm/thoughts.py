"""Thoughts that an LLM wrote into its text, because its server has no parser for them, apart from the answer.

1. A tag counts outside of code only, and at the beginning of the text or of a line: an answer may be about tags.
2. What is not closed is thought to its end: the answer had not begun.
3. A closing tag alone, on a line of its own, closes what began in the prompt.
4. Harmony's channels other than `final` are thoughts, unless they are calls (`holdfast.core.llm.written_calls`).
"""

import re
from collections.abc import Iterable, Iterator

from holdfast.core.base.text import is_blank
from holdfast.core.llm.blocks import ReasoningBlock, SaidBlock, TextBlock

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


def without_thoughts(blocks: Iterable[SaidBlock]) -> Iterator[SaidBlock]:
    """Yield the blocks of a reply, with the thoughts in its text as reasoning."""
    for block in blocks:
        if not isinstance(block, TextBlock):
            yield block
            continue
        thought, text = parted(block.text)
        if thought:
            yield ReasoningBlock(text=thought)
        if text == block.text:
            yield block
        elif not is_blank(text):
            yield block.model_copy(update={"text": text})


def parted(text: str) -> tuple[str, str]:
    """Return the thoughts in a text, and what is left of it."""
    thoughts: list[str] = []
    text = _without_channels(text, thoughts)
    if "<" not in text and "[" not in text and "◁" not in text:
        return "\n\n".join(thoughts), text
    prose = code_blanked(text)
    kept: list[str] = []
    at = 0
    opened, alone = _OPEN.search(prose), _CLOSE_ALONE.search(prose)
    if alone and (opened is None or alone.start() < opened.start()):
        thoughts.append(text[: alone.start()])
        at = alone.end()
    while opened := _OPEN.search(prose, at):
        kept.append(text[at : opened.start()])
        closed = _CLOSE.search(text, opened.end())
        thoughts.append(text[opened.end() : closed.start() if closed else len(text)])
        at = closed.end() if closed else len(text)
    kept.append(text[at:])
    found = [each.strip() for each in thoughts if each.strip()]
    if len(kept) == 1 and not at:
        return "\n\n".join(found), text
    return "\n\n".join(found), "".join(kept).lstrip()


def code_blanked(text: str) -> str:
    """Return a text of the same length, with blanks in place of code in fences."""
    return FENCE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def _without_channels(text: str, thoughts: list[str]) -> str:
    """Return a text in harmony's form without channels: those that are not `final` become thoughts."""
    if "<|channel|>" not in text:
        return text

    def kept(found: re.Match[str]) -> str:
        if found[1] == "final":
            return found[2]
        thoughts.append(found[2])
        return ""

    return _CHANNEL.sub(kept, text)
