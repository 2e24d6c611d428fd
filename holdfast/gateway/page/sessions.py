"""Sessions of people on the page.

1. A session is its caller: the same name, scopes and threads as the caller's token, and nothing more.
2. Its id is 32 random bytes, of which this process keeps the digest alone, in memory: a restart ends all sessions, and
   another gateway accepts none of them.
3. Signing in makes a new id, so nobody can choose the id of another's session.
4. Each form has a token of its own, an HMAC of its address with the session's secret.
"""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.gateway.callers import Caller

SESSION_SECONDS = 12 * 3_600
"""After this time, a person signs in again."""
SESSIONS = 10_000
"""The most sessions in memory; beyond that, the oldest ends."""
SESSIONS_EACH = 50
"""The most sessions of one caller."""


@dataclass(frozen=True)
class Session:
    """A person who is signed in."""

    caller: Caller
    secret: bytes
    """The key of the tokens of its forms; the browser never gets it."""
    until: float

    def form_token(self, action: str) -> str:
        """Return the token of a form.

        Args:
            action: The path that the form is sent to.
        """
        return hmac.new(self.secret, action.encode(), hashlib.sha256).hexdigest()

    def is_token(self, token: str, action: str) -> bool:
        """Whether this is the token of the form with that action, in this session."""
        return hmac.compare_digest(token.encode(), self.form_token(action).encode())


class Sessions:
    """The sessions of one process.

    Args:
        now: A clock, in seconds.
        on_link_used: Called after somebody has signed in with a one-time link; None for nothing.
    """

    def __init__(
        self, *, now: Callable[[], float] = time.monotonic, on_link_used: Callable[[], None] | None = None
    ) -> None:
        self._now = now
        self._on_link_used = on_link_used
        self._open: dict[str, Session] = {}
        """Digest of its id → session; the oldest first."""
        self._links: dict[str, tuple[Caller, float]] = {}

    @property
    def prints_links(self) -> bool:
        """Whether a terminal prints one-time links, as `holdfast worker --dev` does: then nobody has a token."""
        return self._on_link_used is not None

    def begin(self, caller: Caller) -> str:
        """Begin a session, and return its id, for the cookie."""
        own = [key for key, each in self._open.items() if each.caller.name == caller.name]
        for key in own[: max(0, len(own) + 1 - SESSIONS_EACH)]:
            del self._open[key]
        if len(self._open) >= SESSIONS:
            del self._open[next(iter(self._open))]
        id = secrets.token_urlsafe(32)
        self._open[_digest(id)] = Session(caller, secrets.token_bytes(32), self._now() + SESSION_SECONDS)
        return id

    def find(self, id: str) -> Session | None:
        """Return the session with this id; None if it has ended, or if this process has begun no such session."""
        session = self._open.get(_digest(id)) if id else None
        if session and session.until <= self._now():
            self.end(id)
            return None
        return session

    def end(self, id: str) -> None:
        """End a session."""
        self._open.pop(_digest(id), None)

    def make_link(self, caller: Caller, *, seconds: float) -> str:
        """Return the secret of a link with which somebody may sign in as this caller, once, within a time."""
        secret = secrets.token_urlsafe(32)
        self._links[_digest(secret)] = (caller, self._now() + seconds)
        return secret

    def use_link(self, secret: str) -> Caller | None:
        """Return the caller of a one-time link, which then is used up; None if it is unknown, used or too old."""
        caller, until = self._links.pop(_digest(secret), (None, float("-inf")))
        if caller is None or until <= self._now():
            return None
        if self._on_link_used:
            self._on_link_used()
        return caller


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
