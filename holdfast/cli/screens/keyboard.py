"""Reads the terminal's keyboard, key by key."""

import asyncio
import codecs
import os
import re
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

_SEQUENCE = re.compile(r"\x1b[\[O][0-9;]*[A-Za-z~]")
"""The escape sequences of arrow and function keys."""

_NAMES = {
    **{f"\x1b[{letter}": name for letter, name in {"A": "up", "B": "down", "H": "home", "F": "end"}.items()},
    **{f"\x1bO{letter}": name for letter, name in {"A": "up", "B": "down", "H": "home", "F": "end"}.items()},
    "\x1b[5~": "page_up",
    "\x1b[6~": "page_down",
    "\x1b[1~": "home",
    "\x1b[4~": "end",
}
"""Escape sequence → the name of its key. Other sequences are ignored."""


class Keyboard:
    """A context manager that reads single keys from standard input without echo; Ctrl-C still interrupts.

    A key is its character, or a name such as `page_down`.
    """

    def __init__(self) -> None:
        self._file = sys.stdin.fileno()
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._before: list[Any] = []

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(self._file)
        self._acquire()
        return self

    def __exit__(self, *error: object) -> None:
        self._release()

    async def key(self) -> str:
        """Wait for the next key."""
        return await self._queue.get()

    def clear(self) -> None:
        """Discard keys that were typed ahead."""
        while not self._queue.empty():
            self._queue.get_nowait()

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Leave the terminal to another program for a block; discard keys that were typed ahead."""
        self._release()
        try:
            yield
        finally:
            termios.tcflush(self._file, termios.TCIFLUSH)
            self._acquire()

    def _acquire(self) -> None:
        tty.setcbreak(self._file)
        asyncio.get_running_loop().add_reader(self._file, self._read)

    def _release(self) -> None:
        asyncio.get_running_loop().remove_reader(self._file)
        termios.tcsetattr(self._file, termios.TCSADRAIN, self._before)

    def _read(self) -> None:
        typed = os.read(self._file, 1024)
        if not typed:  # the terminal was closed
            asyncio.get_running_loop().remove_reader(self._file)
            self._queue.put_nowait("q")
        for key in keys_in(self._decoder.decode(typed)):
            self._queue.put_nowait(key)


def keys_in(typed: str) -> Iterator[str]:
    """Yield the keys of typed characters and escape sequences."""
    position = 0
    for match in _SEQUENCE.finditer(typed):
        yield from typed[position : match.start()]
        if name := _NAMES.get(match.group()):
            yield name
        position = match.end()
    yield from typed[position:]
