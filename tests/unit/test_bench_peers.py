"""The comparison with the peers: its arithmetic and its text. Nothing is timed, and no peer is installed."""

import importlib.util

import pytest

from bench.document import put
from bench.llm import reply
from bench.peers.contender import Setup
from bench.peers.contenders import CONTENDERS, DBOS, HOLDFAST, LANGGRAPH, OPENAI_AGENTS, task
from bench.peers.figures import (
    BYTES,
    CPU,
    MS,
    PLAIN,
    TUNED,
    Resume,
    Run,
    answers_before_kill,
    best,
    cause,
    cells,
    deaths,
    repeats,
    wins,
)
from bench.peers.llm import step_of
from bench.peers.meters import count_actions
from bench.peers.report import Report, markdown


def run(contender: str, steps: int, *, ms: float = 20, size: float = 4_000, died: str = "", server: str = TUNED) -> Run:
    """Return a run with these milliseconds and bytes per step, two actions and three transactions."""
    reached, about = steps // 2 if died else steps + 1, CONTENDERS[contender]
    actions, transactions = 2 * steps if about.temporal else None, 3 * steps if about.postgres else None
    seconds, stored = ms * steps / 1000, round(size * steps)
    return Run(contender, server, steps, seconds, seconds / 2, stored, actions, transactions, reached, died)


def resume(contender: str, *, next_call: float, died: str = "") -> Resume:
    """Return a run of 100 steps that resumed after so many seconds."""
    return Resume(contender, 100, 90, next_call, next_call + 1, 1, died)


def report(runs: list[Run], resumes: list[Resume]) -> Report:
    """Return a report of these figures on some machine."""
    lengths = sorted({one.steps for one in runs})
    return Report(runs, resumes, lengths, 150, "a machine, 2 cores", {"python": "3.11"}, "2026-01-01", 0.5)


def test_figures_are_medians_per_step() -> None:
    """One slow run of three does not change a cell."""
    runs = [run(HOLDFAST, 100, ms=ms) for ms in (20, 500, 22)]

    assert cells(runs, MS) == {(HOLDFAST, 100): pytest.approx(22)}
    assert cells(runs, CPU) == {(HOLDFAST, 100): pytest.approx(11)}
    assert cells(runs, BYTES) == {(HOLDFAST, 100): pytest.approx(4_000)}


def test_actions_are_those_of_the_runs() -> None:
    """Every kind of action counts, except the server's own in its namespace."""
    metrics = """
action{action_type="command_ScheduleActivityTask",namespace="default",operation="x",service_name="frontend"} 41
action{action_type="grpc_QueryWorkflow",namespace="default",operation="x",service_name="frontend"} 1e+06
action{action_type="grpc_StartWorkflowExecution",namespace="temporal_system",service_name="frontend"} 2
queue_actions{namespace="default"} 7
"""
    assert count_actions(metrics) == 1_000_041


def test_a_table_shows_only_contenders_with_that_figure() -> None:
    """Actions exist only on Temporal, transactions only on PostgreSQL; Holdfast has both."""
    text = markdown(report([run(HOLDFAST, 10), run(OPENAI_AGENTS, 10), run(DBOS, 10)], []))
    actions = text.partition("### Actions")[2].partition("###")[0]
    transactions = text.partition("### Transactions")[2].partition("###")[0]

    assert "| Holdfast | **2.00** |" in actions
    assert "OpenAI Agents" in actions
    assert "DBOS" not in actions
    assert "| DBOS | 3.00 |" in transactions
    assert "OpenAI Agents" not in transactions
    assert "### Actions" not in markdown(report([run(DBOS, 10)], []))


def test_a_run_that_died_has_no_figure() -> None:
    """A run that died is not compared with complete runs."""
    runs = [run(OPENAI_AGENTS, 100), run(OPENAI_AGENTS, 200, died="history limit")]

    assert list(cells(runs, MS)) == [(OPENAI_AGENTS, 100)]
    assert deaths(runs) == {OPENAI_AGENTS: runs[1]}


def test_figures_of_the_two_servers_are_separate() -> None:
    """A run on the plain server neither counts on the tuned one nor marks its runs as dead."""
    runs = [run(HOLDFAST, 50, ms=20), run(HOLDFAST, 50, ms=120, server=PLAIN)]

    assert cells(runs, MS) == {(HOLDFAST, 50): pytest.approx(20)}
    assert cells(runs, MS, server=PLAIN) == {(HOLDFAST, 50): pytest.approx(120)}
    assert deaths([run(HOLDFAST, 50, died="time limit", server=PLAIN)]) == {}


def test_any_contender_may_be_the_best_of_a_length() -> None:
    """Every length has one winner: the smallest figure."""
    runs = [
        run(HOLDFAST, 10, ms=30),
        run(LANGGRAPH, 10, ms=15),
        run(HOLDFAST, 1000, ms=30),
        run(LANGGRAPH, 1000, ms=90),
    ]

    assert best(cells(runs, MS)) == {(LANGGRAPH, 10), (HOLDFAST, 1000)}


