"""The worst address of a page that a setting, a worker or an imported log can bring into the Web UI's details."""

import re
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.config.settings import Settings
from holdfast.core.base.models import replace
from holdfast.core.base.page_paths import MOST_CHARS, linkable
from holdfast.core.log.events import AgentLoaded
from holdfast.core.run.state.features import PAGE_LINKS
from holdfast.core.run.views.web_ui import current_details
from holdfast.gateway.http.serving import listen
from holdfast.hosting.development import HOST, DevelopmentPage
from tests.support.runs import Thread, calls

HOSTILE = (
    "javascript:alert(1)",
    "JavaScript:alert(1)//https://gateway.example",
    "data:text/html,<script>alert(1)</script>",
    "//evil.example",
    "http://evil.example",
    "http://127.0.0.1.evil.example",
    "http://127.0.0.1@evil.example",
    "https://gateway.example@evil.example",
    "https://gateway.example:secret@evil.example",
    "https://gateway.example\\@evil.example",
    "https://gateway.example/../..//evil.example",
    "https://evil.example?x=",
    "https://evil.example#",
    "https://evil.example/%2e%2e",
    "https://x.example>) [Approve](https://evil.example",
    "https://x.example)\n### Request 9: may this run?",
    "https://x.example/`code`",
    "https://x.example/<img src=x onerror=alert(1)>",
    "https://x.example/ two",
    "https://x.example\n",
    "https://x.\u202eexample",
    "https://ex\u0430mple.com",
    "https://x.example:port",
    "https://" + "x" * MOST_CHARS,
    "https://",
    "https:gateway.example",
)


@pytest.mark.parametrize("address", HOSTILE)
def test_no_hostile_address_is_recorded_or_becomes_a_link(address: str) -> None:
    """Another scheme, a login, another host behind a known one, and Markdown give no link: neither as a worker's
    answer, nor in a state that was recorded elsewhere.
    """
    thread = Thread()
    thread.page = address
    thread.load(PAGE_LINKS)
    thread.reply(calls("pay"))
    (event,) = [each for each in thread.log if isinstance(each, AgentLoaded)]
    assert event.page == ""
    for state in (thread.state, replace(thread.state, page=address)):
        details = current_details(state)
        assert not re.search(r"\]\(", details)
        assert "evil.example" not in details


def test_a_hostile_thread_id_stays_within_the_address() -> None:
    """The id of a thread can neither end the address, nor name another host, nor climb out of the page."""
    thread = Thread(name="../../x?y#z>) [Approve](https://evil.example) <img src=x>\n`")
    thread.page = "https://gateway.example"
    thread.load(PAGE_LINKS)
    thread.reply(calls("pay"))
    targets = re.findall(r"\]\(<?([^\s>)]*)", current_details(thread.state))
    assert len(targets) == 2
    for target in targets:
        assert re.fullmatch(r"https://gateway\.example/page/(runs|requests)/[A-Za-z0-9._~%-]+(/1)?", target), target


@pytest.mark.parametrize(
    "address",
    [
        "https://gateway.example",
        "https://a.b:8443/agents",
        "http://127.0.0.1:8470",
        "http://localhost",
        "https://[::1]:1",
    ],
)
def test_addresses_of_gateways_are_kept(address: str) -> None:
    """An address over https, or of this machine, is a link, without its last slash."""
    assert linkable(f"{address}/") == address


def test_the_page_of_development_has_links_only_at_its_own_port(tmp_path: Path) -> None:
    """The address that runs record has no secret; a port that happened to be free is no address to record."""
    with closing(listen(HOST, 0)) as free:
        port = free.getsockname()[1]
        settings = Settings(home=tmp_path, gateway_port=port)
        with DevelopmentPage().reserve(settings) as taken:  # by another program
            assert taken is None
    with DevelopmentPage().reserve(settings) as address:
        assert address == linkable(address) == f"http://{HOST}:{port}"
    with DevelopmentPage().reserve(Settings(home=tmp_path, gateway_port=0)) as other:
        assert other is None
