"""The embedded stack's HTTP ports reject a web page's requests: to another host name, from another origin."""

import asyncio
import http.client
import json
import socket
import sys
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import psutil
import pytest
from temporalio.client import Client

from holdfast.config.running_stacks import option
from holdfast.config.stack_file import Stack
from holdfast.devstack import processes
from holdfast.devstack.temporal_server import HTTP_HOSTS
from holdfast.devstack.web_ui_guard import refusal
from tests.support.rig import eventually

EVIL = "http://evil.example"
START = json.dumps({"workflowType": {"name": "Planted"}, "taskQueue": {"name": "nobody"}})


def ask(
    port: int, method: str, path: str, *, host: str, headers: Mapping[str, str] | None = None, ip: str = "127.0.0.1"
) -> tuple[int, dict[str, str], str]:
    """Send a request with any `Host`, and return status, headers and body."""
    connection = http.client.HTTPConnection(ip, port, timeout=120)
    try:
        body = START if method == "POST" else None
        connection.request(method, path, body=body, headers={"Host": host, **(headers or {})})
        response = connection.getresponse()
        return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read().decode()
    finally:
        connection.close()


def planting() -> str:
    """Return a path that starts a workflow with a new id."""
    return f"/api/v1/namespaces/default/workflows/planted-{uuid4().hex}"


async def was_started(client: Client, path: str) -> bool:
    """Return whether the workflow of that path was started."""
    found = [each async for each in client.list_workflows(f'WorkflowId = "{path.rpartition("/")[2]}"')]
    return bool(found)


def secret_host(stack: Stack) -> str:
    """Return the only host name to which Temporal's HTTP API responds, from its command line."""
    argv = processes.command_line(psutil.Process(stack.temporal_pid))
    (value,) = [each.partition("=")[2] for each in argv if each.startswith(f"{HTTP_HOSTS}=")]
    return str(json.loads(value)[0])


def csrf(stack: Stack) -> dict[str, str]:
    """Return the headers that the Web UI's own page sends with a change."""
    _, headers, _ = ask(stack.ui_port, "GET", "/api/v1/settings", host=f"127.0.0.1:{stack.ui_port}")
    token = headers["set-cookie"].partition("=")[2].partition(";")[0]
    return {"Cookie": f"_csrf={token}", "X-CSRF-TOKEN": token}


async def test_temporals_http_api_accepts_nothing_that_a_page_can_send(stack: Stack, client: Client) -> None:
    """Temporal's HTTP API responds only to one secret host name: a form post to any other starts nothing."""
    path = planting()
    for host in (f"127.0.0.1:{stack.http_port}", f"localhost:{stack.http_port}", "evil.example", "", "x.invalid"):
        status, _, body = ask(stack.http_port, "POST", path, host=host, headers={"Content-Type": "text/plain"})
        assert status in (400, 403), (host, body)
        status, _, body = ask(stack.http_port, "GET", "/api/v1/namespaces", host=host)
        assert status in (400, 403), (host, body)
        assert "namespaceInfo" not in body
    assert not await was_started(client, path)

    # The control: with the secret name, the attack works.
    status, _, body = ask(
        stack.http_port, "POST", path, host=secret_host(stack), headers={"Content-Type": "text/plain"}
    )
    assert status == 200, body
    assert await eventually(lambda: was_started(client, path), bool)


async def web_ui(stack: Stack) -> None:
    """Wait until the Web UI has found its server, about a second after the start."""
    await eventually(
        lambda: asyncio.to_thread(ask, stack.ui_port, "GET", "/api/v1/namespaces", host=f"127.0.0.1:{stack.ui_port}"),
        lambda answer: bool(answer[0] == 200),
    )


async def test_the_web_ui_responds_only_to_its_own_names(stack: Stack) -> None:
    """With a foreign `Host`, as after DNS rebinding, the Web UI shows neither a page nor data."""
    await web_ui(stack)
    for path in ("/", "/api/v1/namespaces", "/api/v1/settings", "/_app/version.json"):
        for host in ("evil.example", f"evil.example:{stack.ui_port}", f"127.0.0.1.evil.example:{stack.ui_port}", ""):
            status, headers, body = ask(stack.ui_port, "GET", path, host=host)
            assert status in (400, 403), (path, host, body)
            assert "set-cookie" not in headers
    for name in ("127.0.0.1", "localhost"):
        status, headers, body = ask(stack.ui_port, "GET", "/api/v1/namespaces", host=f"{name}:{stack.ui_port}")
        assert status == 200, body
        assert "namespaceInfo" in body
        assert headers["x-frame-options"] == "SAMEORIGIN"
        assert not [name for name in headers if name.startswith("access-control-")]


