"""The tests and code that the scripted LLM writes for each task."""

from dataclasses import dataclass, replace

WORDS = "words() counts the words of a text"
LINES = "lines() counts the lines of a text, whether or not the last one is ended"
TOP = "top() lists the most frequent words of a text"
COMMAND = "python -m tally prints the lines and words of a file or of standard input"
PLAN = (WORDS, LINES, TOP, COMMAND)
"""The tasks of the initializer's plan."""

TOP_MENTIONED = f"{TOP}, and README.md mentions it"
"""The title of one of them after a person has reworded it."""
HELP = "python -m tally --help shows an example"
"""The task that a person adds."""

GIVEN_UP = 'text.count("\\n") misses a last line that no line break ends'
"""The finding of the first attempt at `LINES`, recorded for the second."""


@dataclass(frozen=True)
class Write:
    """A file to write."""

    path: str
    content: str


@dataclass(frozen=True)
class Edit:
    """Text of a file, and its replacement."""

    path: str
    old: str
    new: str


Change = Write | Edit


@dataclass(frozen=True)
class Job:
    """The steps that complete a task."""

    test: Write
    code: tuple[Change, ...]
    what: str
    """A sentence about the work done."""
    feature: str = ""
    """The feature that then passes."""
    first_code: tuple[Change, ...] = ()
    """The code of a first attempt, which fails; empty if there is only one attempt."""


WORDS_TEST = """\
import unittest

from tally.words import words


class WordsTest(unittest.TestCase):
    def test_an_empty_text_has_no_words(self):
        self.assertEqual(0, words(""))

    def test_white_space_of_any_kind_and_length_stands_between_words(self):
        self.assertEqual(3, words("  one two\\n\\n\\tthree "))
"""

WORDS_CODE = '''\
"""Words of a text."""


def words(text):
    """Return how many words a text has."""
    return len(text.split())
'''

LINES_TEST = """\
import unittest

from tally.lines import lines


class LinesTest(unittest.TestCase):
    def test_an_empty_text_has_no_lines(self):
        self.assertEqual(0, lines(""))

    def test_each_line_counts(self):
        self.assertEqual(3, lines("one\\n\\nthree\\n"))

    def test_a_last_line_that_is_not_ended_counts(self):
        self.assertEqual(2, lines("one\\ntwo"))
"""

LINES_CODE = '''\
"""Lines of a text."""


def lines(text):
    """Return how many lines a text has, whether or not a line break ends the last one."""
    return {}
'''

TOP_TEST = """\
import unittest

from tally.top import top


class TopTest(unittest.TestCase):
    def test_an_empty_text_has_none(self):
        self.assertEqual([], top("", 3))

    def test_the_most_frequent_comes_first(self):
        self.assertEqual([("to", 2), ("be", 1)], top("to be to", 2))

    def test_of_equally_frequent_words_the_first_in_the_alphabet_comes_first(self):
        self.assertEqual([("a", 1), ("b", 1)], top("c b a", 2))
"""

TOP_CODE = '''\
"""The most frequent words of a text."""

from collections import Counter


def top(text, count):
    """Return the `count` most frequent words, each with how often it occurs."""
    found = Counter(text.split())
    return sorted(found.items(), key=lambda each: (-each[1], each[0]))[:count]
'''

COMMAND_TEST = """\
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path


def tally(*arguments, text=""):
    command = [sys.executable, "-m", "tally", *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


class CommandTest(unittest.TestCase):
    def test_a_file_is_counted(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "notes.txt")
            path.write_text("one two\\nthree\\n")
            self.assertEqual(f"2 3 {path}\\n", tally(str(path)))

    def test_without_a_file_standard_input_is_counted(self):
        self.assertEqual("1 2\\n", tally(text="one two"))
"""

COMMAND_CODE = '''\
"""The command line: `python -m tally [FILE]`."""

import argparse
import sys
from pathlib import Path

from tally.lines import lines
from tally.words import words


def main():
    """Print the lines and words of a file, or of standard input."""
    parser = argparse.ArgumentParser(prog="tally", description="Count the lines and words of a text.")
    parser.add_argument("file", nargs="?", help="standard input if there is none")
    path = parser.parse_args().file
    text = Path(path).read_text() if path else sys.stdin.read()
    print(lines(text), words(text), *([path] if path else []))


if __name__ == "__main__":
    main()
'''

HELP_TEST = """\
import subprocess
import sys
import unittest


class HelpTest(unittest.TestCase):
    def test_it_shows_an_example(self):
        shown = subprocess.run([sys.executable, "-m", "tally", "--help"], capture_output=True, text=True).stdout
        self.assertIn("python -m tally notes.txt", shown)
"""

_TOP = Job(
    test=Write("tests/test_top.py", TOP_TEST),
    code=(Write("tally/top.py", TOP_CODE),),
    what="top() counts the words and sorts them by number, then by name.",
    feature="top",
)

JOBS = {
    WORDS: Job(
        test=Write("tests/test_words.py", WORDS_TEST),
        code=(Write("tally/words.py", WORDS_CODE),),
        what="words() splits at white space and counts what is left.",
        feature="words",
    ),
    LINES: Job(
        test=Write("tests/test_lines.py", LINES_TEST),
        first_code=(Write("tally/lines.py", LINES_CODE.format('text.count("\\n")')),),
        code=(Edit("tally/lines.py", 'text.count("\\n")', "len(text.splitlines())"),),
        what="lines() counts with splitlines(), which includes a last line without a line break.",
        feature="lines",
    ),
    TOP: _TOP,
    TOP_MENTIONED: replace(
        _TOP,
        code=(*_TOP.code, Edit("README.md", "lines of a text.", "lines of a text, and lists its top() words.")),
        what=f"{_TOP.what} README.md mentions it.",
    ),
    COMMAND: Job(
        test=Write("tests/test_command.py", COMMAND_TEST),
        code=(Write("tally/__main__.py", COMMAND_CODE),),
        what="The command prints lines and words, of a file or of standard input.",
        feature="command",
    ),
    HELP: Job(
        test=Write("tests/test_help.py", HELP_TEST),
        code=(
            Edit(
                "tally/__main__.py",
                'description="Count the lines and words of a text.")',
                'description="Count the lines and words of a text.",\n'
                '                                     epilog="Example: python -m tally notes.txt")',
            ),
        ),
        what="The help ends with an example.",
    ),
}
"""The job for each task, by title: the tasks of the plan, and those that a person changes or adds."""
