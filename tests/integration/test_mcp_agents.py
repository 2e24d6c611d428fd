"""Agents as tools of MCP clients: the official SDK's client, the real Temporal server, over HTTP and stdio."""

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import BlobResourceContents

from holdfast.config.stack_file import Stack
from holdfast.core.authority.policy import Approver, Gateway
from holdfast.core.authority.signatures import encode_key, public_key
from holdfast.core.log.events import DecisionReceived
from holdfast.core.run.contracts.runs import WORKFLOW
from holdfast.storage.artifacts import FolderArtifacts
from holdfast.testing import call, say, steps
from tests.support.exposed import POLICY, catalog, site
from tests.support.mcp_clients import accept, over_http, over_stdio
from tests.support.rig import StartRig, environ_of, events_of

GATEWAY_KEY, ALICE_KEY = (encode_key(bytes([n]) * 32) for n in (1, 2))
QUOTES = steps([call("final_result", result={"items": [{"name": "pen", "cents": 120}]})])


async def test_a_run_is_a_task_that_a_person_decides_in_the_client(rig: StartRig) -> None:
    """A call starts a run; its approval request is an elicitation; the decision counts in the caller's name."""
    async with site(rig) as gateway, over_http(gateway.url, "of-alice") as client:
        created = await client.start("clerk", task="Pay the invoice.")
        assert (created.status, created.ttl_ms) == ("working", None)

        asking = await client.answer(created.task_id, accept("approve", reason="it is due"))
        (asked,) = asking["inputRequests"].values()
        assert (asked["method"], asked["params"]["mode"]) == ("elicitation/create", "form")
        assert '"amount": 7' in asked["params"]["message"]
        assert asked["params"]["requestedSchema"]["properties"]["decision"]["enum"] == ["approve", "deny", "respond"]

        done = await client.until(created.task_id, "completed")
        assert done["result"]["content"] == [{"type": "text", "text": "Paid."}]
        assert (done["resultType"], done["ttlMs"], done["createdAt"]) == ("complete", None, asking["createdAt"])
        run = gateway.rig.client.get_workflow_handle(created.task_id)
        (decided,) = [each for each in await events_of(run) if isinstance(each, DecisionReceived)]
        assert (decided.by, decided.reason, decided.via) == ("alice", "it is due", "gateway alice")


async def test_a_declined_request_is_denied_and_a_dismissed_one_stays_open(rig: StartRig) -> None:
    """Declining runs nothing, and the agent goes on; dismissing decides nothing."""
    replies = steps([call("pay", amount=7), say("Not paid.")])
    async with site(rig, replies=replies) as gateway, over_http(gateway.url, "of-alice") as client:
        created = await client.start("clerk", task="Pay the invoice.")
        await client.answer(created.task_id, {"action": "cancel"})
        assert (await client.get(created.task_id))["status"] == "input_required"
        await client.answer(created.task_id, {"action": "decline"})
        assert (await client.until(created.task_id, "completed"))["result"]["content"][0]["text"] == "Not paid."


@pytest.mark.extended
async def test_a_typed_context_and_a_typed_result_have_schemas(rig: StartRig) -> None:
    """The list of tools has both schemas whole; the result comes as structured content."""
    async with site(rig, replies=QUOTES) as gateway, over_http(gateway.url, "of-alice") as client:
        tools = {each.name: each for each in (await client.sdk.session.list_tools()).tools}
        assert tools.keys() == {"clerk", "quoter"}
        assert tools["quoter"].description == "Writes quotes."
        assert tools["quoter"].input_schema["properties"]["context"]["properties"]["number"] == {"type": "string"}
        assert tools["quoter"].input_schema["$defs"]["Address"]["required"] == ["city"]
        assert tools["quoter"].input_schema["required"] == ["task", "context"]
        assert tools["quoter"].output_schema is not None
        assert "secret of the house" not in json.dumps([each.model_dump(mode="json") for each in tools.values()])

        created = await client.start("quoter", task="Quote.", context={"number": "4711"})
        done = await client.until(created.task_id, "completed")
        assert done["result"]["structuredContent"] == {"items": [{"name": "pen", "cents": 120}]}
        assert json.loads(done["result"]["content"][0]["text"]) == done["result"]["structuredContent"]

        wrong = await client.call("quoter", task="Quote.", context={"numero": "4711"})
        assert wrong.is_error
        assert "numero" in json.dumps(wrong.model_dump(mode="json"))


