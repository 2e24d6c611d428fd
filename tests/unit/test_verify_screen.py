"""What `verify` prints: the verdict, the first fault with advice, and what could not be checked."""

from holdfast.runtime.audit.evidence import ADVICE, Unchecked, Where
from holdfast.runtime.audit.verify import Verification
from holdfast.runtime.cli.record_screens import verify_screen


def shown(verified: Verification) -> list[str]:
    """Return the printed lines."""
    return verify_screen(verified).plain.splitlines()


def test_a_pass_lists_signatures_and_what_was_not_checked() -> None:
    """One line per gap, so that `ok` does not promise more than it should."""
    unchecked = (Unchecked("keys", "taken from the log"), Unchecked("end", "no later history"))
    first, *gaps = shown(Verification("t", True, 12, ("record",), signatures=2, unchecked=unchecked))
    assert first == "ok       t  12 events in the permanent record, 2 signatures"
    assert [line.strip() for line in gaps] == [
        "not checked: keys: taken from the log",
        "not checked: end: no later history",
    ]


def test_a_fault_says_where_what_and_what_to_do() -> None:
    """It names the event, if there is one; forged control characters do not reach the terminal."""
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
