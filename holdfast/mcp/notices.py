"""What a server says while it works: log messages and progress, which reach the worker's log and nothing else.

They help people to look, and no run depends on them: they are outside of every history, and a flood is dropped. A text
has one line of bounded length, in which control characters are visible, and no secrets.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from holdfast.config.logs import EventLogger
from holdfast.core.base.text import one_line, visible
from holdfast.core.tools.secrets import Secrets

BURST: Final = 20
"""How many notices of a server are kept at once."""
PER_SECOND: Final = 2.0
"""How many are kept on average."""
TEXT_CHARS: Final = 500
"""How much of a text is kept."""

log = EventLogger("mcp")


class Notices:
    """The notices of one server over the life of its connection.

    Args:
        server: The server's name in the catalog.
        secrets: The values of the variables that it declares, which are redacted.
        clock: Returns seconds.
    """

    def __init__(self, server: str, secrets: Mapping[str, str], clock: Callable[[], float] = time.monotonic) -> None:
        self._server, self._secrets, self._clock = server, Secrets(secrets), clock
        self._room, self._at = float(BURST), clock()
        self._dropped = 0

    @property
    def has_room(self) -> bool:
        """Whether another notice would be kept now."""
        now = self._clock()
        self._room = min(float(BURST), self._room + (now - self._at) * PER_SECOND)
        self._at = now
        return self._room >= 1

    def drop(self) -> None:
        """Count a notice that is not kept; the next one that is says how many."""
        self._dropped += 1

    def take(self, event: str, text: Any, **fields: Any) -> None:
        """Log a notice, or drop it if there are too many.

        Args:
            event: The name of the log line.
            text: The server's text, or any JSON.
            fields: Further fields.
        """
        if not self.has_room:
            self.drop()
            return
        self._room -= 1
        dropped, self._dropped = self._dropped, 0
        more = {"dropped": dropped} if dropped else {}
        # Redact before shortening: half a secret would not be found.
        said = visible(one_line(self._secrets.redact(str(text)[: 100 * TEXT_CHARS]), TEXT_CHARS))
        log.info(event, server=self._server, text=said, **fields, **more)