@pytest.mark.extended
async def test_a_repeated_key_starts_one_run(rig: StartRig) -> None:
    """The same call with the same key is the same task; another call with that key is an error."""
    async with site(rig, replies=steps([say("Done.")])) as gateway, over_http(gateway.url, "of-alice") as client:
        key = "7a1d0c0e-1f6b-4a35-8a9e-0d9f4f6b3c11"
        first, second = [await client.start("clerk", key=key, task="Work.") for _ in range(2)]
        assert first.task_id == second.task_id
        with pytest.raises(AssertionError, match="used for another call"):
            await client.start("clerk", key=key, task="More.")
        async with over_http(gateway.url, "of-bob") as another:
            third = await another.start("clerk", key=key, task="Work.")
        assert third.task_id != first.task_id
        await client.until(first.task_id, "completed")


@pytest.mark.extended
async def test_a_task_is_durable_before_the_answer(rig: StartRig) -> None:
    """When a call is answered, Temporal has the run, and its task resolves, also at a gateway that started since."""
    async with site(rig, replies=steps([say("Done.")])) as gateway, over_http(gateway.url, "of-alice") as client:
        created = await client.start("clerk", task="Work.")
        found = await gateway.rig.client.get_workflow_handle(created.task_id).describe()
        assert found.workflow_type == WORKFLOW
        assert (await client.get(created.task_id))["taskId"] == created.task_id
        await client.until(created.task_id, "completed")


@pytest.mark.extended
async def test_a_cancelled_task_ends_as_cancelled(rig: StartRig) -> None:
    """`tasks/cancel` stops the run; once it is over, it changes nothing."""
    async with site(rig) as gateway, over_http(gateway.url, "of-alice") as client:
        created = await client.start("clerk", task="Pay the invoice.")
        await client.until(created.task_id, "input_required")
        await client.send("tasks/cancel", created.task_id)
        await client.until(created.task_id, "cancelled")
        await client.send("tasks/cancel", created.task_id)
        assert (await client.get(created.task_id))["status"] == "cancelled"


@pytest.mark.extended
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_without_tasks_reads_the_result_with_a_tool(rig: StartRig, mode: Any) -> None:
    """The call returns the thread at once, and `result` the result, for clients of earlier protocols, too."""
    async with (
        site(rig, replies=QUOTES) as gateway,
        over_http(gateway.url, "of-alice", tasks=False, mode=mode) as client,
    ):
        tools = {each.name: each for each in (await client.sdk.session.list_tools()).tools}
        assert tools.keys() == {"clerk", "quoter", "result"}
        assert tools["quoter"].output_schema is None
        began = await client.call("quoter", task="Quote.", context={"number": "4711"})
        thread = began.structured_content["thread"]
        result = await client.call("result", thread=thread, wait=30)
        while result.structured_content["status"] == "running":
            result = await client.call("result", thread=thread, wait=30)
        assert result.structured_content["result"] == {"items": [{"name": "pen", "cents": 120}]}
        with pytest.raises(MCPError) as refused:
            await client.get(thread)
        assert refused.value.code == -32021


async def test_a_gateway_vouches_for_its_callers(rig: StartRig) -> None:
    """With `signatures: required` and the gateway's key in the policy, a decision in the client counts as vouched."""
    policy = POLICY.model_copy(
        update={
            "approvers": (Approver(name="alice", keys=(public_key(ALICE_KEY),)),),
            "gateways": (Gateway(name="web", keys=(public_key(GATEWAY_KEY),)),),
            "signatures": "required",
        }
    )
    async with site(rig, policy, key=GATEWAY_KEY) as gateway, over_http(gateway.url, "of-alice") as client:
        created = await client.start("clerk", task="Pay the invoice.")
        await client.answer(created.task_id, accept("approve"))
        await client.until(created.task_id, "completed")
        run = gateway.rig.client.get_workflow_handle(created.task_id)
        (decided,) = [each for each in await events_of(run) if isinstance(each, DecisionReceived)]
        assert (decided.by, decided.proof) == ("alice", "vouched")


