"""The repository that the loop works in: a Python package that does nothing yet, and a list of its planned features.

Its bytes, names and dates are fixed, so its commit hash is the same on every machine.

    python -m holdfast.examples.loop.repository FOLDER
"""

import json
from pathlib import Path

import typer

from holdfast.examples.shared.git import GitFailed, run_git

AUTHOR = "Maris Brook"
"""The owner of the repository."""
DATE = "2026-02-02T10:00:00Z"

README = """\
# tally

Counts the words and lines of a text. Plain Python, without dependencies.

The tests need nothing else: `python -m unittest discover --top-level-directory .`
"""

FEATURES = {
    "words": "words(text) of tally.words is how many words a text has; what stands between two words is white space",
    "lines": "lines(text) of tally.lines is how many lines a text has, whether or not a line break ends the last one",
    "top": "top(text, count) of tally.top lists the most frequent words, each with how often it occurs: [('a', 2)]; "
    "of words that are equally frequent, the first in the alphabet",
    "command": "`python -m tally FILE` prints the lines and the words of a file, such as `3 14 notes.txt`; without "
    "FILE, those of standard input",
}
"""The requirement for each feature, by name."""


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
    features = [{"name": name, "description": text, "passes": False} for name, text in FEATURES.items()]
    files = {
        "README.md": README,
        ".gitignore": "__pycache__/\n",
        "features.json": json.dumps(features, indent=2) + "\n",
        "tally/__init__.py": '"""Counts the words and lines of a text."""\n',
        "tests/__init__.py": "",
    }
    for path, text in files.items():
        file = folder / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8", newline="\n")
    run_git(folder, "init", "--quiet", "--initial-branch=main", "--template=", author=AUTHOR)
    run_git(folder, "add", "--all", author=AUTHOR)
    subject = "A package that does nothing yet, and what it is to do"
    run_git(folder, "commit", "--quiet", "-m", subject, author=AUTHOR, date=DATE)
    return folder


def main(folder: Path) -> None:
    """Create the example repository in FOLDER."""
    try:
        print(create(folder))
    except (OSError, GitFailed) as error:
        raise SystemExit(f"repository: {error}") from None


if __name__ == "__main__":
    typer.run(main)
