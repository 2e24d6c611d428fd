"""`doctor` asks the LLM endpoint for its models: what each answer means, and what is neither shown nor contacted."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from holdfast.config.settings import Settings, unknown_variables
from holdfast.doctor.check import Check
from holdfast.doctor.endpoints import probe_endpoints, probe_llm
from holdfast.errors import HoldfastError

KEY = "sk-hunter2"
Serve = Callable[..., "Endpoint"]


class Endpoint(ThreadingHTTPServer):
    """Give every request the same answer, and record the requests."""

    def __init__(self, status: int, body: str, headers: dict[str, str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status, self.body, self.headers = status, body, headers
        self.asked: list[tuple[str, str | None]] = []

    @property
    def url(self) -> str:
        """Return its base URL."""
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers["Authorization"] or self.headers["X-Api-Key"]))
        self.send_response(self.server.status)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(self.server.body.encode())))
        self.end_headers()
        self.wfile.write(self.server.body.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Keep stderr clean."""


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start endpoints that give one answer each."""
    started: list[Endpoint] = []

    def start(status: int, body: str = "", **headers: str) -> Endpoint:
        endpoint = Endpoint(status, body, headers)
        started.append(endpoint)
        threading.Thread(target=endpoint.serve_forever, args=(0.05,), daemon=True).start()
        return endpoint

    yield start
    for endpoint in started:
        endpoint.shutdown()
        endpoint.server_close()


async def probe(url: str, key: str = KEY) -> Check:
    """Return what `doctor` reports about an endpoint."""
    environ = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": key}
    return await probe_llm(Settings.from_env(environ, root=Path()))


@pytest.mark.parametrize(
    ("status", "body", "expected", "detail", "fix"),
    [
        (200, '{"object": "list", "data": []}', "ok", "key set", ""),
        (200, "<html>Log in</html>", "weak", "not with a list of models", "ends in /v1"),
        (401, '{"error": {"message": "Incorrect API key: sk-hunter2"}}', "missing", "Incorrect API key: …", "of this"),
        (403, '{"error": "no access"}', "missing", "it answers 403: no access", "OPENAI_API_KEY"),
        (404, '{"detail": "Not Found"}', "weak", "it answers 404: Not Found", "ends in /v1"),
        (429, "slow down", "weak", "it answers 429: slow down", "later"),
        (500, "", "weak", "it answers 500", "later"),
    ],
)
async def test_each_answer_of_an_endpoint_has_its_meaning(
    serve: Serve, status: int, body: str, expected: str, detail: str, fix: str
) -> None:
    """The provider's message is shown, a key in it is redacted, and each fault has a remedy."""
    endpoint = serve(status, body)
    check = await probe(endpoint.url)
    assert (check.status, detail in check.detail, fix in check.fix) == (expected, True, True), check
    assert KEY not in check.detail + check.fix
    assert endpoint.asked == [("/v1/models", f"Bearer {KEY}")]


async def test_a_redirect_is_named_and_not_followed(serve: Serve) -> None:
    """A log-in page gets neither a request nor the key; a secret in the address is not shown."""
    login = serve(200, "{}")
    check = await probe(serve(302, Location=f"{login.url}/login?token=hunter2").url)
    assert (check.status, f"redirects (302) to {login.url}/login" in check.detail) == ("missing", True)
    assert "hunter2" not in check.detail
    assert login.asked == []