async def test_the_web_ui_changes_nothing_for_another_sites_page(stack: Stack, client: Client) -> None:
    """Even with the Web UI's cookie and token, a POST counts only from the Web UI's own page."""
    await web_ui(stack)
    path, host = planting(), f"127.0.0.1:{stack.ui_port}"
    tokens = {**csrf(stack), "Content-Type": "application/json"}
    foreign: list[dict[str, str]] = [
        {},
        {"Origin": EVIL},
        {"Origin": "null"},
        {"Origin": f"http://127.0.0.1:{stack.http_port}"},
        {"Origin": f"http://localhost:{stack.ui_port}"},
        {"Origin": f"http://{host}", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"},
    ]
    for headers in foreign:
        status, _, body = ask(stack.ui_port, "POST", path, host=host, headers={**tokens, **headers})
        assert status == 403, (headers, body)
    assert not await was_started(client, path)

    own = {**tokens, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}
    status, _, body = ask(stack.ui_port, "POST", path, host=host, headers=own)
    assert status == 200, body
    assert await eventually(lambda: was_started(client, path), bool)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has more than one loopback address")
def test_the_web_uis_own_port_is_hidden_from_pages(stack: Stack) -> None:
    """Temporal's own Web UI listens at a random one of 16 million addresses, which a page cannot guess."""
    argv = processes.command_line(psutil.Process(stack.temporal_pid))
    ip, port = option(argv, "--ui-ip"), int(option(argv, "--ui-port") or 0)

    assert ip is not None
    assert ip.startswith("127.")
    assert ip != "127.0.0.1"
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=5)
    assert ask(port, "GET", "/healthz", host="x", ip=ip)[0] == 200  # it exists


def test_the_grpc_port_does_not_answer_http(stack: Stack) -> None:
    """A form post to Temporal's gRPC port gets no HTTP/1.1 response."""
    with pytest.raises((http.client.HTTPException, OSError)):
        ask(stack.temporal_port, "POST", planting(), host=f"127.0.0.1:{stack.temporal_port}")


@pytest.mark.parametrize(
    ("method", "headers", "passes"),
    [
        ("GET", {"host": "127.0.0.1:8233"}, True),
        ("GET", {"host": "localhost"}, True),
        ("GET", {"host": "[::1]:9000"}, True),
        ("GET", {"host": "LOCALHOST:8233"}, True),
        ("GET", {}, False),
        ("GET", {"host": ""}, False),
        ("GET", {"host": "localhost.evil.example"}, False),
        ("GET", {"host": "localhost@evil.example"}, False),
        ("GET", {"host": "evil.example:8233#@localhost"}, False),
        ("GET", {"host": "[::1"}, False),
        ("GET", {"host": "localhost", "origin": "http://localhost"}, True),
        ("GET", {"host": "localhost", "origin": "null"}, False),
        ("GET", {"host": "localhost", "origin": "null", "sec-fetch-dest": "font"}, True),
        ("POST", {"host": "localhost", "origin": "null", "sec-fetch-dest": "font"}, False),
        ("GET", {"host": "localhost", "sec-fetch-site": "none", "sec-fetch-mode": "navigate"}, True),
        (
            "GET",
            {
                "host": "localhost",
                "sec-fetch-site": "cross-site",
                "sec-fetch-mode": "navigate",
                "sec-fetch-dest": "document",
            },
            True,
        ),
        (
            "GET",
            {
                "host": "localhost",
                "sec-fetch-site": "cross-site",
                "sec-fetch-mode": "navigate",
                "sec-fetch-dest": "iframe",
            },
            False,
        ),
        ("GET", {"host": "localhost", "sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"}, False),
        ("OPTIONS", {"host": "localhost", "origin": "http://evil.example"}, False),
        ("DELETE", {"host": "localhost", "origin": "https://localhost"}, True),
    ],
)
def test_the_guard_compares_whole_names(method: str, headers: dict[str, str], passes: bool) -> None:
    """Names and origins are compared as a whole: one that merely contains a valid one is rejected."""
    sent: Any = [(name.encode(), value.encode()) for name, value in headers.items()]

    assert (refusal(method, sent) is None) is passes


def test_two_host_headers_are_rejected() -> None:
    """Programs differ on which of two `Host` headers counts, so such a request is rejected."""
    assert refusal("GET", [(b"host", b"localhost"), (b"host", b"evil.example")]) is not None
