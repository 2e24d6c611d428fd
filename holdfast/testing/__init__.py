"""For tests, ours and yours: the scripted LLM, served over HTTP."""

from holdfast.testing.script import (
    Conversation,
    Reply,
    Script,
    Unparsed,
    call,
    call_verbatim,
    cut_off,
    default_script,
    disconnect,
    fail,
    hang,
    raw,
    say,
    slow,
    steps,
    together,
)
from holdfast.testing.scripted_llm import Request, ScriptedLLM

__all__ = [
    "Conversation",
    "Reply",
    "Request",
    "Script",
    "ScriptedLLM",
    "Unparsed",
    "call",
    "call_verbatim",
    "cut_off",
    "default_script",
    "disconnect",
    "fail",
    "hang",
    "raw",
    "say",
    "slow",
    "steps",
    "together",
]
