"""The repository that the demo releases: a tiny Python package, tagged v0.1.0, with commits since then.

Its bytes, names and dates are fixed, so its commit hashes are the same on every machine.

    python -m holdfast.examples.release.repository FOLDER
"""

from dataclasses import dataclass
from pathlib import Path

import typer

from holdfast.examples.release.git import git
from holdfast.examples.shared.git import GitFailed

AUTHOR = "Maris Brook"

README = """\
# trickle

A token bucket: spend at most so many tokens a second.
"""

CHANGELOG = """\
# Changelog

## 0.1.0 (2026-01-05)

### Added
- A token bucket that refills with time
"""

MODULE = '''\
"""Spend at most so many tokens a second."""

import time


class Bucket:
    """Holds up to `capacity` tokens, refilled at `rate` a second."""

    def __init__(self, rate, capacity):
        self.rate = rate
        self.capacity = capacity
        self._tokens = float(capacity)
        self._at = time.monotonic()

    def take(self, tokens=1):
        """Take tokens; return whether there were enough."""
        self._refill()
        if tokens > self._tokens:
            return False
        self._tokens -= tokens
        return True

    def _refill(self):
        now = time.monotonic()
        self._tokens += (now - self._at) * self.rate
        self._at = now
'''

TESTS = """\
import time
import unittest

from trickle import Bucket


class BucketTest(unittest.TestCase):
    def test_an_empty_bucket_gives_nothing(self):
        bucket = Bucket(rate=1, capacity=2)
        self.assertEqual([bucket.take() for _ in range(3)], [True, True, False])

    def test_a_bucket_refills_with_time(self):
        bucket = Bucket(rate=10, capacity=1)
        bucket.take()
        time.sleep(0.3)
        self.assertTrue(bucket.take())
"""

FULL_TEST = """
    def test_a_bucket_never_holds_more_than_its_capacity(self):
        bucket = Bucket(rate=100, capacity=3)
        time.sleep(0.2)
        self.assertFalse(bucket.take(4))
"""

ACQUIRE = '''
    def acquire(self, tokens=1, timeout=10.0):
        """Wait until there are enough tokens, and take them; return False after `timeout` seconds."""
        give_up = time.monotonic() + timeout
        while not self.take(tokens):
            if time.monotonic() >= give_up:
                return False
            time.sleep(0.01)
        return True
'''

ACQUIRE_TESTS = """
    def test_acquire_waits_for_tokens(self):
        bucket = Bucket(rate=4, capacity=2)
        self.assertTrue(bucket.acquire(2))
        self.assertTrue(bucket.acquire(2))

    def test_acquire_gives_up(self):
        bucket = Bucket(rate=0, capacity=1)
        bucket.take()
        self.assertFalse(bucket.acquire(timeout=0.2))
"""

ENTER = """
    def __enter__(self):
        if not self.acquire():
            raise TimeoutError("no token within 10 seconds")
        return self

    def __exit__(self, *exception):
        return None
"""

ENTER_TEST = """
    def test_a_with_statement_takes_one_token(self):
        bucket = Bucket(rate=0, capacity=1)
        with bucket:
            self.assertFalse(bucket.take())
"""

WHEN_NOT = """
## When not to use it

One bucket serves one process. To share a limit between machines, keep the tokens in a database.
"""


@dataclass(frozen=True)
class _Commit:
    """One commit: its message, and its changes of files."""

    subject: str
    day: int
    """The day of January 2026."""
    changes: tuple[tuple[str, str, str], ...]
    """Path, text to replace (empty: append to the file), new text."""


_REFILL = "\n    def _refill"

COMMITS = (
    _Commit(
        "feat: a token bucket that refills with time",
        5,
        (
            ("README.md", "", README),
            ("CHANGELOG.md", "", CHANGELOG),
            (".gitignore", "", "__pycache__/\n"),
            ("trickle/__init__.py", "", MODULE),
            ("tests/__init__.py", "", ""),
            ("tests/test_bucket.py", "", TESTS),
        ),
    ),
    _Commit(
        "fix: a bucket no longer holds more than its capacity",
        7,
        (
            (
                "trickle/__init__.py",
                "self._tokens += (now - self._at) * self.rate",
                "self._tokens = min(self.capacity, self._tokens + (now - self._at) * self.rate)",
            ),
            ("tests/test_bucket.py", "", FULL_TEST),
        ),
    ),
    _Commit(
        "feat: acquire() waits for tokens, up to a time limit",
        9,
        (("trickle/__init__.py", _REFILL, ACQUIRE + _REFILL), ("tests/test_bucket.py", "", ACQUIRE_TESTS)),
    ),
    _Commit("docs: say when a bucket is the wrong tool", 12, (("README.md", "", WHEN_NOT),)),
    _Commit(
        "feat: a bucket works in a with statement",
        13,
        (("trickle/__init__.py", _REFILL, ENTER + _REFILL), ("tests/test_bucket.py", "", ENTER_TEST)),
    ),
    _Commit("chore: ignore build output", 14, ((".gitignore", "", "build/\ndist/\n"),)),
)
"""The first one is tagged v0.1.0."""


def create(folder: Path) -> Path:
    """Create the repository in a new or empty folder; return the folder.

    Raises:
        FileExistsError: The folder is not empty.
        GitFailed: Git is missing, or failed.
    """
    folder = folder.expanduser().resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty; name a new folder")
    git(folder, "init", "--quiet", "--initial-branch=main", "--template=")
    for number, commit in enumerate(COMMITS):
        for path, old, new in commit.changes:
            _change(folder / path, old, new)
        date = f"2026-01-{commit.day:02}T10:00:00Z"
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "-m", commit.subject, author=AUTHOR, date=date)
        if number == 0:
            git(folder, "tag", "--annotate", "v0.1.0", "-m", "Release 0.1.0", author=AUTHOR, date=date)
    return folder


def _change(file: Path, old: str, new: str) -> None:
    file.parent.mkdir(exist_ok=True)
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    assert before.count(old) == 1 or not old, f"{file.name} does not contain {old!r} exactly once"
    file.write_text(before.replace(old, new) if old else before + new, encoding="utf-8", newline="\n")


def main(folder: Path) -> None:
    """Create the example repository in FOLDER."""
    try:
        print(create(folder))
    except (OSError, GitFailed) as error:
        raise SystemExit(f"repository: {error}") from None


if __name__ == "__main__":
    typer.run(main)
