"""What a reader has shown of a run's replies, and the figures computed from it. Pure: no clock, no I/O.

1. A reader shows each piece of text as it comes. It drops text only where the stream says so: RESTARTED drops the text
   since the last reply, RECORDED replaces it by the recorded reply.
2. Each token is `STEP.NUMBER@TIME` (`bench.peers.llm`), the same in each attempt but for its time. So a token that is
   on the screen already is shown twice, and one that never comes is lost.
3. A first token's delay is the time from its sending to its first arrival at the reader.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles

TEXT, RESTARTED, RECORDED = "text", "restarted", "recorded"

_TOKEN = re.compile(r"(\d+)\.(\d+)@(\d+\.\d{6}) ")


@dataclass(frozen=True)
class Piece:
    """One piece of a stream, as a contender's reader gets it."""

    kind: str
    """TEXT, RESTARTED or RECORDED."""
    text: str = ""
    at: float = 0.0
    """Its arrival, in seconds of `time.monotonic`, which all processes share."""


@dataclass
class Screen:
    """What a reader shows."""

    kept: str = ""
    """The text of replies that the stream has said to be recorded."""
    draft: str = ""
    restarts: int = 0
    """How often the stream said that another attempt begins."""
    first: dict[int, float] = field(default_factory=dict)
    """The milliseconds until the first token of each step was shown, by the step."""
    _unread: str = ""

    def show(self, piece: Piece) -> None:
        """Take the next piece."""
        if piece.kind == RECORDED:
            self.kept, self.draft, self._unread = self.kept + piece.text, "", ""
        elif piece.kind == RESTARTED:
            self.draft, self._unread = "", ""
            self.restarts += 1
        else:
            self.draft += piece.text
            self._read(piece)

    @property
    def tokens(self) -> list[tuple[int, int]]:
        """The step and number of each token on the screen, in order."""
        return [(int(step), int(number)) for step, number, _ in _TOKEN.findall(self.kept + self.draft)]

    @property
    def twice(self) -> int:
        """The characters of tokens that are on the screen already."""
        seen: set[tuple[str, str]] = set()
        characters = 0
        for match in _TOKEN.finditer(self.kept + self.draft):
            if match.groups()[:2] in seen:
                characters += len(match[0])
            seen.add((match[1], match[2]))
        return characters

    def draft_of(self, step: int) -> str:
        """Return the text on the screen of a step."""
        return "".join(match[0] for match in _TOKEN.finditer(self.kept + self.draft) if int(match[1]) == step)

    def lost(self, steps: int, tokens: int) -> int:
        """Return the number of tokens that are not on the screen, of a run of so many steps and its last reply."""
        return (steps + 1) * tokens - len(set(self.tokens))

    def _read(self, piece: Piece) -> None:
        # A token may come in several pieces: it has arrived with its last one.
        self._unread += piece.text
        end = 0
        for match in _TOKEN.finditer(self._unread):
            if match[2] == "0":
                self.first.setdefault(int(match[1]), (piece.at - float(match[3])) * 1000)
            end = match.end()
        self._unread = self._unread[end:]


def screen_of(pieces: Iterable[Piece]) -> Screen:
    """Return the screen after all pieces."""
    screen = Screen()
    for piece in pieces:
        screen.show(piece)
    return screen


def delay_after(pieces: Sequence[Piece], at: float) -> float:
    """Return the seconds from a moment to the arrival of the first token that was sent after it; 0 for none."""
    text = ""
    for piece in pieces:
        text = text + piece.text if piece.kind == TEXT else ""
        if any(float(match[3]) > at for match in _TOKEN.finditer(text)):
            return piece.at - at
    return 0.0


@dataclass(frozen=True)
class Streamed:
    """The figures of one contender, without streams and with a reader of its streams."""

    contender: str
    plain_bytes: float = 0.0
    """Bytes of history and tables a step, without streams."""
    bytes: float = 0.0
    plain_actions: float = 0.0
    """Actions of the Temporal server a step, without streams."""
    actions: float = 0.0
    first: Sequence[float] = ()
    """The milliseconds until the first token of each reply was shown."""
    lost: int = 0
    """Tokens that were not shown, in the runs without a kill and with one."""
    twice: int = 0
    """The characters shown twice at the end of a run whose worker was killed within a reply."""
    shown: int = 0
    """The characters of the killed attempt that the reader had shown."""
    restarts: int = 0
    """How often the stream said that another attempt begins, in that run."""
    resumed: float = 0.0
    """Seconds from the kill to the next token."""
    died: str = ""

    @property
    def median(self) -> float:
        """The median of `first`; 0 if no reply was streamed."""
        return median(self.first) if self.first else 0.0

    @property
    def p95(self) -> float:
        """The 95th percentile of `first`."""
        return quantiles(self.first, n=20, method="inclusive")[-1] if len(self.first) > 1 else self.median
