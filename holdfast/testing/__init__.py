"""Public test tools: your agent in a test, a scripted LLM, conformance suites for stores, and the kill matrix.

from holdfast.testing import ScriptedLLM, say

with ScriptedLLM(lambda conversation: say("Hello.")) as llm:
    print(llm.base_url)  # set OPENAI_BASE_URL to this
"""

from holdfast.endpoints.script import (
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
    paced,
    raw,
    say,
    slow,
    steps,
    together,
)
from holdfast.endpoints.scripted_server import Request, ScriptedLLM
from holdfast.evaluation.compare.evaluation import Evaluation
from holdfast.testing.call_records import CallRecord
from holdfast.testing.conformance import ArtifactStoreConformance, ThreadStoreConformance
from holdfast.testing.kill_matrix.matrix import KillMatrix, Survival
from holdfast.testing.kill_matrix.plan import BOUNDARIES, INTERVENTION_BOUNDARIES
from holdfast.testing.memory_conformance import MemoryStoreConformance
from holdfast.testing.replaying import replay
from holdfast.testing.scripted_run import ScriptedRun, agent

__all__ = [
    "BOUNDARIES",
    "INTERVENTION_BOUNDARIES",
    "ArtifactStoreConformance",
    "CallRecord",
    "Conversation",
    "Evaluation",
    "KillMatrix",
    "MemoryStoreConformance",
    "Reply",
    "Request",
    "Script",
    "ScriptedLLM",
    "ScriptedRun",
    "Survival",
    "ThreadStoreConformance",
    "Unparsed",
    "agent",
    "call",
    "call_verbatim",
    "cut_off",
    "default_script",
    "disconnect",
    "fail",
    "hang",
    "paced",
    "raw",
    "replay",
    "say",
    "slow",
    "steps",
    "together",
]
