"""A web page in a real browser on the developer's machine tries to reach the embedded stack."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest
from playwright.async_api import Page, Route, async_playwright
from temporalio.client import Client, WorkflowHandle

from holdfast.config.stack_file import Stack
from tests.support.rig import eventually

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian: apt install chromium)"),
]

ATTACK = """
async ({ports, ids, victim}) => {
  const start = '{"workflowType":{"name":"Planted"},"taskQueue":{"name":"nobody"},"identity":"', end = '"}';
  const signal = '{"signalName":"approve","input":{"payloads":[]},"identity":"';
  const read = [];
  const patience = () => AbortSignal.timeout(5000);
  for (const [host, port] of ports) {
    const base = `http://${host}:${port}`, api = `${base}/api/v1/namespaces/default/workflows`;
    for (const path of ['/', '/api/v1/namespaces', '/api/v1/namespaces/default/workflows', '/metrics'])
      try {
        const text = await (await fetch(base + path, {signal: patience()})).text();
        if (/namespaceInfo|executions|svelte/.test(text)) read.push(base + path);
      } catch {}
    for (const id of ids) {
      for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'application/json'])
        for (const mode of ['no-cors', 'cors'])
          for (const [path, body] of [[id, start + end], [`${victim}/signal/approve`, signal + end]])
            try {
              const token = (document.cookie.match(/_csrf=([^;]+)/) || [])[1], credentials = 'include';
              const headers = {'Content-Type': type, ...(mode === 'cors' && token ? {'X-CSRF-TOKEN': token} : {})};
              await fetch(`${api}/${path}`, {method: 'POST', mode, credentials, headers, body, signal: patience()});
            } catch {}
      // A form writes NAME=VALUE: the = ends up inside a JSON text.
      for (const [url, body] of [[`${api}/${id}`, start], [`${api}/${victim}/signal/approve`, signal]]) {
        const frame = document.createElement('iframe'), form = document.createElement('form');
        frame.name = 'f' + Math.random();
        const field = document.createElement('input');
        Object.assign(form, {method: 'POST', enctype: 'text/plain', action: url, target: frame.name});
        Object.assign(field, {type: 'hidden', name: body, value: end});
        form.append(field);
        document.body.append(frame, form);
        form.submit();
        await new Promise(done => { frame.onload = done; setTimeout(done, 1500); });
      }
    }
  }
  return read;
}
"""


async def blank(route: Route) -> None:
    """Respond with an empty page from the requested origin."""
    await route.fulfill(content_type="text/html", body="<!doctype html><body>a page</body>")


@asynccontextmanager
async def browser() -> AsyncIterator[Callable[[str], Any]]:
    """Run a browser that resolves `evil.example` to this machine; yield a function that opens a page."""
    args = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    args += ["--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP evil.example 127.0.0.1"]
    # Other browsers lack some of Chromium's own protections: these tests are about Holdfast's.
    args += ["--disable-features=LocalNetworkAccessChecks,BlockInsecurePrivateNetworkRequests"]
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=CHROMIUM, args=args)

        async def open_page(address: str) -> Page:
            page = await chromium.new_page()
            await page.route(address, blank)
            await page.goto(address)
            return page

        yield open_page
        await chromium.close()


@pytest.fixture
async def victim(client: Client) -> WorkflowHandle[Any, Any]:
    """Start a workflow that waits for an approval, without a worker."""
    return await client.start_workflow("Waiting", id=f"victim-{uuid4().hex}", task_queue="nobody")


async def planted(client: Client, planned: list[str]) -> list[str]:
    """Return which of the planned workflows were started."""
    wanted = " OR ".join(f'WorkflowId = "{each}"' for each in planned)
    return [found.id async for found in client.list_workflows(wanted)]


async def signals(victim: WorkflowHandle[Any, Any]) -> int:
    """Return how many signals the workflow received."""
    events = (await victim.fetch_history()).events
    return sum(event.HasField("workflow_execution_signaled_event_attributes") for event in events)


def ids() -> list[str]:
    """Return ids for workflows that an attack starts."""
    return [f"planted-{uuid4().hex}"]


@pytest.mark.extended
async def test_another_sites_page_starts_signals_and_reads_nothing(
    stack: Stack, client: Client, victim: WorkflowHandle[Any, Any]
) -> None:
    """Forms and fetches from another site, or from another port of this machine, reach no workflow and no data.

    After DNS rebinding, a page has the same origin as the stack's ports, but its host name is rejected. The same script
    in the Web UI's own page reads, starts and signals, so the attack is real.
    """
    planned = ids()
    local = [("127.0.0.1", port) for port in (stack.http_port, stack.ui_port, stack.temporal_port)]
    async with browser() as open_page:
        for origin, ports in (
            ("http://evil.example:9", local),
            ("http://127.0.0.1:9", local),
            # Temporal's own port serves no page, because it does not speak HTTP/1.1.
            *((f"http://evil.example:{port}", [("evil.example", port)]) for port in (stack.http_port, stack.ui_port)),
        ):
            page = await open_page(f"{origin}/attack")
            read = await page.evaluate(ATTACK, {"ports": ports, "ids": planned, "victim": victim.id})
            assert read == [], origin
            await page.close()

        assert await planted(client, planned) == []
        assert await signals(victim) == 0

        page = await open_page(f"http://127.0.0.1:{stack.ui_port}/attack")
        attack = {"ports": [("127.0.0.1", stack.ui_port)], "ids": planned, "victim": victim.id}
        read = await page.evaluate(ATTACK, attack)

    assert f"http://127.0.0.1:{stack.ui_port}/api/v1/namespaces" in read, json.dumps(read)
    assert await eventually(lambda: planted(client, planned), bool)
    assert await signals(victim) > 0


@pytest.mark.slow
async def test_another_site_cannot_show_the_web_ui_in_a_frame(stack: Stack) -> None:
    """Clickjacking is prevented: the Web UI cannot be framed, but a link to it opens."""
    async with browser() as open_page:
        page = await open_page("http://evil.example:9/attack")
        frame = f'<iframe src="http://127.0.0.1:{stack.ui_port}/"></iframe>'
        async with page.expect_response(f"http://127.0.0.1:{stack.ui_port}/") as refused:
            await page.set_content(frame)
        assert (await refused.value).status == 403

        link = f'<a href="http://127.0.0.1:{stack.ui_port}/">approve here</a>'
        await page.set_content(link)
        async with page.expect_navigation(wait_until="commit"):
            await page.click("a")
        await asyncio.wait_for(page.wait_for_selector("text=Workflows"), 120)
