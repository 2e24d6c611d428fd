"""Tool calls that an LLM wrote as text, because its server has no parser for them; and tools under another name.

Such text is not run: what a page or a file says could be in it, and an answer may show how a tool is called. The LLM is
asked to make the call through the API. `call` is what can only be a call: it makes up the text, or ends it outside of
code. `mention` may also be an answer that shows a call: the LLM is asked once.
"""

import json
import re
from collections.abc import Collection, Iterator
from typing import Any, Literal

from holdfast.core.base.loose_json import strict_json, unfenced
from holdfast.core.base.text import invisible_removed
from holdfast.core.llm.thoughts import FENCE, code_blanked

Written = Literal["", "mention", "call"]

_TAG = re.compile(
    r"""
    <\|?                                                           # <tool_call>, <|tool_call|>, <function=look>,
        (?: [\w.-]{1,30}[:|] )?                                    # <minimax:tool_call>, <|DSML|function_calls>,
        (?: (?:use_)?tool | function )                             # <function name="look">, <tool_use>, <|tool_sep|>
        [_ -]? (?: calls? | uses? | code | invoke | plan | sep )? (?: _section )? (?: _begin )?
        \|? (?: > | \s{1,9}name\s{0,9}= | = )
    | <\|? (?: [\w.-]{1,30}[:|] )? invoke \s{1,9} name\s{0,9}=
    | <TOOLCALL> | <\|?FunctionCall | <start_function_call> | <\|?action_start\|?> | <\|plugin\|> | <arg_key>
    | <\|python_tag\|> | \u273fFUNCTION\u273f | \[/?TOOL_(?:CALLS?|REQUEST)\] | \[ARGS\]
    | <\|channel\|> \s{0,9} \w{0,30} \s{0,9} to=                   # harmony, with its tokens and without
    | (?: ^ | <\|start\|> ) (?:assistant)? [ ]? (?:commentary|analysis)? [ ]? to=(?:functions|tools?)\.\w
    """,
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
"""What begins a call in the chat templates of open LLMs and in the prompts of agents."""

_PLAIN_SIGNS = str.maketrans("\uff5c\u2581\u25b7", "|_>")
"""Signs of some templates, and what others have in their place."""

_NAMED = ("name", "tool", "tool_name", "function", "function_name", "action", "recipient_name", "toolName")
_GIVEN = ("arguments", "parameters", "args", "params", "input", "tool_input", "action_input", "kwargs", "toolInput")
_WRAPPED = ("tool_calls", "tool_call", "function_call", "tool_uses", "function", "calls", "tool_use", "toolCall")
_BROKEN_CALL = re.compile(
    rf"[\[\s]*{{\s*[\"'](?:type[\"']\s*:\s*[\"']\w+[\"']\s*,\s*[\"'])?(?:{'|'.join(_NAMED)})[\"']\s*:\s*[\"']([^\"']*)[\"']"
    rf"\s*,\s*[\"'](?:{'|'.join(_GIVEN)})[\"']\s*:"
)
_PYTHON = re.compile(r"\[?\s*(?:print\s*\(\s*)?(?:await\s+)?([\w.-]+)\s*\((.*)\)\s*\)?\s*\]?;?", re.DOTALL)
_ACTION = re.compile(r"^[ \t*]*Action[ \t*]*:[ \t*`]*([\w.\-\"']+)(.*)$", re.IGNORECASE | re.MULTILINE)
_ACTION_INPUT = re.compile(r"^[ \t*]*Action[ _]?Input[ \t*]*:", re.IGNORECASE | re.MULTILINE)
_FINAL = re.compile(r"^[ \t*]*Final Answer[ \t*]*:", re.IGNORECASE | re.MULTILINE)
_INLINE = re.compile(r"`[^`\n]*`")
_ENDS = (">", "}", "]", ")")
_READ_CHARS = 50_000
"""Characters of a text that are searched: a longer one is a call if it begins as one."""
_LINES = 50
"""Lines of a text that may begin an object, of which no more are read."""


def written_call(text: str, tools: Collection[str]) -> Written:
    """Return whether a reply's text has a call in it.

    Args:
        text: The text, without thoughts.
        tools: The names of the agent's tools; an agent without tools makes no calls.
    """
    text = text.strip()
    ends_as_call = text.endswith(_ENDS)
    text = invisible_removed(text[:_READ_CHARS]).strip().translate(_PLAIN_SIGNS)
    if not text or not tools:
        return ""
    whole = unfenced(text)
    if _is_json_call(whole, tools) or _is_python_call(whole, tools):
        return "call"
    prose = _INLINE.sub(lambda found: " " * len(found[0]), code_blanked(whole))
    if found := _TAG.search(prose):
        return "call" if not prose[: found.start()].strip() or ends_as_call else "mention"
    if _is_action(prose, tools):
        return "mention" if _FINAL.search(prose) else "call"
    lines = [found.start() for found in re.finditer(r"^[ \t]*[\[{]", prose, re.MULTILINE)][:_LINES]
    if any(_is_json_call(prose[start:], tools) for start in lines):
        return "call"
    return "mention" if _is_shown(text, tools) else ""


def meant_tool(name: str, tools: Collection[str]) -> str:
    """Return the tool that a name in another spelling means; the name as it is if that is none, or more than one.

    `functions.look`, `default_api.look`, `look()`, `"look"`, `Look` and `look<|channel|>commentary` mean `look`.
    """
    if name in tools:
        return name
    bare = invisible_removed(name).split("<|")[0].strip(" \t\r\n\xa0\"'`*")
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
    return isinstance(name, str) and meant_tool(name, tools) in tools


def _is_json_call(text: str, tools: Collection[str]) -> bool:
    """Whether text is the JSON of calls, or begins as the JSON of one and goes wrong."""
    if text[:1] not in ("{", "["):
        return False
    if strict := strict_json(text):
        return any(_means(name, tools) for name in _called(json.loads(strict)))
    found = _BROKEN_CALL.match(text)
    return found is not None and _means(found[1], tools)


def _called(value: Any, levels: int = 3) -> Iterator[Any]:
    """Yield the names in what has the form of a call, or of a list of calls."""
    if isinstance(value, list):
        for each in value[:100]:
            yield from _called(each, levels - 1) if levels else ()
    elif isinstance(value, dict) and "description" not in value:  # a description of a tool has parameters, too
        if any(key in value for key in _GIVEN):
            yield from (value[key] for key in _NAMED if key in value)
        for key in _WRAPPED if levels else ():
            yield from _called(value.get(key), levels - 1)


def _is_python_call(text: str, tools: Collection[str]) -> bool:
    """Whether text is nothing but a call in Python's form: `look(q="a")`, `[look(q="a")]`, `print(api.look())`."""
    found = _PYTHON.fullmatch(text)
    return found is not None and _means(found[1], tools)


def _is_action(prose: str, tools: Collection[str]) -> bool:
    """Whether text has a call in the form of ReAct."""
    found = _ACTION.search(prose)
    given = found is not None and (_ACTION_INPUT.search(prose, found.end()) or found[2].lstrip().startswith(("[", "(")))
    return found is not None and bool(given) and _means(found[1].strip("\"'."), tools)


def _is_shown(text: str, tools: Collection[str]) -> bool:
    """Whether code in a text has a call of one of the tools, or a tag with a tool's name is around it."""
    for block in (found[0] for found in FENCE.finditer(text)):
        inside = unfenced(block.strip())
        named = any(re.search(rf"\b{re.escape(tool)}\b", inside) for tool in tools)
        if _is_json_call(inside, tools) or _is_python_call(inside, tools) or (named and _TAG.search(inside)):
            return True
    tag = re.match(r"<([\w-]{1,64})>", text)
    return tag is not None and tag[1] in tools and f"</{tag[1]}>" in text
