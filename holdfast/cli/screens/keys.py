"""The keys of the live view: a small state machine that turns characters into decisions and messages.

1. Only the request on the screen can be decided, and the decision carries its digest. A decision that lets a call run
   requires that all of its arguments have been on the screen. Each thread numbers its own requests, so a request is
   identified by its thread and its number.
2. A decision asks for a reason first; Enter sends it, Escape cancels it. A message is typed likewise.
3. Edited arguments are shown in place of the LLM's; approving sends them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from holdfast.client.threads import JSON
from holdfast.core.authority.approvals import ANSWERS
from holdfast.core.run.views.web_ui import HARMLESS

REMEMBER = "always allow"
"""Approve, and allow the same call with the same arguments from now on in this thread."""

CHOICES: dict[str, dict[str, str]] = {
    "approval": {"a": "approve", "A": REMEMBER, "d": "deny", "i": "respond"},
    "reconcile": {"h": "happened", "n": "absent", "u": "undo", "g": "abandon"},
    "question": {"a": "approve", "i": "respond", "d": "deny"},
}
"""By kind of request: the keys and their decisions."""

ASKS = {"happened": "what the call returned, or why", "respond": "what the agent is to read"}
"""By decision: the text that the user types with it, if that is not the reason."""

_HINTS = {
    "approve": "approve",
    REMEMBER: "always allow this call",
    "deny": "deny",
    "respond": "answer instead",
    "happened": "it happened",
    "absent": "it did not, run it",
    "undo": "undo it",
    "abandon": "leave it unknown",
}


def choices_for(request: JSON, *, seen: bool = True) -> dict[str, str]:
    """Return the keys for a request, and their decisions. A request not `seen` in full has no key that runs it."""
    answers = request.get("answers", ANSWERS.get(request["kind"], ()))
    choices = {key: word for key, word in CHOICES.get(request["kind"], {}).items() if decision_of(word) in answers}
    return {key: word for key, word in choices.items() if seen or word in HARMLESS}


def decision_of(choice: str) -> str:
    """Return the decision that a choice sends."""
    return "approve" if choice == REMEMBER else choice


def hints_for(request: JSON, *, seen: bool = True, edited: bool = False, others: bool = False) -> str:
    """Return the hints that show the keys for a request.

    Args:
        request: The request on the screen.
        seen: Whether the whole request has been on the screen.
        edited: Whether edited arguments are shown in place of the LLM's.
        others: Whether other requests are open.
    """
    choices = choices_for(request, seen=seen)
    if edited:
        hints = [f"[{key}] {_HINTS[word]} with these" for key, word in choices.items() if word not in HARMLESS]
        return "   ".join([*hints, "[e] edit again", "[Esc] discard the edit"])
    hints = [f"[{key}] {_HINTS[word]}" for key, word in choices.items()]
    hints += ["[e] edit"] if request["kind"] == "approval" and "approve" in choices_for(request).values() else []
    return "   ".join([*hints, *(["[Tab] next request"] if others else []), "[l] later"])


@dataclass(frozen=True)
class Answer:
    """A decision on a request."""

    request: JSON
    decision: str
    reason: str
    arguments: dict[str, Any] | None = None
    """The edited arguments to run with; None for those of the request."""
    remember: bool = False


@dataclass(frozen=True)
class Edit:
    """Edit the arguments of a request."""

    request: JSON
    arguments: Any
    """The arguments that are on the screen."""


@dataclass(frozen=True)
class Message:
    """A message to the agent."""

    text: str


Result = Answer | Edit | Message | Literal["leave", "retry", "pause", "resume"] | None


RequestKey = tuple[str, str]
"""The thread of a request, and its number in that thread."""


@dataclass
class Keys:
    """The state of the keyboard.

    Args:
        blocked: The run is blocked, so that `r` retries.
        paused: A person has paused the run, so that `P` resumes it.
        seen: Whether all of a request has been on the screen.
    """

    requests: Sequence[JSON] = ()
    blocked: bool = False
    paused: bool = False
    seen: Callable[[JSON], bool] = field(default=lambda _: True)
    postponed: set[RequestKey] = field(default_factory=set)
    decision: str | None = None
    """The choice whose reason is being typed."""
    composing: bool = False
    """Whether a message is being typed."""
    typed: str = ""
    edited: dict[str, Any] | None = None
    """The user's arguments in place of those of the request on the screen."""
    _current: RequestKey | None = None

    @property
    def request(self) -> JSON | None:
        """The request on the screen."""
        shown = self._shown
        return next((each for each in shown if request_key(each) == self._current), shown[0] if shown else None)

    @property
    def position(self) -> str:
        """The position among several requests of the one on the screen: `2 of 3`; empty if there is only one."""
        shown, request = self._shown, self.request
        return f"{shown.index(request) + 1} of {len(shown)}" if request and len(shown) > 1 else ""

    @property
    def typing(self) -> bool:
        """Whether characters are text and not commands."""
        return self.composing or self.decision is not None

    @property
    def _shown(self) -> list[JSON]:
        return [each for each in self.requests if request_key(each) not in self.postponed]

    def update(self, requests: Sequence[JSON], *, blocked: bool) -> None:
        """Set the open requests; discard typed and edited text for one that is no longer open, or has changed."""
        before = self.request
        self._current = request_key(before) if before else None  # it stays on the screen, even if others now precede it
        self.requests, self.blocked = requests, blocked
        if before is None or self.request is None or _identity(before) != _identity(self.request):
            self._show(self.request)

    def propose(self, request: JSON, arguments: dict[str, Any]) -> bool:
        """Show edited arguments in place of a request's; return whether that request is still on the screen."""
        if self.request is None or _identity(self.request) != _identity(request):
            return False
        self.edited = arguments
        return True

    def key(self, character: str) -> Result:
        """Process one key; return the action that it leads to, if any."""
        request = self.request
        if self.composing:
            return self._compose(character)
        if self.decision is not None and request is not None:
            return self._type(character, request, self.decision)
        if character == "q":
            return "leave"
        if character == "r" and self.blocked:
            return "retry"
        if character == "P":
            return "resume" if self.paused else "pause"
        if character == "m":
            self.composing = True
        elif character == "p":
            self.postponed.clear()
        elif request is not None:
            return self._command(character, request)
        return None

    def _command(self, character: str, request: JSON) -> Result:
        choices = choices_for(request)
        if character == "\x1b":
            self.edited = None
        elif character == "e" and "approve" in choices.values():
            return Edit(request, request["arguments"] if self.edited is None else self.edited)
        elif self.edited is not None and choices.get(character) in HARMLESS:
            return None  # an edit is approved or discarded first
        elif character == "\t":
            shown = self._shown
            self._show(shown[(shown.index(request) + 1) % len(shown)])
        elif character == "l":
            self.postponed.add(request_key(request))
            self._show(self.request)
        else:
            self.decision = choices_for(request, seen=self.seen(request)).get(character)
        return None

    def _show(self, request: JSON | None) -> None:
        """Put a request on the screen, without text typed or edited for another one."""
        self._current = request_key(request) if request else None
        self.edited = None
        if self.decision:
            self.decision, self.typed = None, ""

    def _type(self, character: str, request: JSON, decision: str) -> Result:
        if character in ("\r", "\n"):
            answer = Answer(
                request,
                decision_of(decision),
                self.typed.strip(),
                arguments=None if decision in HARMLESS else self.edited,
                remember=decision == REMEMBER,
            )
            self.decision, self.typed, self.edited = None, "", None
            return answer
        if character == "\x1b":
            self.decision, self.typed = None, ""
        self._edit(character)
        return None

    def _compose(self, character: str) -> Result:
        if character in ("\r", "\n", "\x1b"):
            text = self.typed.strip() if character != "\x1b" else ""
            self.composing, self.typed = False, ""
            return Message(text) if text else None
        self._edit(character)
        return None

    def _edit(self, character: str) -> None:
        if character in ("\x7f", "\b"):
            self.typed = self.typed[:-1]
        elif character == "\x15":  # Ctrl-U
            self.typed = ""
        elif len(character) == 1 and character.isprintable():
            self.typed += character


def request_key(request: JSON) -> RequestKey:
    """Return the key of a request among those of a tree: its thread, and its number there."""
    return request.get("thread", ""), request["request"]


def _identity(request: JSON) -> tuple[RequestKey, str]:
    return request_key(request), request["digest"]
