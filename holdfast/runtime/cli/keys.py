"""What the keys do in the live view: a small state machine that turns characters into decisions and messages.

1. Only the request on the screen can be decided, and the decision carries its digest. A request that does not fit on
   the screen cannot be approved here.
2. A decision asks for a reason first; Enter sends it, Escape cancels it. A message is typed likewise.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from holdfast.authority.approvals import ANSWERS
from holdfast.run.details import HARMLESS
from holdfast.runtime.client.threads import JSON

CHOICES: dict[str, dict[str, str]] = {
    "approval": {"a": "approve", "d": "deny", "i": "respond"},
    "reconcile": {"h": "happened", "n": "absent", "u": "undo", "g": "abandon"},
}
"""By kind of request: the keys and their decisions."""

ASKS = {"happened": "what the call returned, or why", "respond": "what the agent is to read"}
"""What the user types with a decision, where it is not the reason."""

_HINTS = {
    "approve": "approve",
    "deny": "deny",
    "respond": "answer instead",
    "happened": "it happened",
    "absent": "it did not, run it",
    "undo": "undo it",
    "abandon": "leave it unknown",
}


def choices_for(request: JSON, *, seen: bool = True) -> dict[str, str]:
    """The keys for a request, and their decisions. A request that was not `seen` in full has no key that runs it."""
    answers = request.get("answers", ANSWERS.get(request["kind"], ()))
    choices = {key: word for key, word in CHOICES.get(request["kind"], {}).items() if word in answers}
    return {key: word for key, word in choices.items() if seen or word in HARMLESS}


def hints_for(request: JSON, *, seen: bool = True) -> str:
    """The hints that show the keys for a request."""
    choices = choices_for(request, seen=seen)
    return "   ".join([*(f"[{key}] {_HINTS[word]}" for key, word in choices.items()), "[l] later"])


@dataclass(frozen=True)
class Answer:
    """A decision on a request."""

    request: JSON
    decision: str
    reason: str


@dataclass(frozen=True)
class Message:
    """Something to say to the agent."""

    text: str


Result = Answer | Message | Literal["leave", "retry"] | None


@dataclass
class Keys:
    """The state of the keyboard.

    Args:
        blocked: Whether the run is blocked, so that `r` retries.
        seen: Whether a request fits on the screen.
    """

    requests: Sequence[JSON] = ()
    blocked: bool = False
    seen: Callable[[JSON], bool] = field(default=lambda _: True)
    postponed: set[str] = field(default_factory=set)
    decision: str | None = None
    """The decision whose reason is being typed."""
    composing: bool = False
    """Whether a message is being typed."""
    typed: str = ""

    @property
    def request(self) -> JSON | None:
        """The request on the screen."""
        return next((each for each in self.requests if each["request"] not in self.postponed), None)

    def update(self, requests: Sequence[JSON], *, blocked: bool) -> None:
        """Take the open requests; drop a reason that is being typed for one that is no longer open."""
        before = self.request
        self.requests, self.blocked = requests, blocked
        now = self.request
        if self.decision and (before is None or now is None or now["request"] != before["request"]):
            self.decision, self.typed = None, ""

    def key(self, character: str) -> Result:
        """Take one character; returns what it leads to, if anything."""
        request = self.request
        if self.composing:
            return self._compose(character)
        if self.decision is not None and request is not None:
            return self._type(character, request, self.decision)
        if character == "q":
            return "leave"
        if character == "r" and self.blocked:
            return "retry"
        if character == "m":
            self.composing = True
        elif character == "p":
            self.postponed.clear()
        elif request is not None and character == "l":
            self.postponed.add(request["request"])
        elif request is not None:
            self.decision = choices_for(request, seen=self.seen(request)).get(character)
        return None

    def _type(self, character: str, request: JSON, decision: str) -> Result:
        if character in "\r\n":
            answer = Answer(request, decision, self.typed.strip())
            self.decision, self.typed = None, ""
            return answer
        if character == "\x1b":
            self.decision, self.typed = None, ""
        self._edit(character)
        return None

    def _compose(self, character: str) -> Result:
        if character in "\r\n\x1b":
            text = self.typed.strip() if character != "\x1b" else ""
            self.composing, self.typed = False, ""
            return Message(text) if text else None
        self._edit(character)
        return None

    def _edit(self, character: str) -> None:
        if character in "\x7f\b":
            self.typed = self.typed[:-1]
        elif character == "\x15":  # Ctrl-U
            self.typed = ""
        elif character.isprintable():
            self.typed += character