async def test_an_endpoint_on_this_machine_is_asked_without_a_proxy(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy of the environment does not see the key of a local endpoint."""
    proxy, endpoint = serve(200, "{}"), serve(200, "{}")
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, proxy.url)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for host in ("127.0.0.1", "localhost"):
        assert (await probe(endpoint.url.replace("127.0.0.1", host))).status == "ok"
    assert (len(endpoint.asked), proxy.asked) == (2, [])


async def test_an_endpoint_that_cannot_be_reached_is_missing(serve: Serve) -> None:
    """A closed port, an unknown host and a missing TLS endpoint are each reported as unreachable."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    dead = await probe(f"http://user:hunter2@127.0.0.1:{port}/v1")
    assert (dead.status, "cannot be reached" in dead.detail, "start the endpoint" in dead.fix) == (
        "missing",
        True,
        True,
    )
    unknown = await probe("http://nowhere.invalid/v1")
    assert unknown.status == "missing"
    plain = serve(200, "{}")
    tls = await probe(plain.url.replace("http:", "https:"))
    assert (tls.status, "http:// or https://" in tls.fix) == ("missing", True)
    assert plain.asked == []
    assert "hunter2" not in str([dead, unknown, tls])


@pytest.mark.parametrize("path", ["", "/v1", "/v1/"])
async def test_anthropics_endpoint_is_asked_in_its_own_form(serve: Serve, path: str) -> None:
    """Its key has a header of its own, and its address usually has no path; a fault names its own settings."""
    for status, body, expected in ((200, "{}", "ok"), (401, f"no: {KEY}", "missing"), (404, "", "weak")):
        endpoint = serve(status, body)
        environ = {"ANTHROPIC_BASE_URL": endpoint.url.removesuffix("/v1") + path, "ANTHROPIC_API_KEY": KEY}
        (check,) = await probe_endpoints(Settings.from_env(environ, root=Path()))
        assert (check.name, check.status) == ("endpoint", expected)
        assert check.detail.startswith("anthropic at http://127.0.0.1")
        assert KEY not in check.detail + check.fix
        assert not check.fix or "ANTHROPIC_" in check.fix
        assert endpoint.asked == [("/v1/models", KEY)]


async def test_each_named_endpoint_is_asked_with_its_own_key(serve: Serve) -> None:
    """One without a key gets none of another's; one whose key is not set is not contacted, and is named."""
    chat, open_one, silent = serve(200, "{}"), serve(403, "{}"), serve(200, "{}")
    named = {
        "router": {"api": "chat", "base_url": chat.url, "key": "ROUTER_KEY"},
        "local": {"api": "responses", "base_url": open_one.url},
        "later": {"api": "messages", "base_url": silent.url, "key": "NO_KEY"},
    }
    environ = {"HOLDFAST_LLM_ENDPOINTS": json.dumps(named), "ROUTER_KEY": KEY, "OPENAI_API_KEY": "sk-openai-0000"}
    checks = await probe_endpoints(Settings.from_env(environ, root=Path()))
    assert [check.status for check in checks] == ["ok", "missing", "missing"]
    assert "`key` of [llm.local]" in checks[1].fix
    assert "NO_KEY is not set" in checks[2].detail
    assert chat.asked == [("/v1/models", f"Bearer {KEY}")]
    assert open_one.asked == [("/v1/models", None)]
    assert silent.asked == []


async def test_a_key_is_asked_with_as_it_can_be_sent(serve: Serve) -> None:
    """Quotation marks pasted around a key are removed; a key that no header can carry is rejected and not shown."""
    plain = serve(200, "{}")
    assert (await probe(plain.url, "“sk-hunter2”")).status == "ok"
    assert [key for _, key in plain.asked] == [f"Bearer {KEY}"]
    with pytest.raises(HoldfastError, match="paste the key again") as refused:
        await probe(plain.url, "sk-“hunter2”-x")
    assert "hunter2" not in str(refused.value)
    assert len(plain.asked) == 1


def test_an_unknown_variable_is_named_with_the_nearest_setting() -> None:
    """An unknown variable has no effect, so a misspelled one is a fault; other programs' variables are not named."""
    values = dict.fromkeys(("HOLDFAST_TASKQUEUE", "HOLDFAST_ZZZ", "HOLDFAST_LLM", "HOLDFAST_EXAMPLE_X", "PATH"), "x")
    assert unknown_variables(values) == [
        "There is no setting HOLDFAST_TASKQUEUE. Did you mean HOLDFAST_TASK_QUEUE?",
        "There is no setting HOLDFAST_ZZZ.",
    ]
