"""What `verify` shows: the verdict, the first fault and what to do, and what could not be checked."""

from holdfast.runtime.audit.evidence import ADVICE, Unchecked, Where
from holdfast.runtime.audit.verify import Verification
from holdfast.runtime.cli.screens import verify_screen


def shown(verified: Verification) -> list[str]:
    """The lines."""
    return verify_screen(verified).plain.splitlines()


def test_what_passes_has_its_signatures_and_what_was_not_checked() -> None:
    """One line a gap, so that nobody takes `ok` for more than it is."""
    unchecked = (Unchecked("keys", "taken from the log"), Unchecked("end", "nobody can tell"))
    first, *gaps = shown(Verification("t", True, 12, ("record",), signatures=2, unchecked=unchecked))
    assert first == "ok       t  12 events in the permanent record, 2 signatures"
    assert [line.strip() for line in gaps] == [
        "not checked: keys: taken from the log",
        "not checked: end: nobody can tell",
    ]


def test_a_fault_says_where_what_and_what_to_do() -> None:
    """With the event, where one is at fault; control characters of a forger do nothing to the terminal."""
    places: tuple[tuple[Where, int | None, str], ...] = (
        ("record", 7, "event 7, in the record: \\x1b[2Jgone"),
        ("ledger", None, "in the ledger: \\x1b[2Jgone"),
        ("artifacts", 3, "event 3, in artifacts: \\x1b[2Jgone"),
    )
    for where, position, words in places:
        told = {"where": where, "position": position, "reason": "\x1b[2Jgone", "advice": ADVICE[where]}
        first, fault, advice = shown(Verification("t", False, 12, ("history", "record"), **told))  # type: ignore[arg-type]
        assert first == "altered  t  12 events in Temporal's histories and the permanent record"
        assert (fault.strip(), advice.strip()) == (words, ADVICE[where])
