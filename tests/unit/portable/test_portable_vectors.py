"""The test vectors in `docs/verify/portable.json` match what our code writes and names, so that others can implement
the format.

`python -m tests.unit.portable.test_portable_vectors` writes the file.
"""

import base64
import json
from pathlib import Path
from typing import Any

from holdfast.portable.format.members import INTENT, LOG, child_member
from tests.support.families import family
from tests.support.portable_files import (
    ALICE,
    FOLDER,
    MALLORY,
    SIGNER,
    export,
    export_tree,
    ours,
    packed,
    parts_of,
    rebuilt,
    sealed,
)
from tests.support.runs import agent_spec, calls, loaded_thread, says

FILE = FOLDER / "portable.json"


def files() -> dict[str, bytes]:
    """Return a small file, its redacted form, and altered copies; and the same for a tree of runs."""
    thread = loaded_thread(agent_spec())
    thread.reply(calls("look"))
    thread.finish(1, content="seen")
    thread.reply(says("done"))
    thread.archive()
    sound = export(thread.log, thread="t", rows=())
    parts, tree = parts_of(sound), family()
    whole = parts_of(export_tree(tree))
    first, second = child_member(LOG, "1"), child_member(LOG, "1.1")
    return {
        "sound": sound,
        "redacted": export(thread.log, thread="t", rows=(), redact=True),
        "sealed": (sealing := export(thread.log, thread="t", rows=(), seals=sealed(thread.log, (3, 9), thread="t"))),
        "a seal of more events": sealing.replace(b'"events":3,"head"', b'"events":4,"head"'),
        "another node sealed first": rebuilt(
            [(name, content.replace(b'"first":0', b'"first":1')) for name, content in parts_of(sealing)], ALICE
        ),
        "a result changed": sound.replace(b'"content":"seen"', b'"content":"been"'),
        "signed by another": rebuilt(parts, MALLORY),
        "not signed": rebuilt(parts, None),
        "a member dropped": packed([(name, content) for name, content in parts if name != INTENT]),
        "the last event dropped": packed(
            [
                (name, b"".join(content.splitlines(keepends=True)[:-1]) if name == LOG else content)
                for name, content in parts
            ]
        ),
        "something after the end": sound + b"\0",
        "a tree": packed(whole),
        "a tree, redacted": export_tree(tree, redact=True),
        "a tree without its sub-agents": export_tree({"": tree[""]}),
        "a sub-agent without the one above it": rebuilt([part for part in whole if "/1/" not in part[0]], ALICE),
        "a sub-agent of another thread": rebuilt(
            [(name, dict(whole)[first] if name == second else content) for name, content in whole], ALICE
        ),
        "a result of a sub-agent changed": packed(
            [(name, content.replace(b'"content":"seen"', b'"content":"been"')) for name, content in whole]
        ),
    }


def vectors(folder: Path) -> dict[str, Any]:
    """Compute the vectors."""
    files_made = []
    for what, content in files().items():
        path = folder / "vector.holdfast"
        path.write_bytes(content)
        result = ours(path)
        verdict = {"head": result.head} if result.ok else {"where": result.where, "event": result.position}
        files_made.append({"what": what, "ok": result.ok, **verdict, "file": base64.b64encode(content).decode()})
    return {"signer": SIGNER, "files": files_made}


def test_the_vectors_are_what_we_write_and_name(tmp_path: Path) -> None:
    """Every file has the bytes and the verdict that it had when the format was published."""
    assert json.loads(FILE.read_text()) == vectors(tmp_path)


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        FILE.write_text(json.dumps(vectors(Path(folder)), indent=1) + "\n")
