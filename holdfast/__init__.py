"""Holdfast: a durable agent runtime on Temporal. What a user's catalog, stores, tests and client import is here.

`holdfast.testing` has the test tools, `holdfast.errors` the whole tree of errors. Everything else may move.
"""

import sys


def _is_run_as_module() -> bool:
    """Whether Python was started as `python -m holdfast…`, and is looking for that module."""
    following = [*sys.orig_argv[2:], ""]
    for word, after in zip(sys.orig_argv[1:], following, strict=True):
        flags, found, rest = word.partition("m")
        if found and flags.startswith("-") and not {*"-cWX"} & {*flags[1:]}:
            return sys.argv[:1] == ["-m"] and (rest or after).partition(".")[0] == __name__
    return False


if _is_run_as_module() and not sys.flags.safe_path:
    del sys.path[0]  # the current directory, before any import: a folder's files must not take the place of modules

from functools import cache  # noqa: E402
from importlib import import_module  # noqa: E402
from typing import TYPE_CHECKING, Any  # noqa: E402

from holdfast.version import __version__ as __version__  # noqa: E402

if TYPE_CHECKING:
    from holdfast.agents.agent import Agent, Limits, Memory
    from holdfast.agents.catalog import Catalog
    from holdfast.agents.middleware import (
        CallRefused,
        LLMCall,
        LLMResult,
        Middleware,
        ProceedLLM,
        ProceedTool,
        ToolCall,
        ToolResult,
    )
    from holdfast.agents.providers import Provider, resource
    from holdfast.agents.skills import Skill, SkillInvalid
    from holdfast.authority.policy import (
        Approver,
        Escalation,
        Extensions,
        Gateway,
        Policy,
        Rule,
        Signer,
        Terms,
        allow,
        ask,
        deny,
    )
    from holdfast.base.digests import address_of
    from holdfast.base.paths import WorkspacePath
    from holdfast.budget.budget import Amounts, Budget
    from holdfast.errors import (
        ArtifactAltered,
        ArtifactNotFound,
        CatalogError,
        HistoryForged,
        HistoryUnreadable,
        HoldfastError,
        LoadError,
        NotAccepted,
        NoWorker,
        PolicyError,
        RecordConflict,
        RecordGap,
        Refused,
        ResourceFailed,
        ResultNotStructured,
        RunCancelled,
        RunFailed,
        ServerUnreachable,
        SettingsError,
        StackError,
        TaskDiffers,
        ThreadNotFound,
        ToolSignatureError,
    )
    from holdfast.llm.blocks import AudioBlock, FileBlock, ImageBlock, TextBlock
    from holdfast.memory.semantic import ItemNotFound, ItemRefused, MemoryItem, MemoryStore, NewMemory, Recalled
    from holdfast.portable.manifest import Exported, Imported
    from holdfast.runtime.api.client import Client
    from holdfast.runtime.api.schedules import Schedules, ScheduleState
    from holdfast.runtime.api.sync import SyncClient, SyncSchedules, SyncThread
    from holdfast.runtime.api.thread import Thread
    from holdfast.runtime.api.views import PendingRequest, Result, ThreadState, ThreadSummary
    from holdfast.runtime.audit.verdicts import Verification
    from holdfast.runtime.client.publishing import Publication
    from holdfast.runtime.client.signed_requests import sign_request
    from holdfast.runtime.in_memory.artifacts import InMemoryArtifacts
    from holdfast.runtime.in_memory.memories import InMemoryMemories
    from holdfast.runtime.in_memory.threads import InMemoryThreads
    from holdfast.runtime.memory.skills import load_skills
    from holdfast.runtime.memory.tools import memory_tools
    from holdfast.runtime.workspace.file_tools import workspace_tools
    from holdfast.runtime.workspace.sandbox import Confinement
    from holdfast.stores import ArtifactStore, SetsAside, ThreadStore, aside_id
    from holdfast.temporal.history_reader import read_events
    from holdfast.tools.cannot import Cannot
    from holdfast.tools.decorator import Absent, Found, Tool, ToolContext, Unknown, tool
    from holdfast.tools.effects import Effect
    from holdfast.tools.not_done import NotDone
    from holdfast.tools.resources import Resource
    from holdfast.tools.secrets import SecretNotDeclared, Secrets
    from holdfast.trust import Trust


