"""For tests, ours and yours: the scripted LLM, served over HTTP, what every store must do, and the kill matrix."""

from holdfast.testing.conformance import ArtifactStoreConformance, ThreadStoreConformance
from holdfast.testing.kill_matrix import KillMatrix, Survival
from holdfast.testing.kill_matrix_plan import BOUNDARIES
from holdfast.testing.memory_conformance import MemoryStoreConformance
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
    "BOUNDARIES",
    "ArtifactStoreConformance",
    "Conversation",
    "KillMatrix",
    "MemoryStoreConformance",
    "Reply",
    "Request",
    "Script",
    "ScriptedLLM",
    "Survival",
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
