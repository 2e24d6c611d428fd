"""Reads the terminal's keyboard, character by character."""

import asyncio
import codecs
import os
import re
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager

_SEQUENCE = re.compile(r"\x1b[\[O][0-9;]*[A-Za-z~]")
"""The sequences that arrow and function keys send; they are ignored."""


@contextmanager
def typed_characters() -> Iterator["asyncio.Queue[str]"]:
    """The characters typed on standard input, each as it is typed, not echoed; Ctrl-C still interrupts."""
    loop, file = asyncio.get_running_loop(), sys.stdin.fileno()
    queue: asyncio.Queue[str] = asyncio.Queue()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def read() -> None:
        typed = os.read(file, 1024)
        if not typed:  # the terminal was closed
            loop.remove_reader(file)
            queue.put_nowait("q")
        for character in _SEQUENCE.sub("", decoder.decode(typed)):
            queue.put_nowait(character)

    before = termios.tcgetattr(file)
    tty.setcbreak(file)
    loop.add_reader(file, read)
    try:
        yield queue
    finally:
        loop.remove_reader(file)
        termios.tcsetattr(file, termios.TCSADRAIN, before)
