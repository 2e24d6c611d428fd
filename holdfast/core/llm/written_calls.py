"""Tool calls that an LLM wrote as text, because its server has no parser for them; and misspelt tool names.

Such text is never run: it may quote a page or a file, and an answer may show how a tool is called. Instead, the LLM is
asked to make the call through the API. A `call` can only be a call: it is the whole text, or ends it outside of code. A
`mention` may also be an answer that shows a call, so the LLM is asked only once.
"""

import json
import re
from collections.abc import Collection, Iterator
from typing import Any, Literal

from holdfast.core.base.loose_json import strict_json, unfenced, without_end_tags
from holdfast.core.base.text import remove_invisible
from holdfast.core.llm.thoughts import FENCE, blank_code

Written = Literal["", "mention", "call"]

_TAG = re.compile(
    r"""
    <\|?                                                           # <tool_call>, <|tool_call|>, <function=look>,
        (?: [\w.-]{1,30}[:|] )?                                    # <minimax:tool_call>, <|DSML|function_calls>,
        (?: (?:use_(?:mcp_)?)?tool | function )                    # <function name="look">, <tool_use>, <|tool_sep|>
        [_ -]? (?: calls? | uses? | code | invoke | plan | sep )? (?: _section )? (?: _begin | _start )?
        \|? (?: > | \s{1,9}name\s{0,9}= | = )
    | <\|? (?: [\w.-]{1,30}[:|] )? invoke \s{1,9} name\s{0,9}=
    | <\|? [\w.-]{1,30}_(?:tool|function)_?calls? \|?>             # <longcat_tool_call>
    | <TOOLCALL> | <\|?FunctionCall | <start_function_call> | <\|?action_start\|?> | <\|plugin\|> | <arg_key>
    | <\|python_tag\|> | \u273fFUNCTION\u273f | \[/?TOOL_(?:CALLS?|REQUEST)\] | \[ARGS\]
    | <\|channel\|> \s{0,9} \w{0,30} \s{0,9} to=                   # harmony, with its tokens and without
    | (?: ^ | <\|start\|> | assistant ) (?:assistant)? [ ]? (?:commentary|analysis)? [ ]? to=(?:functions|tools?)\.\w
    """,
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
"""Matches the beginning of a call in the chat templates of open LLMs and in the prompts of agents."""

_PLAIN_SIGNS = str.maketrans("\uff5c\u2581\u25b7", "|_>")
"""Replaces the special characters of some templates by those of others."""

_NAMED = ("name", "tool", "tool_name", "function", "function_name", "action", "recipient_name", "toolName")
_GIVEN = ("arguments", "parameters", "args", "params", "input", "tool_input", "action_input", "kwargs", "toolInput")
_WRAPPED = ("tool_calls", "tool_call", "function_call", "tool_uses", "function", "calls", "tool_use", "toolCall")
_BROKEN_CALL = re.compile(
    rf"[\[\s]*{{\s*[\"'](?:type[\"']\s*:\s*[\"']\w+[\"']\s*,\s*[\"'])?(?:{'|'.join(_NAMED)})[\"']\s*:\s*[\"']([^\"']*)[\"']"
    rf"\s*,\s*[\"'](?:{'|'.join(_GIVEN)})[\"']\s*:"
)
_MARKS = re.compile(
    r"(?:(?:<[^<>\n]{1,60}>|>>>|functools(?=\s*\[)|\[?(?:tool|function)[ _]calls?:)\s*){1,4}", re.IGNORECASE
)
"""Matches what templates write before a call: a tag (`<tools>`), `>>>`, `functools`, `Tool call:`."""

_ANNOUNCED = re.compile(r"\[?(?:tool|call|calling|called|using|used)\b([^{(]{0,80})[{(]", re.IGNORECASE)
_BARE = re.compile(r"([\w.-]{1,64}):?\s*(\{.*\})", re.DOTALL)
_ASSIGNMENT = re.compile(r"\w{1,64}\s*=\s*")
_PYTHON = re.compile(r"\[?\s*(?:print\s*\(\s*)?(?:await\s+)?([\w.-]+)\s*\((.*)\)\s*\)?\s*\]?;?", re.DOTALL)
_ACTION = re.compile(r"^[ \t*]*Action[ \t*]*:[ \t*`]*([\w.\-\"']+)(.*)$", re.IGNORECASE | re.MULTILINE)
_ACTION_INPUT = re.compile(r"^[ \t*]*Action[ _]?Input[ \t*]*:", re.IGNORECASE | re.MULTILINE)
_FINAL = re.compile(r"^[ \t*]*Final Answer[ \t*]*:", re.IGNORECASE | re.MULTILINE)
_LINE = re.compile(r"^[ \t]*(?:<[^<>\n]{1,60}>[ \t]*)?[\[{]", re.MULTILINE)
"""Matches the beginning of a line that begins with an object or a list, or with a tag before it."""

_INLINE = re.compile(r"`[^`\n]*`")
_ENDS = (">", "}", "]", ")")
_READ_CHARS = 50_000
"""Maximum number of characters of a text that are searched: a longer one is a call if it begins like one."""
_LINES = 50
"""Maximum number of lines from which an object is parsed."""


def written_call(text: str, tools: Collection[str]) -> Written:
    """Return whether a reply's text contains a call; empty if it does not.

    Args:
        text: The text, without thoughts.
        tools: The names of the agent's tools; an agent without tools makes no calls.
    """
    text = text.strip()
    ends_as_call = text.endswith(_ENDS)
    text = remove_invisible(text[:_READ_CHARS]).strip().translate(_PLAIN_SIGNS)
    if not text or not tools:
        return ""
    whole = unfenced(text)
    bare = _unmarked(whole)
    if _is_json_call(bare, tools) or _is_python_call(bare, tools) or _is_bare_call(bare, tools):
        return "call"
    prose = _INLINE.sub(lambda match: " " * len(match[0]), blank_code(whole))
    if tag := _TAG.search(prose):
        return "call" if not prose[: tag.start()].strip() or ends_as_call else "mention"
    if _is_action(prose, tools):
        return "mention" if _FINAL.search(prose) else "call"
    lines = [match.end() - 1 for match in _LINE.finditer(prose)][:_LINES]
    if any(_is_json_call(prose[start:], tools) for start in lines):
        return "call"
    may_be_one = _is_loose_call(bare, tools) or (ends_as_call and _is_announced(whole, tools))
    return "mention" if may_be_one or _is_shown(text, tools) else ""


def intended_tool(name: str, tools: Collection[str]) -> str:
    """Return the tool that a misspelt name means; the name unchanged if it matches no tool, or more than one.

    `functions.look`, `default_api.look`, `look()`, `"look"`, `Look` and `look<|channel|>commentary` mean `look`.
    """
    if name in tools:
        return name
    bare = remove_invisible(name).split("<|")[0].strip(" \t\r\n\xa0\"'`*")
    bare = re.sub(r"\s*\(\s*\)$|:\d+$", "", bare).removeprefix("to=")
    for each in (bare, re.split(r"[.:/]", bare)[-1].strip()):
        if each in tools:
            return each
        alike = [tool for tool in tools if _folded(tool) == _folded(each)]
        if each and len(alike) == 1:
            return alike[0]
    return name


def _folded(name: str) -> str:
    return re.sub(r"[-_ ]", "", name).casefold()


def _means(name: Any, tools: Collection[str]) -> bool:
    return isinstance(name, str) and intended_tool(name, tools) in tools


def _unmarked(text: str) -> str:
    """Remove marks and tags around a text."""
    marks = _MARKS.match(text)
    return without_end_tags(text[marks.end() :] if marks else text)


def _is_json_call(text: str, tools: Collection[str]) -> bool:
    """Whether text is the JSON of calls, or malformed JSON that begins like a call."""
    if text[:1] not in ("{", "["):
        return False
    if strict := strict_json(text):
        return any(_means(name, tools) for name in _called(json.loads(strict)))
    broken = _BROKEN_CALL.match(text)
    return broken is not None and _means(broken[1], tools)


def _called(value: Any, levels: int = 3) -> Iterator[Any]:
    """Yield the names of tools in a value that has the form of a call, or of a list of calls."""
    if isinstance(value, list):
        for each in value[:100]:
            yield from _called(each, levels - 1) if levels else ()
    elif isinstance(value, dict) and "description" not in value:  # a description of a tool has parameters, too
        if any(key in value for key in _GIVEN):
            yield from (value[key] for key in _NAMED if key in value)
        for key in _WRAPPED if levels else ():
            yield from _called(value.get(key), levels - 1)


def _is_python_call(text: str, tools: Collection[str]) -> bool:
    """Whether text is only a call in Python's form: `look(q="a")`, `[look(q="a")]`, `print(api.look())`."""
    match = _PYTHON.fullmatch(text)
    return match is not None and _means(match[1], tools)


def _is_bare_call(text: str, tools: Collection[str]) -> bool:
    """Whether text is a tool's name and an object: `look {"q": "a"}`."""
    match = _BARE.fullmatch(text)
    return match is not None and _means(match[1], tools) and strict_json(match[2]) is not None


def _is_announced(text: str, tools: Collection[str]) -> bool:
    """Whether text reports a call in words, which the LLM may mean as one: `[Called look with {"q": "a"}]`."""
    match = _ANNOUNCED.match(text)
    return match is not None and any(_means(word, tools) for word in re.findall(r"[\w.-]+", match[1]))


def _is_loose_call(text: str, tools: Collection[str]) -> bool:
    """Whether text names a tool without the form of a call: `{"tool": "look", "q": "a"}`, `a = look()`."""
    if assignment := _ASSIGNMENT.match(text):
        return _is_python_call(text[assignment.end() :], tools)
    strict = strict_json(text) if text[:1] == "{" else None
    value = json.loads(strict) if strict else None
    if not isinstance(value, dict):
        return False
    names = [value.get(key) for key in _NAMED if key != "name"]
    if len(value) == 1:
        names += [key for key, inner in value.items() if isinstance(inner, dict)]
    return any(_means(name, tools) for name in names)


def _is_action(prose: str, tools: Collection[str]) -> bool:
    """Whether text has a call in the form of ReAct."""
    action = _ACTION.search(prose)
    if action is None:
        return False
    has_input = _ACTION_INPUT.search(prose, action.end()) or action[2].lstrip().startswith(("[", "("))
    return bool(has_input) and _means(action[1].strip("\"'."), tools)


def _is_shown(text: str, tools: Collection[str]) -> bool:
    """Whether code in a text has a call of one of the tools, or a tag with a tool's name encloses the text."""
    for block in (match[0] for match in FENCE.finditer(text)):
        inside = unfenced(block.strip())
        named = any(re.search(rf"\b{re.escape(tool)}\b", inside) for tool in tools)
        if _is_json_call(inside, tools) or _is_python_call(inside, tools) or (named and _TAG.search(inside)):
            return True
    tag = re.match(r"<([\w-]{1,64})>", text)
    return tag is not None and tag[1] in tools and f"</{tag[1]}>" in text
