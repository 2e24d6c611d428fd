"""A run as people watch and steer it: its head, and the rows of a list of runs."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from holdfast.client.reading.states import CLOSED
from holdfast.config.page_links import path_of
from holdfast.gateway.callers import Scope
from holdfast.gateway.page.views.requests import Person
from holdfast.gateway.page.views.signing import signable_once, steerable
from holdfast.gateway.page.views.text import Piece, When, line, pieces, when

JSON = Mapping[str, Any]

OVER = "The run is over: a message continues the thread."
_WORDS = {"say": " MESSAGE", "refine": " --narrow TEXT", "extend": " --budget AMOUNTS"}
"""What the commands take besides the thread and the key."""


class Fact(NamedTuple):
    """A fact about a run."""

    name: str
    value: str


class Control(NamedTuple):
    """A way to steer a run."""

    act: str
    label: str
    path: str
    refused: str
    """Why it is not possible; empty if it is."""
    needs_key: bool = False
    """Only a signature of the person is missing, so a key in the browser makes it possible."""
    signable: str = ""
    """What the browser signs (`holdfast.gateway.page.views.signing`); empty for nothing."""


class InputForm(NamedTuple):
    """A form that sends a run something: a message, a refinement of its task, or an extension of its budget."""

    refused: str
    """Why it does not count here; empty if it does."""
    needs_key: bool
    """Only a signature of the person is missing, so a key in the browser makes it possible."""
    signable: str
    """What the browser signs (`holdfast.gateway.page.views.signing`); empty for nothing."""


class Head(NamedTuple):
    """A run, without its events."""

    thread: str
    path: str
    agent: str
    status: str
    status_words: str
    is_open: bool
    now: str
    next: tuple[Fact, ...]
    task: tuple[Piece, ...]
    result: tuple[Piece, ...]
    facts: tuple[Fact, ...]
    warning: str
    blocked: Fact | None
    blocked_message: tuple[Piece, ...]
    paused: str
    requests: tuple[Fact, ...]
    """Open requests: a name, and a path."""
    controls: tuple[Control, ...]
    say: InputForm
    refine: InputForm
    extend: InputForm
    events: int


class RunRow(NamedTuple):
    """A run in a list."""

    thread: str
    path: str
    agent: str
    status: str
    status_words: str
    task: str
    step: int
    pending: int
    started: When | None


def head_view(state: JSON, scopes: tuple[Scope, ...], person: Person | None = None) -> Head:
    """Return a run for display.

    Args:
        state: As `show` presents it.
        scopes: Those of the person who looks.
        person: The person, if they steer the run here.
    """
    thread, status = str(state["thread"]), str(state["status"])
    is_open = status not in CLOSED and status != "unauthenticated"
    blocked, paused = state.get("blocked"), state.get("paused")
    no_budget = "" if (state.get("budget") or {}).get("limits") else "The run has no budget."
    return Head(
        thread=line(thread, 300),
        path=path_of("runs", thread),
        agent=line(state.get("agent") or "not loaded yet"),
        status=css_class(status),
        status_words=status.replace("_", " "),
        is_open=is_open,
        now=line(state.get("now") or "", 400),
        next=tuple(Fact(line(each["when"], 300), line(each["then"], 300)) for each in state.get("next") or ()),
        task=pieces(_text(state.get("task"))),
        result=pieces(_text(state.get("result"))),
        facts=tuple(_facts(state)),
        warning=line(state.get("warning") or "", 1_000),
        blocked=Fact(line(blocked["cause"]), line(blocked.get("after") or "", 400)) if blocked else None,
        blocked_message=pieces(str(blocked.get("message") or "")) if blocked else (),
        paused=line(f"{paused.get('by')}: {paused.get('reason') or 'no reason given'}", 400) if paused else "",
        requests=tuple(
            Fact(line(f"Request {each['request']}: {each['tool']}"), path_of("requests", thread, str(each["request"])))
            for each in state.get("pending") or ()
        ),
        controls=tuple(_controls(state, scopes, person, is_open=is_open)),
        say=_input_form("say", state, person, over="", signed="messages_signed"),
        refine=_input_form("refine", state, person, over="" if is_open else OVER, signed="signed"),
        extend=_input_form("extend", state, person, over=no_budget if is_open else OVER, signed="signed"),
        events=int(state.get("events") or 0),
    )


def run_row(row: JSON, now: datetime) -> RunRow:
    """Return a row of a list of runs."""
    status = str(row["status"])
    return RunRow(
        thread=line(row["thread"], 300),
        path=path_of("runs", str(row["thread"])),
        agent=line(row.get("agent") or ""),
        status=css_class(status),
        status_words=line(status.replace("_", " ")),
        task=line(row.get("task") or "", 160),
        step=int(row.get("step") or 0),
        pending=int(row.get("pending") or 0),
        started=when(row.get("started_at"), now),
    )


def spent(state: JSON) -> tuple[Fact, ...]:
    """Return what a run has used so far: steps, tokens, and each limit of its budget."""
    usage = state.get("usage") or {}
    tokens = int(usage.get("prompt_tokens") or 0) + int(usage.get("completion_tokens") or 0)
    facts = [Fact("Steps", f"{int(state.get('step') or 0):,}"), Fact("Tokens", f"{tokens:,}")]
    for each in (state.get("budget") or {}).get("limits") or ():
        dollars = "$" if each["limit"] == "usd" else ""
        name = "Cost" if dollars else f"Budget of {line(each['limit'])}"
        facts.append(Fact(name, line(f"{dollars}{each['spent']} of {dollars}{each['allowed']}")))
    return tuple(facts)


def _facts(state: JSON) -> list[Fact]:
    facts = [*spent(state)]
    if state.get("llm"):
        facts.append(Fact("LLM", line(state["llm"])))
    if state.get("trust"):
        facts.append(Fact("Has read", line(f"content of the level {state['trust']}")))
    lineage = state.get("lineage") or {}
    if path := lineage.get("path"):
        facts.append(Fact("Sub-agent of", line(" > ".join(map(str, path)), 400)))
    return facts


def _controls(state: JSON, scopes: tuple[Scope, ...], person: Person | None, *, is_open: bool) -> list[Control]:
    """Return the ways to steer a run, each with the reason if the person cannot use it here."""
    thread, paused, blocked = str(state["thread"]), bool(state.get("paused")), bool(state.get("blocked"))
    may = state.get("may_steer") or {}
    rows: tuple[tuple[str, str, Scope, str, bool], ...] = (
        ("pause", "Pause", "pause", "It is paused already." if paused else "", bool(may.get("signed"))),
        ("resume", "Resume", "pause", "" if paused else "It is not paused.", bool(may.get("resume_signed"))),
        ("retry", "Retry", "retry", "" if blocked else "It is not blocked.", bool(may.get("signed"))),
        ("cancel", "Cancel", "cancel", "", False),
    )
    over = "" if is_open else "The run is over."
    controls = []
    for act, label, scope, why, signed in rows:
        refused = over or why or _lacks(scope, scopes)
        unsigned = _unsigned(act, thread) if signed and not refused and not _vouches(state, person) else ""
        signable = steerable(state, act, person.name) if person and not refused and act != "cancel" else ""
        path = path_of("runs", thread, act)
        controls.append(Control(act, label, path, refused or unsigned, needs_key=bool(unsigned), signable=signable))
    return controls


def _input_form(act: str, state: JSON, person: Person | None, *, over: str, signed: str) -> InputForm:
    """Return a form that sends a run something, with the reason if the person cannot use it here.

    Args:
        act: `say`, `refine` or `extend`.
        state: As `show` presents it.
        person: The person; None if they look only.
        over: Why nobody can; empty if somebody can.
        signed: What says in `may_steer` whether it has to be signed.
    """
    thread, required = str(state["thread"]), bool((state.get("may_steer") or {}).get(signed))
    if over or person is None or (act == "say" and state["status"] in CLOSED):  # a new run begins with the message
        return InputForm(over, False, "")
    who = (state.get("may_steer") or {}).get(act)
    if who is not None and person.name not in who:
        names = line(", ".join(who) or "nobody", 300)
        return InputForm(f"{names} can do this, and you are signed in as {line(person.name)}.", False, "")
    unsigned = _unsigned(act, thread) if required and not _vouches(state, person) else ""
    return InputForm(unsigned, bool(unsigned), signable_once(state, act, person.name))


def _vouches(state: JSON, person: Person | None) -> bool:
    """Whether the gateway's own signature suffices for the person's statements."""
    return person is not None and person.gateway_key in (state.get("may_steer") or {}).get("gateways", ())


def _unsigned(act: str, thread: str) -> str:
    """Return why a statement without the person's own signature does not count."""
    command = line(f"holdfast {act} {thread}{_WORDS.get(act, '')} --key FILE")
    return f"A signature is required: make a key on the page Your key, or sign in a terminal: {command}"


def _lacks(scope: Scope, scopes: tuple[Scope, ...]) -> str:
    return "" if scope in scopes else f"Your token does not have the scope {scope}."


def css_class(status: str) -> str:
    """Return a status as a class: letters and underscores alone."""
    return "".join(each for each in status if each.isascii() and (each.isalpha() or each == "_"))[:40]


def _text(value: Any) -> str:
    if isinstance(value, list):  # content blocks
        return "\n".join(str(each.get("text") or f"({each.get('type')})") for each in value if isinstance(each, dict))
    return str(value or "")
