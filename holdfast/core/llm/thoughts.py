"""Separates reasoning ("thoughts") from the answer, if an LLM wrote it into its text because its server has no parser.

1. A tag counts only outside of code, and only at the beginning of a line: an answer may be about tags.
2. An unclosed tag makes the rest of the text a thought: the answer had not begun.
3. A closing tag closes a thought that began in the prompt, if it is alone on a line, or if it is the only tag of a
   text, ends a line and has an answer after it.
4. A template's token for the end of a turn, at the end of a text, is no part of it.
5. Harmony's channels other than `final` are thoughts, unless they are calls (`holdfast.core.llm.written_calls`).
"""

import re
from collections.abc import Iterable, Iterator

from holdfast.core.base.text import is_blank
from holdfast.core.llm.blocks import OutputBlock, ReasoningBlock, TextBlock

_NAME = r"(?:think(?:ing)?|thought|(?:seed|mm):think|longcat_think|antml:thinking)"
_OPENS = rf"<{_NAME}>|\[THINK\]|<\|begin_of_thought\|>|<\|START_THINKING\|>|<\|channel>thought\b|◁think▷"
_OPEN = re.compile(rf"^[ \t]*(?:{_OPENS})", re.IGNORECASE | re.MULTILINE)
_CLOSE = re.compile(
    rf"</{_NAME}>|\[/THINK\]|<\|end_of_thought\|>|<\|END_THINKING\|>|<channel\|>|◁/think▷", re.IGNORECASE
)
_TAG = re.compile(rf"{_OPENS}|{_CLOSE.pattern}", re.IGNORECASE)
_CLOSE_ALONE = re.compile(rf"^[ \t]*(?:{_CLOSE.pattern})[ \t]*$", re.IGNORECASE | re.MULTILINE)
_ANSWER = re.compile(
    r"\s*<\|(?:START_RESPONSE|begin_of_solution)\|>(.*)<\|(?:END_RESPONSE|end_of_solution)\|>\s*", re.DOTALL
)
"""Matches an answer with the marks that a template writes around it."""

FENCE = re.compile(r"^[ \t]*(```+|~~~+).*?(?:^[ \t]*\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_CHANNEL = re.compile(
    r"(?:<\|start\|>assistant)?<\|channel\|>(\w+)(?:<\|constrain\|>\w+)?\s*<\|message\|>"
    r"(.*?)(?=<\|end\|>|<\|return\|>|<\|start\|>|<\|channel\|>|\Z)(?:<\|end\|>|<\|return\|>)?",
    re.DOTALL,
)
_END = re.compile(
    r"(?:\s*(?:<\|(?:im_end|eot_id|eom_id|endoftext|end_of_text|end_of_turn|eos|end|return)\|>|<end_of_turn>|</s>)){1,4}"
    r"\s*\Z",
    re.IGNORECASE,
)

_BARE_CHANNELS = re.compile(r"\s*(?:assistant)?analysis(?=\S)(.*?)assistantfinal(.*)", re.DOTALL)
"""Matches an answer after an analysis, if a server removed the tokens between them."""


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
    opened, closed = _OPEN.search(prose), _CLOSE_ALONE.search(prose) or _only_tag(text, prose)
    if closed and (opened is None or closed.start() < opened.start()):
        thoughts.append(text[: closed.start()])
        at = closed.end()
    while opened := _OPEN.search(prose, at):
        rest.append(text[at : opened.start()])
        closed = _CLOSE.search(text, opened.end())
        thoughts.append(text[opened.end() : closed.start() if closed else len(text)])
        at = closed.end() if closed else len(text)
    rest.append(text[at:])
    stripped = [each.strip() for each in thoughts if each.strip()]
    answer = "".join(rest).lstrip() if at else text
    if "<s>" not in answer:  # HTML
        answer = answer[:-200] + _END.sub("", answer[-200:])
    marked = _ANSWER.fullmatch(answer)
    return "\n\n".join(stripped), marked[1].lstrip() if marked else answer


def _only_tag(text: str, prose: str) -> re.Match[str] | None:
    """Return the closing tag that is a text's only tag and ends a line of prose before an answer."""
    tags = _TAG.finditer(text)
    only = next(tags, None)
    if only is None or next(tags, None) or not _CLOSE.match(prose, only.start()):
        return None
    after = text[only.end() :]
    return only if after.strip() and after.lstrip(" \t\r").startswith("\n") else None


def blank_code(text: str) -> str:
    """Replace fenced code by blanks, so that the text keeps its length."""
    return FENCE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def _without_channels(text: str, thoughts: list[str]) -> str:
    """Remove harmony's channels from a text: `final` stays as text, the others are appended to `thoughts`."""
    if bare := _BARE_CHANNELS.fullmatch(text):
        thoughts.append(bare[1])
        return bare[2]
    if "<|channel|>" not in text:
        return text

    def replacement(match: re.Match[str]) -> str:
        if match[1] == "final":
            return match[2]
        thoughts.append(match[2])
        return ""

    return _CHANNEL.sub(replacement, text)
