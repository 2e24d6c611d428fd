"""Finds secrets in tracked files: private keys, tokens of known services, and assignments of random text.

    python .ci/secret_scan.py [FOLDER]

Exit code 1 names the file, the line and the kind of each, and never shows it. What is no secret, such as a test's key,
is in `secrets-allowed.txt` by its fingerprint, with the reason.
"""

import hashlib
import math
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ALLOWED = Path(__file__).with_name("secrets-allowed.txt")
MAX_BYTES = 5_000_000
"""Larger files are data; a key is looked for in them, but not in a line of assignments."""
RANDOM_BITS = 3.5
"""Bits for each character, from which a value counts as random: words have less, keys in hex or base64 more."""

KINDS = {
    "private key": r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----\s*(?:\\n)?\s*([A-Za-z0-9+/=]{16,})",
    "AWS key": r"\b((?:AKIA|ASIA)[0-9A-Z]{16})\b",
    "GitHub token": r"\b((?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{50,}))",
    "GitLab token": r"\b(glpat-[A-Za-z0-9_-]{20,})",
    "Slack token": r"\b(xox[abeoprs]-[A-Za-z0-9-]{10,})",
    "Slack webhook": r"hooks\.slack\.com/services/(T[A-Z0-9]{6,}/B[A-Z0-9]{6,}/[A-Za-z0-9]{16,})",
    "LLM key": r"\b(sk-(?:proj-|ant-|svcacct-)?[A-Za-z0-9_-]{32,})",
    "Google key": r"\b(AIza[0-9A-Za-z_-]{35})",
    "Stripe key": r"\b((?:sk|rk)_live_[0-9A-Za-z]{16,})",
    "package registry token": r"\b(pypi-AgEI[A-Za-z0-9_-]{16,}|npm_[A-Za-z0-9]{36})",
    "signed token": r"\b(eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{16,})",
}
"""What looks like a secret wherever it is; the group is the secret."""

NAMED = re.compile(
    r"(?i)(?:secret|token|passw(?:or)?d|passphrase|api_?key|private_?key|access_?key|(?:fleet|encryption)_keys)"
    r"[\w-]*[\"']?\s*(?::=|[:=])\s*(?:SecretStr\()?[\"']?(?:[\w-]{1,24}:)?([A-Za-z0-9+/_=-]{20,})"
)
"""An assignment to a name that says that it is a secret."""
URL = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s:/@\"'<>{}$]+:([^\s:/@\"'<>{}$]{12,})@")


class Finding(NamedTuple):
    """A likely secret."""

    path: str
    line: int
    kind: str
    fingerprint: str


def scan(path: str, text: str) -> Iterator[Finding]:
    """Find what looks like a secret in a text."""
    for kind, found in _candidates(text):
        secret = found[1]
        fingerprint = hashlib.sha256(secret.encode()).hexdigest()[:16]
        yield Finding(path, text.count("\n", 0, found.start(1)) + 1, kind, fingerprint)


def _candidates(text: str) -> Iterator[tuple[str, re.Match[str]]]:
    for kind, pattern in KINDS.items():
        yield from ((kind, found) for found in re.finditer(pattern, text))
    if len(text) <= MAX_BYTES:
        for kind, pattern in (("random value", NAMED), ("password in a URL", URL)):
            yield from ((kind, found) for found in pattern.finditer(text) if is_random(found[1]))


def is_random(text: str) -> bool:
    """Whether a value looks generated: many different characters, of more than one kind."""
    kinds = (str.isdigit, str.isupper, str.islower)
    mixed = sum(any(map(kind, text)) for kind in kinds)
    bits = -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values())
    return mixed >= 2 and any(map(str.isdigit, text)) and bits >= RANDOM_BITS


def tracked(folder: Path) -> list[Path]:
    """The files of a checkout that git tracks; without git, all that an archive of it would have."""
    command = ["git", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        return [folder / name for name in listed.stdout.split("\0") if name]
    made = (".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".holdfast", "__pycache__")
    return [file for file in folder.rglob("*") if not any(part.startswith(made) for part in file.parts)]


def allowed() -> set[tuple[str, str]]:
    """The findings that are no secrets: path and fingerprint."""
    lines = [line.split(maxsplit=2) for line in ALLOWED.read_text(encoding="utf-8").splitlines()]
    return {(words[1], words[0]) for words in lines if len(words) == 3 and not words[0].startswith("#")}


def main() -> int:
    """Scan a folder, by default this checkout."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1])
    fine, found = allowed(), set[Finding]()
    for file in tracked(folder):
        if file.is_file() and not file.is_symlink():
            name = file.relative_to(folder).as_posix()
            found |= {*scan(name, file.read_text(encoding="utf-8", errors="replace"))}
    left = sorted(each for each in found if (each.path, each.fingerprint) not in fine)
    for each in left:
        print(f"{each.path}:{each.line}: {each.kind} ({each.fingerprint})", file=sys.stderr)
    if left:
        print(f"Remove and revoke each. What is no secret goes into {ALLOWED.name}, with a reason.", file=sys.stderr)
    return int(bool(left))


if __name__ == "__main__":
    sys.exit(main())
