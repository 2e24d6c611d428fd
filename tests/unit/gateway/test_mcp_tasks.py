"""A run as a task: the status and the fields that the specification asks for."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast.api.views import ThreadState
from holdfast.api.waiting import Waited
from holdfast.client.ui_links import thread_page
from holdfast.config.settings import Settings
from holdfast.errors import SettingsError
from holdfast.gateway.mcp.tasks import POLL_MS, SLOW_POLL_MS, task_of
from holdfast.gateway.page.links import request_page
from holdfast.gateway.process import exposed_agents

BEGUN = datetime(2026, 1, 1, tzinfo=UTC)


def waited(status: str, **fields: Any) -> Waited:
    """Return a run with this status."""
    plain = {
        "thread": "t",
        "agent": "clerk",
        "step": 1,
        "events": 5,
        "task": "Work.",
        "workspace": "",
        "pending": (),
        "blocked": None,
        "usage": {},
        "result": None,
        "updated_at": datetime(2026, 1, 2, tzinfo=UTC),
    }
    return Waited(ThreadState.model_validate({**plain, "status": status, **fields}))


def test_an_open_run_is_working_and_says_what_it_waits_for() -> None:
    """While the agent works, there is nothing to say; a client asks less often while the run waits."""
    works = task_of(waited("running"), begun=BEGUN).wire("task")
    assert (works["status"], works["resultType"], works["pollIntervalMs"]) == ("working", "task", POLL_MS)
    assert "statusMessage" not in works
    blocked = {"cause": "LLMRejected", "message": "wrong key", "advice": ""}
    stuck = task_of(waited("blocked", blocked=blocked), begun=BEGUN).wire("complete")
    assert (stuck["status"], stuck["pollIntervalMs"]) == ("working", SLOW_POLL_MS)
    assert "wrong key" in stuck["statusMessage"]


def test_a_failed_run_is_a_result_that_says_so() -> None:
    """The specification keeps `failed` for errors of the protocol."""
    task = task_of(waited("failed", result="no money"), begun=BEGUN, cause="BudgetSpent").wire("complete")
    assert (task["status"], task["result"]["isError"]) == ("completed", True)
    assert "no money" in task["result"]["content"][0]["text"]


@pytest.mark.parametrize(("cause", "code"), [("ContextInvalid", -32602), ("AgentNotFound", -32603)])
def test_a_call_that_was_not_carried_out_has_failed(cause: str, code: int) -> None:
    """A context that the worker's agent rejects, or an agent that no worker has, is an error of the call."""
    task = task_of(waited("failed", result="why"), begun=BEGUN, cause=cause).wire("complete")
    assert (task["status"], task["error"]) == ("failed", {"code": code, "message": "why"})


def test_a_run_that_is_not_ours_has_failed() -> None:
    """Nothing that it says is passed on."""
    task = task_of(waited("unauthenticated", result="Paid.", warning="forged"), begun=BEGUN).wire("complete")
    assert (task["status"], task["error"]["message"]) == ("failed", "forged")
    assert "Paid." not in str(task)


def test_a_typed_result_is_structured_also_if_it_is_no_object() -> None:
    """The value comes as JSON, and as text for clients that read only that."""
    task = task_of(waited("completed", result="[1,2]", structured=True), begun=BEGUN).wire("complete")
    assert (task["result"]["structuredContent"], task["result"]["content"][0]["text"]) == ([1, 2], "[1,2]")
    assert (task["ttlMs"], task["lastUpdatedAt"]) == (None, "2026-01-02T00:00:00+00:00")


def test_nothing_is_exposed_by_default_and_nothing_at_an_unknown_address() -> None:
    """Without the setting there is no server; without the gateway's URL, requests of other pages could not be told."""
    settings = Settings.from_env({}, root=Path.cwd())
    assert exposed_agents(settings, None, None) == {}
    named = settings.model_copy(update={"mcp_agents": "release"})
    with pytest.raises(SettingsError, match="HOLDFAST_GATEWAY_URL"):
        exposed_agents(named, None, None)
    assert exposed_agents(named, None, "http://gateway.example").keys() == {"release"}
    with pytest.raises(SettingsError, match="no agent 'nobody'"):
        exposed_agents(named.model_copy(update={"mcp_agents": "release, nobody"}), None, "http://gateway.example")


def test_a_request_is_decided_on_the_page_of_the_gateway() -> None:
    """Without a page that browsers keep apart, the address is that of the thread in the Web UI, if there is one."""
    find = request_page("https://gate.example/", ui="http://ui", namespace="default")
    assert find("x/y", "1") == "https://gate.example/page/requests/x%2Fy/1"
    for gateway in (None, "http://gate.example"):
        assert request_page(gateway, ui="http://ui", namespace="n")("x", "1") == "http://ui/namespaces/n/workflows/x"
        assert request_page(gateway, ui=None, namespace="n")("x", "1") is None


def test_the_page_of_a_thread_is_in_the_web_ui() -> None:
    """Any thread id can be in the address; without a Web UI there is none."""
    assert thread_page("http://ui/", "a b", "x/y") == "http://ui/namespaces/a%20b/workflows/x%2Fy"
    assert thread_page(None, "default", "x") is None
