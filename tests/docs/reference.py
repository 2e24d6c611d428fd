"""The reference pages that are made from the code. `python -m tests.docs.reference` writes them; a test compares them.

They are committed, so that they can be read without building the site.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from holdfast.cli.app import add_program
from holdfast.config.programs import GATEWAY, WORKER
from holdfast.core.log import events
from holdfast.core.log.upcasters import EVENT_CLASSES
from holdfast.starter import app
from holdfast.telemetry.metrics.names import BUCKETS, METRICS, OTHER
from tests.docs.pages import DOCS, heading_slug, headings
from tests.docs.settings_page import settings_page

CLI_HEAD = """\
# Command line

In a checkout, `holdfast worker` is `python worker.py`, `holdfast gateway` is `python gateway.py`, and every other
`holdfast` is `python starter.py`. `--help` prints the same text. `--json` prints one JSON object, or one a line for
lists.

[Exit codes](exit-codes.md) explains each code. The commands are:
"""

EVENTS_HEAD = """\
# Events

The log of a thread is a list of these events; state and transcript are folds over it. `holdfast log THREAD` prints
them. A loop has its own log, with the events from [`loop_started`](#loop_started) on, and these events of a run, which
are about the loop there: `run_continued`, `run_blocked`, `run_unblocked`, `run_paused`, `run_resumed`,
`signal_rejected`, `refusals_counted` and `run_finished`.

"Followed by" names the events that come next if no input arrives. Inputs from people can arrive at any time.
"Correlate" names the fields by which events belong together. Every event also has these fields:

| field | meaning |
|---|---|
| `type` | the event's name |
| `schema_version` | 1, until a field changes its meaning |
| `position` | 0 for the first event of the thread, then without gaps |
| `at` | Temporal's time of the workflow task that recorded the event: the same on every replay |
| `digest` | the [digest of the chain](log-format.md#the-chain) up to and including this event |

An event's JSON omits fields that have their default.
"""


ERRORS_HEAD = """\
# Errors

Each entry has the message, the cause and the fix. Find it by the place in which it appeared, or by [name](#all-names).
All errors of Holdfast derive from `HoldfastError`. The command line prints the message without the name; `--debug`
shows both.

| it appeared in | page |
|---|---|
| a worker, the gateway or a command does not start | [Setting up](setup.md) |
| a command or program cannot reach a server or a worker | [Connecting](connecting.md) |
| a start is rejected | [Starting a run](starting.md) |
| a thread, its log or its artifacts cannot be read | [Reading threads](reading.md) |
| a decision, message or request is rejected | [Decisions and messages](decisions.md) |
| `show` says `blocked` | [Blocked runs](blocked-runs.md), [blocked loops](blocked-loops.md) |
| `show` says `failed` | [Failed runs](failed-runs.md) |
| Temporal's Web UI shows a failed attempt or task | [Failed attempts](failed-attempts.md) |
| a memory tool or command reports it | [Memory and files](memory.md) |
| an HTTP response with `application/problem+json` | [Gateway problems](gateway.md) |
| the exit code of a command | [Exit codes](../exit-codes.md) |

## All names

"""


def errors_page() -> str:
    """Return the page of errors and causes, with all their names."""
    folder = DOCS / "reference/errors"
    names: dict[str, list[str]] = {}
    for page in sorted(folder.glob("*.md")):
        for name in headings(page) if page.name != "index.md" else ():
            if re.fullmatch(r"[A-Z]\w+[a-z]", name):
                names.setdefault(name, []).append(f"{page.name}#{heading_slug(name)}")
    lines = []
    for name, places in sorted(names.items()):
        links = [f"[{name}]({places[0]})", *(f"[{place.partition('.')[0]}]({place})" for place in places[1:])]
        lines.append(f"- {', '.join(links)}")
    return ERRORS_HEAD + "\n".join(lines) + "\n"


def cli_page() -> str:
    """Return the page of the command line."""
    group = command()
    context = typer.Context(group, info_name="holdfast")
    sections = [_verb(group.commands[name], (name,), context) for name in group.list_commands(context)]
    names = re.findall(r"^## (.+)$", "\n".join(sections), re.MULTILINE)
    links = " · ".join(f"[{name}](#{heading_slug(name)})" for name in names)
    return "\n".join([CLI_HEAD, f"{links}\n", *sections])


@cache
def command() -> TyperGroup:
    """Return the command `holdfast`, with its programs."""
    programs = {WORKER: "holdfast.worker.__main__", GATEWAY: "holdfast.gateway.__main__"}
    for program, module in programs.items():
        add_program(app, program, module, help="")
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    for program, module in programs.items():
        main = __import__(module, fromlist=["main"]).main
        single = typer.Typer(add_completion=False)
        single.command(help=inspect.cleandoc(main.__doc__))(main)
        group.commands[program.verb] = get_command(single)
    return group


def _verb(verb: Any, path: tuple[str, ...], parent: Any) -> str:
    context = typer.Context(verb, info_name=path[-1], parent=parent)
    if isinstance(verb, TyperGroup):
        return "\n".join(_verb(each, (*path, name), context) for name, each in verb.commands.items())
    description = f"{inspect.cleandoc(verb.help or '')}\n\n{inspect.cleandoc(verb.epilog or '')}"
    text = re.sub(r"python (starter|worker|gateway)\.py", _program, description)
    says, _, examples = text.replace("\b\n", "").partition("Examples:\n")
    pieces = " ".join(piece for piece in verb.collect_usage_pieces(context))
    lines = [
        f"## {' '.join(path)}",
        "",
        says.strip(),
        "",
        "```text",
        f"holdfast {' '.join(path)} {pieces}".strip(),
        "```",
        "",
    ]
    rows = [_row(param, context) for param in verb.params]
    if filled_rows := [row for row in rows if row]:
        lines += ["| argument or option | meaning |", "|---|---|", *filled_rows, ""]
    if examples.strip():
        lines += ["```sh", *(line.strip() for line in examples.strip().splitlines()), "```", ""]
    return "\n".join(lines)


def _program(found: re.Match[str]) -> str:
    return "holdfast" if found[1] == "starter" else f"holdfast {found[1]}"


def _row(param: Any, context: Any) -> str:
    record = param.get_help_record(context)
    if record is None or param.name == "help":
        return ""
    name, says = (re.sub(r"\s+", " ", part).strip().replace("|", "\\|") for part in record)
    says = re.sub(r"(?<![\w`-])--[a-z][a-z-]*", r"`\g<0>`", says)
    return f"| `{name}` | {says} |"


def events_page() -> str:
    """Return the page of the events."""
    return "\n".join([EVENTS_HEAD, *map(_event, EVENT_CLASSES)])


def _event(kind: type[events.Event]) -> str:
    name = kind.model_fields["type"].default
    meaning = inspect.cleandoc(kind.__doc__ or "")
    meaning = re.sub(r"\n?\s*(Followed by|Correlate): ", r"\n\n**\1:** ", meaning)
    paragraphs = (re.sub(r"\s+", " ", each) for each in meaning.split("\n\n"))
    lines = [f"## {name}", "", _linked("\n\n".join(each.strip() for each in paragraphs if each.strip())), ""]
    rows = [f"| `{field}` | `{type_}` | {says} |" for field, type_, says in _fields(kind)]
    return "\n".join([*lines, *(["| field | type | meaning |", "|---|---|---|", *rows, ""] if rows else [])])


def _linked(text: str) -> str:
    """Link the names of events."""
    names = {each.model_fields["type"].default for each in EVENT_CLASSES}

    def link(found: re.Match[str]) -> str:
        return f"[`{found[1]}`](#{heading_slug(found[1])})" if found[1] in names else found[0]

    return re.sub(r"`(\w+)`", link, text)


def _fields(kind: type[events.Event]) -> Iterator[tuple[str, str, str]]:
    """Return the fields that an event adds, with the source of their types and their docstrings."""
    fields = kind.model_fields.keys() - {"type"}
    for part in (each for each in kind.__mro__ if each not in events.Event.__mro__):
        body = ast.parse(inspect.getsource(part)).body[0]
        assert isinstance(body, ast.ClassDef)
        for node, after in zip(body.body, [*body.body[1:], None], strict=True):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id in fields:
                says = ""
                if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                    says = re.sub(r"\s+", " ", str(after.value.value)).strip().replace("|", "\\|")
                yield node.target.id, ast.unparse(node.annotation).replace("|", "\\|"), says


_METRICS = """# Metrics

Workers export these beside those of Temporal's SDK: see [Monitor workers](../how-to/monitor.md). Counters and
histograms are each worker's own; gauges are the same in every worker.

{table}

Names of agents and tools are those of the catalog, names of LLMs those of its agents and of `HOLDFAST_LLM`; any other
name is `{other}`. The requests of a run of a feature level below 2 name no agent, so its agent is `{other}`, too.
Histograms have the bounds {buckets} seconds. The SDK adds the label `service_name`.
"""


def metrics_page() -> str:
    """Return the reference of metrics."""
    rows = ["| metric | kind | labels | what it is |", "|---|---|---|---|"]
    for each in METRICS:
        labels = ", ".join(f"`{label}`" for label in each.labels) or "–"
        rows.append(f"| `{each.name}` | {each.kind} | {labels} | {each.description} |")
    buckets = ", ".join(f"{each:g}" for each in BUCKETS)
    return _METRICS.format(table="\n".join(rows), other=OTHER, buckets=buckets)


PAGES = {
    "reference/cli.md": cli_page,
    "reference/errors/index.md": errors_page,
    "reference/events.md": events_page,
    "reference/metrics.md": metrics_page,
    "reference/settings.md": settings_page,
}

if __name__ == "__main__":
    for page, make in PAGES.items():
        (DOCS / page).write_text(make(), encoding="utf-8")
    print("wrote", *PAGES)
