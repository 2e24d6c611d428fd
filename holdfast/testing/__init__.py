"""For tests, ours and yours: the scripted LLM, served over HTTP, and what every store must do."""

from holdfast.testing.conformance import ArtifactStoreConformance, ThreadStoreConformance
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
    "ArtifactStoreConformance",
    "Conversation",
    "Reply",
    "Request",
    "Script",
    "ScriptedLLM",
    "ThreadStoreConformance",
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