def test_every_figure_at_which_a_peer_wins_is_listed() -> None:
    """Time, CPU, bytes and resume count alike; a peer that did not survive the kill wins nothing."""
    runs = [run(HOLDFAST, 10, ms=30, size=4_000), run(DBOS, 10, ms=15, size=5_000)]
    found = wins(
        runs, [resume(HOLDFAST, next_call=8), resume(DBOS, next_call=2), resume(LANGGRAPH, next_call=0, died="x")]
    )

    assert found == [
        (DBOS, "10 steps: 15.0 ms a step, Holdfast 30.0"),
        (DBOS, "10 steps: 7.5 ms of CPU a step, Holdfast 15.0"),
        (DBOS, "after a SIGKILL: next model call in 2.0 s, Holdfast 8.0 s"),
    ]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("WorkflowFailureError <- TerminatedError: Workflow history size exceeds limit.", "history limit"),
        ("no model call for too long; workflow task failed: [TMPRL1103] Attempted to upload payloads", "payload limit"),
        ("no model call for too long", "no progress"),
        ("time limit: 150 s", "time limit"),
        ("Error: something\n  else", "Error: something else"),
    ],
)
def test_a_death_is_named_by_the_servers_reason(words: str, expected: str) -> None:
    """The server's reason takes precedence over the bench's; an unknown reason is quoted."""
    assert expected in cause(words)


def test_a_slow_run_is_not_a_dead_run() -> None:
    """A run that the bench gave up has its own mark, because it might have finished."""
    slow, dead = (run(DBOS, 10, ms=30, died=cause(words)) for words in ("time limit: 150 s", "history size exceeds"))

    assert (slow.given_up, dead.given_up) == (True, False)
    assert MS.of(slow) == pytest.approx(60)  # it made five of the ten steps
    assert "| DBOS | 60.0 ‡ 5 |" in markdown(report([slow], []))
    assert "| DBOS | † 5 |" in markdown(report([dead], []))


def test_short_runs_are_repeated() -> None:
    """Ten steps are run three times and the long runs once, so that the whole bench stays short."""
    assert [repeats(steps) for steps in (10, 50, 100, 200, 1000)] == [3, 2, 1, 1, 1]


def test_the_worker_is_killed_at_90_percent() -> None:
    """The bench kills the worker after that share of the model server's answers, at least one."""
    assert [answers_before_kill(steps) for steps in (100, 1000, 1)] == [90, 900, 1]


def test_a_section_is_replaced_and_the_others_stay() -> None:
    """Each bench writes between its own markers; the first time, its section is appended."""
    first = put(put("# Measurements\n", "peers", "one"), "floor", "two")

    assert put(first, "peers", "new\n") == first.replace("one", "new")


def test_the_log_contains_the_requested_step() -> None:
    """The step is read from the answer, so that both agree; the last answer requests none."""
    seen = b'{"tool_call_id":"call_7","content":"x"}'

    assert step_of(reply(task(10).encode())) == 1
    assert step_of(reply(task(10).encode() + seen)) == 8
    assert step_of(reply(task(7).encode() + seen)) == 0


def test_a_contender_that_compacts_its_context_is_named() -> None:
    """A contender that sends less than the whole transcript does less work, and the section says so."""
    short, whole = Run(HOLDFAST, TUNED, 1000, 30, 15, 1, 1, 1, 1000, summaries=3), run(DBOS, 1000)

    assert "Holdfast compacted its context 3 times in 1,000 steps" in markdown(report([short, whole], []))
    assert "compacted" not in markdown(report([whole], []))


def test_the_setup_survives_a_round_trip_to_the_worker() -> None:
    """The worker process reads what the bench wrote; each contender has its own database."""
    stack = {"temporal_address": "127.0.0.1:7233", "database_url": "postgresql://postgres@/postgres?host=/s&port=5432"}
    setup = Setup(stack, "home", "http://127.0.0.1:1/v1", 150.0, "temporal.log")

    assert Setup.load(setup.dump()) == setup
    assert setup.database_url("dbos") == "postgresql://postgres@/dbos?host=/s&port=5432"


def test_every_contender_has_a_module() -> None:
    """The names in the table lead to modules, which are found without importing them."""
    for name, about in CONTENDERS.items():
        assert importlib.util.find_spec(about.module(name)), name


def test_the_section_shows_deaths_winners_and_the_wins_of_peers() -> None:
    """A death has its step and cause, the best is bold, longer lengths are blank, and Holdfast's losses are listed."""
    runs = [
        *(run(HOLDFAST, steps, ms=30) for steps in (10, 200, 1000)),
        *(run(DBOS, steps, ms=15, size=9_000) for steps in (10, 200, 1000)),
        run(OPENAI_AGENTS, 10, ms=70, size=9_000),
        run(OPENAI_AGENTS, 200, died="the server terminated it: history limit"),
    ]
    text = markdown(report(runs, [resume(HOLDFAST, next_call=8), resume(DBOS, next_call=9)]))

    assert "| Holdfast | 30.0 | 30.0 | 30.0 |" in text
    assert "| DBOS | **15.0** | **15.0** | **15.0** |" in text
    assert "| OpenAI Agents SDK on Temporal | 70.0 | † 100 | – |" in text
    assert "† OpenAI Agents SDK on Temporal reached step 100 of 200: the server terminated it: history limit." in text
    assert "- DBOS, 1,000 steps: 15.0 ms a step, Holdfast 30.0" in text
    assert "| Holdfast | 100 | 90 answers | **8.0 s** | 9.0 s | 1 |" in text
    assert "not tuned" not in text


def test_the_plain_server_has_a_table_of_its_own() -> None:
    """Its figures stand beside those of the tuned server."""
    runs = [run(HOLDFAST, 50, ms=30), run(HOLDFAST, 50, ms=120, server=PLAIN)]

    assert "| Holdfast | 50 | 30.0 | 120.0 | 4,000 |" in markdown(report(runs, []))
