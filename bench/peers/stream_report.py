"""Renders the comparison of streams as the section "Streams beside alternatives" of `bench/RESULTS.md`."""

from collections.abc import Sequence

from bench.environment import OBSERVATION_BYTES
from bench.peers.contenders import CONTENDERS, STREAM_SETTINGS
from bench.peers.llm import Pace
from bench.peers.report import foot, line
from bench.peers.shown import Streamed


def markdown(results: Sequence[Streamed], *, steps: int, pace: Pace, limit: float, load: float | None) -> str:
    """Render the section, without its markers."""
    length = f"{pace.tokens} tokens, one every {pace.seconds * 1000:.0f} ms"
    return "\n".join(
        [
            "## Streams beside alternatives",
            "",
            "Written by `python -m bench.peers --streaming` (`make bench-peers ARGS=--streaming`); do not edit.",
            "",
            f"The agent of the comparison above makes {steps} steps. The model server writes {length}, before each "
            f"tool call, which returns {OBSERVATION_BYTES:,} bytes, and before the end. A reader in a process of its "
            "own reads the run's stream by the means that the contender's documentation gives. Bytes and actions are "
            "per step, as above; a run with streams is one that is read.",
            "",
            line(["", "bytes", "bytes, streamed", "actions", "actions, streamed", "first token, median", "p95"]),
            line(["---", *["--:"] * 6]),
            *[_costs(each) for each in results],
            "",
            "First token: from its sending by the model server to its arrival at the reader, of each reply. Bytes of "
            "Holdfast are history and tables; the pieces themselves are in an unlogged ring of fixed length, which is "
            "among these tables.",
            "",
            "Then the worker is killed (SIGKILL) when the reader has half of a reply, and another one is started. "
            "The reader drops text only where the stream says so. Each token names its step and its number, so one "
            "that is on the screen already is text shown twice.",
            "",
            line(["", "shown of the killed attempt", "shown twice at the end", "told", "next token", "tokens lost"]),
            line(["---", *["--:"] * 5]),
            *[_kill(each) for each in results],
            "",
            *[f"- {CONTENDERS[each.contender].title}: {STREAM_SETTINGS[each.contender]}" for each in results],
            "",
            foot(limit, load),
        ]
    )


def _costs(each: Streamed) -> str:
    title = CONTENDERS[each.contender].title
    if each.died:
        return line([title, f"† {each.died}", *["–"] * 5])
    sizes = [f"{each.plain_bytes:,.0f}", f"{each.bytes:,.0f}", f"{each.plain_actions:.2f}", f"{each.actions:.2f}"]
    return line([title, *sizes, f"{each.median:.1f} ms", f"{each.p95:.1f} ms"])


def _kill(each: Streamed) -> str:
    title = CONTENDERS[each.contender].title
    if each.died:
        return line([title, f"† {each.died}", *["–"] * 4])
    told = "yes" if each.restarts else "no"
    return line([title, f"{each.shown} characters", f"{each.twice}", told, f"{each.resumed:.1f} s", f"{each.lost}"])
