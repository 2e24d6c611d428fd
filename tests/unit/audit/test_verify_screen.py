"""What `verify` prints: the verdict, the first fault with advice, and the checks that were not possible."""

from holdfast.audit.evidence.evidence import ADVICE, Finding, Unchecked, Where
from holdfast.audit.evidence.verdicts import Verification
from holdfast.cli.screens.record_screens import verify_screen


def printed_lines(verified: Verification) -> list[str]:
    """Return the printed lines."""
    return verify_screen(verified).plain.splitlines()


def test_a_pass_lists_signatures_and_what_was_not_checked() -> None:
    """One line lists the checks and one line each gap, so that the verdict promises no more than it should."""
    unchecked = (Unchecked("keys", "taken from the log"), Unchecked("end", "no later history"))
    verification = Verification(
        "t", "not_proven", 12, ("record",), checked=("record",), signatures=2, unchecked=unchecked
    )
    first, *gaps = printed_lines(verification)
    assert first == "not proven  t  12 events in the permanent record, 2 signatures"
    assert [line.strip() for line in gaps] == [
        "checked: record",
        "not checked: keys: taken from the log",
        "not checked: end: no later history",
    ]


def test_a_fault_gives_location_reason_and_remedy() -> None:
    """The screen names the event, if there is one; forged control characters do not reach the terminal."""
    places: tuple[tuple[Where, int | None, str], ...] = (
        ("record", 7, "event 7, in the record: \\x1b[2Jgone"),
        ("ledger", None, "in the ledger: \\x1b[2Jgone"),
        ("artifacts", 3, "event 3, in artifacts: \\x1b[2Jgone"),
    )
    for where, position, words in places:
        faults = (Finding(where, "\x1b[2Jgone", position),)
        altered = Verification("t", "altered", 12, ("history", "record"), faults=faults, advice=ADVICE[where])
        first, fault, advice = printed_lines(altered)
        assert first == "altered     t  12 events in Temporal's histories and the permanent record"
        assert (fault.strip(), advice.strip()) == (words, ADVICE[where])