@pytest.mark.extended
async def test_where_people_sign_themselves_the_elicitation_leads_to_a_page(rig: StartRig) -> None:
    """If the policy lists no gateway, the request has a URL, and no response to it decides anything."""
    policy = POLICY.model_copy(
        update={
            "approvers": (Approver(name="alice", keys=(public_key(ALICE_KEY),)),),
            "signatures": "required",
        }
    )
    page_of = "https://ui.example/{}/{}".format
    async with site(rig, policy, page_of=page_of) as gateway, over_http(gateway.url, "of-alice") as client:
        created = await client.start("clerk", task="Pay the invoice.")
        asking = await client.answer(created.task_id, {"action": "accept"})
        ((key, asked),) = asking["inputRequests"].items()
        assert (asked["params"]["mode"], asked["params"]["url"]) == ("url", f"https://ui.example/{created.task_id}/1")
        await client.send("tasks/update", created.task_id, {key: accept("approve")})
        assert (await client.get(created.task_id))["status"] == "input_required"
        await client.send("tasks/cancel", created.task_id)
        await client.until(created.task_id, "cancelled")


async def test_resources_are_transcripts_and_artifacts(rig: StartRig) -> None:
    """A caller reads the transcript of its own task, and its list of artifacts."""
    async with site(rig, replies=steps([say("Done.")])) as gateway, over_http(gateway.url, "of-alice") as client:
        created = await client.start("clerk", task="Work.")
        await client.until(created.task_id, "completed")
        templates = await client.sdk.session.list_resource_templates()
        assert [each.name for each in templates.resource_templates] == ["transcript", "artifacts", "artifact"]
        task = f"holdfast://tasks/{created.task_id}"
        view = json.loads(await client.read(f"{task}/transcript"))
        assert [each["role"] for each in view["messages"]] == ["user", "assistant"]
        rest = json.loads(await client.read(f"{task}/transcript?after=1"))
        assert len(rest["messages"]) == 1
        assert json.loads(await client.read(f"{task}/artifacts")) == {"artifacts": [], "next": None}


@pytest.mark.extended
async def test_an_artifact_is_read_in_parts(rig: StartRig, tmp_path: Path) -> None:
    """A long result is read whole as text, and from an offset as bytes; an artifact of no event is not found."""
    replies = steps([call("report"), say("Done.")])
    store = FolderArtifacts(tmp_path / "artifacts")
    async with (
        site(rig, replies=replies, artifacts=store) as gateway,
        over_http(gateway.url, "of-alice") as client,
    ):
        created = await client.start("clerk", task="Work.")
        await client.until(created.task_id, "completed")
        folder = f"holdfast://tasks/{created.task_id}/artifacts"
        listed = json.loads(await client.read(folder))["artifacts"]
        texts = [await client.read(f"{folder}/{each['address']}") for each in listed]
        assert "größer " * 20_000 in texts
        address = listed[texts.index("größer " * 20_000)]["address"]
        rest = (await client.sdk.session.read_resource(f"{folder}/{address}?offset=3")).contents[0]
        assert isinstance(rest, BlobResourceContents)
        assert base64.b64decode(rest.blob) == ("größer " * 20_000).encode()[3:]
        with pytest.raises(MCPError):
            await client.read(f"{folder}/sha256:{'0' * 64}")


@pytest.mark.extended
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_on_the_same_machine_starts_the_server(rig: StartRig, stack: Stack, mode: Any) -> None:
    """`holdfast mcp serve` serves one client over stdio, in the name of the person at the command line."""
    async with rig(catalog(), steps([call("pay", amount=7), say("Paid.")])) as worker:
        environ = environ_of(stack) | {
            "HOLDFAST_TASK_QUEUE": worker.task_queue,
            "DATABASE_URL": stack.database_url,
            "HOLDFAST_HOME": os.environ["HOLDFAST_HOME"],
            "PYTHONPATH": str(Path.cwd()),
        }
        arguments = ["clerk", "--catalog", "tests.support.exposed_catalog:catalog", "--by", "dana", "--decide"]
        modern = mode == "auto"
        async with over_stdio(arguments, environ, tasks=modern, mode=mode) as client:
            names = [each.name for each in (await client.sdk.session.list_tools()).tools]
            assert names == ["clerk"] + ["result"] * (not modern)
            if modern:
                created = await client.start("clerk", task="Pay the invoice.")
                await client.answer(created.task_id, accept("approve"))
                await client.until(created.task_id, "completed")
            else:
                began = await client.call("clerk", task="Pay the invoice.")
                waiting = await client.call("result", thread=began.structured_content["thread"], wait=30)
                assert waiting.structured_content["status"] == "waiting_approval"
                assert "pay" in waiting.structured_content["text"]