__all__ = [
    "Absent",
    "Agent",
    "Amounts",
    "Approver",
    "ArtifactAltered",
    "ArtifactNotFound",
    "ArtifactStore",
    "AudioBlock",
    "Budget",
    "CallRefused",
    "Cannot",
    "Catalog",
    "CatalogError",
    "Client",
    "Confinement",
    "Effect",
    "Escalation",
    "Exported",
    "Extensions",
    "FileBlock",
    "Found",
    "Gateway",
    "HistoryForged",
    "HistoryUnreadable",
    "HoldfastError",
    "ImageBlock",
    "Imported",
    "InMemoryArtifacts",
    "InMemoryMemories",
    "InMemoryThreads",
    "ItemNotFound",
    "ItemRefused",
    "LLMCall",
    "LLMResult",
    "Limits",
    "LoadError",
    "Memory",
    "MemoryItem",
    "MemoryStore",
    "Middleware",
    "NewMemory",
    "NoWorker",
    "NotAccepted",
    "NotDone",
    "PendingRequest",
    "Policy",
    "PolicyError",
    "ProceedLLM",
    "ProceedTool",
    "Provider",
    "Publication",
    "Recalled",
    "RecordConflict",
    "RecordGap",
    "Refused",
    "Resource",
    "ResourceFailed",
    "Result",
    "ResultNotStructured",
    "Rule",
    "RunCancelled",
    "RunFailed",
    "ScheduleState",
    "Schedules",
    "SecretNotDeclared",
    "Secrets",
    "ServerUnreachable",
    "SetsAside",
    "SettingsError",
    "Signer",
    "Skill",
    "SkillInvalid",
    "StackError",
    "SyncClient",
    "SyncSchedules",
    "SyncThread",
    "TaskDiffers",
    "Terms",
    "TextBlock",
    "Thread",
    "ThreadNotFound",
    "ThreadState",
    "ThreadStore",
    "ThreadSummary",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolResult",
    "ToolSignatureError",
    "Trust",
    "Unknown",
    "Verification",
    "WorkspacePath",
    "address_of",
    "allow",
    "aside_id",
    "ask",
    "deny",
    "load_skills",
    "memory_tools",
    "read_events",
    "resource",
    "sign_request",
    "tool",
    "workspace_tools",
]

_MODULES = {
    "holdfast.agents.agent": "Agent Limits Memory",
    "holdfast.agents.catalog": "Catalog",
    "holdfast.agents.middleware": "CallRefused LLMCall LLMResult Middleware ProceedLLM ProceedTool ToolCall ToolResult",
    "holdfast.agents.providers": "Provider resource",
    "holdfast.agents.skills": "Skill SkillInvalid",
    "holdfast.authority.policy": "Approver Escalation Extensions Gateway Policy Rule Signer Terms allow ask deny",
    "holdfast.base.digests": "address_of",
    "holdfast.base.paths": "WorkspacePath",
    "holdfast.budget.budget": "Amounts Budget",
    "holdfast.errors": "ArtifactAltered ArtifactNotFound CatalogError HistoryForged HistoryUnreadable HoldfastError "
    "LoadError "
    "NoWorker NotAccepted PolicyError RecordConflict RecordGap Refused ResourceFailed ResultNotStructured RunCancelled "
    "RunFailed ServerUnreachable SettingsError StackError TaskDiffers ThreadNotFound ToolSignatureError",
    "holdfast.llm.blocks": "AudioBlock FileBlock ImageBlock TextBlock",
    "holdfast.memory.semantic": "ItemNotFound ItemRefused MemoryItem MemoryStore NewMemory Recalled",
    "holdfast.portable.manifest": "Exported Imported",
    "holdfast.runtime.api.client": "Client",
    "holdfast.runtime.api.schedules": "ScheduleState Schedules",
    "holdfast.runtime.api.sync": "SyncClient SyncSchedules SyncThread",
    "holdfast.runtime.api.thread": "Thread",
    "holdfast.runtime.api.views": "PendingRequest Result ThreadState ThreadSummary",
    "holdfast.runtime.audit.verdicts": "Verification",
    "holdfast.runtime.client.publishing": "Publication",
    "holdfast.runtime.client.signed_requests": "sign_request",
    "holdfast.runtime.in_memory.artifacts": "InMemoryArtifacts",
    "holdfast.runtime.in_memory.memories": "InMemoryMemories",
    "holdfast.runtime.in_memory.threads": "InMemoryThreads",
    "holdfast.runtime.memory.skills": "load_skills",
    "holdfast.runtime.memory.tools": "memory_tools",
    "holdfast.runtime.workspace.file_tools": "workspace_tools",
    "holdfast.runtime.workspace.sandbox": "Confinement",
    "holdfast.stores": "ArtifactStore SetsAside ThreadStore aside_id",
    "holdfast.temporal.history_reader": "read_events",
    "holdfast.tools.cannot": "Cannot",
    "holdfast.tools.decorator": "Absent Found Tool ToolContext Unknown tool",
    "holdfast.tools.effects": "Effect",
    "holdfast.tools.not_done": "NotDone",
    "holdfast.tools.resources": "Resource",
    "holdfast.tools.secrets": "SecretNotDeclared Secrets",
    "holdfast.trust": "Trust",
}
_HOME = {name: module for module, names in _MODULES.items() for name in names.split()}


@cache
def _warn_once() -> None:
    """Look for the other distribution of this name when a user's program imports the first public name."""
    import_module("holdfast.runtime.namesake").warn_of_namesake()


if not TYPE_CHECKING:  # a type checker would take every misspelt name for one that is found here

    def __getattr__(name: str) -> Any:
        """Import a public name on first use: workflows and the CLI need few of them and start faster."""
        if name in _HOME:
            _warn_once()
            return getattr(import_module(_HOME[name]), name)
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names, imported or not, for completion."""
    return sorted({*globals(), *__all__})
