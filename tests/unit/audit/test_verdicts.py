"""The three verdicts of `verify`, from the faults, the checks made and the checks missing."""

import pytest

from holdfast.audit.evidence.evidence import Finding, Unchecked
from holdfast.audit.evidence.verdicts import Verdict, checked_of, conclude, required, verdict_of, view_of

HISTORY = frozenset({"history", "seals", "record", "ledger", "artifacts"})
"""Checks made while Temporal has the history."""
RECORD = frozenset({"history", "record", "ledger", "artifacts"})
"""Checks made once Temporal no longer has it."""
FILE = frozenset({"signature", "ledger", "artifacts", "keys"})


def gaps(*names: str) -> list[Unchecked]:
    """Return gaps of these names."""
    return [Unchecked(name, "why") for name in names]


@pytest.mark.parametrize(
    ("made", "missing", "verdict"),
    [
        pytest.param(HISTORY, (), "proven", id="history, record and ledger agree"),
        pytest.param(HISTORY, ("keys", "policy"), "proven", id="sealed policies need no keys from elsewhere"),
        pytest.param(HISTORY, ("anchors", "nodes"), "proven", id="a sealed history needs no anchors"),
        pytest.param(HISTORY - {"seals"}, ("seals",), "not_proven", id="no fleet key"),
        pytest.param(HISTORY, ("ledger",), "not_proven", id="no ledger"),
        pytest.param(HISTORY - {"record"}, ("record",), "not_proven", id="no database"),
        pytest.param(HISTORY, ("artifacts",), "not_proven", id="artifacts left out"),
        pytest.param(HISTORY, ("beginning",), "not_proven", id="the record's word for the beginning"),
        pytest.param(HISTORY, ("original",), "not_proven", id="a fork's original, or a file's events"),
        pytest.param(HISTORY, ("iterations",), "not_proven", id="iterations of a loop that were pruned"),
        pytest.param(RECORD, ("history", "anchors"), "not_proven", id="the record alone"),
        pytest.param(RECORD, ("history", "anchors", "keys"), "not_proven", id="the record alone, with its own keys"),
        pytest.param(RECORD | {"keys"}, ("history", "anchors"), "not_proven", id="the record with known keys"),
        pytest.param(RECORD | {"anchors"}, ("history", "keys"), "proven", id="the record with known nodes' seals"),
        pytest.param(RECORD | {"anchors"}, ("history", "nodes"), "not_proven", id="seals of unknown nodes"),
        pytest.param(RECORD | {"anchors"}, ("history", "anchors"), "not_proven", id="seals that end too early"),
        pytest.param(RECORD | {"anchors"}, ("history", "end"), "not_proven", id="a log without an end"),
        pytest.param(frozenset({"record"}), ("content",), "not_proven", id="a forgotten thread"),
        pytest.param(frozenset(), (), "not_proven", id="nothing was checked"),
        pytest.param(FILE, ("history", "anchors"), "proven", id="a file with a known signer"),
        pytest.param(FILE, ("history", "anchors", "signer"), "not_proven", id="a file with an unknown signer"),
        pytest.param(FILE, ("history", "anchors", "signature"), "not_proven", id="a file without a signature"),
        pytest.param(FILE | {"anchors"}, ("history", "signature"), "proven", id="a file that known nodes have sealed"),
        pytest.param(FILE, ("history", "anchors", "bodies"), "not_proven", id="a redacted file"),
        pytest.param(FILE, ("history", "anchors", "subagents"), "not_proven", id="a file without its sub-agents"),
    ],
)
def test_proof_needs_a_witness_and_no_relevant_gap(
    made: frozenset[str], missing: tuple[str, ...], verdict: Verdict
) -> None:
    """A log without a fault is proven only if external evidence shows who wrote it, and all of it was checked."""
    assert verdict_of((), checked_of(made, gaps(*missing)), gaps(*missing)) == verdict


@pytest.mark.parametrize("missing", [(), ("seals", "ledger")])
def test_a_fault_means_altered_regardless_of_the_checks(missing: tuple[str, ...]) -> None:
    """The first faulty event comes first, and faults in no event come last."""
    faults = [Finding("ledger", "no event starts it"), Finding("record", "later", 7), Finding("history", "first", 3)]
    verification = conclude("t", 9, ("record",), faults, gaps(*missing), made=HISTORY)
    assert (verification.verdict, verification.where, verification.position, verification.reason) == (
        "altered",
        "history",
        3,
        "first",
    )
    assert [fault.position for fault in verification.faults] == [3, 7, None]
    assert verification.advice
    assert required(verification, ["anchors"]).verdict == "altered"


def test_a_check_that_is_required_and_was_not_made_is_an_error() -> None:
    """A log proven without an optional check is not proven if that check is required, and the gap is named."""
    verification = conclude("t", 9, ("history", "record"), (), (), made=HISTORY)
    assert verification.verdict == "proven"
    assert required(verification, ["seals", "record", "ledger"]) == verification
    demanded = required(verification, ["seals", "anchors"])
    assert (demanded.verdict, [gap.what for gap in demanded.unchecked]) == ("not_proven", ["anchors"])
    known = conclude("t", 9, ("history", "record"), (), gaps("keys"), made=HISTORY)
    assert [gap.what for gap in required(known, ["keys"]).unchecked] == ["keys"]  # named once


def test_the_view_names_checks_gaps_and_faults() -> None:
    """JSON has the verdict, the checks, the gaps and the faults, and never says `ok`."""
    verification = conclude("t", 9, ("record",), [Finding("record", "gone", 4)], gaps("history"), made=RECORD)
    view = view_of(verification)
    assert (view["verdict"], view["checked"]) == ("altered", ("record", "ledger", "artifacts"))
    assert view["not_checked"] == ({"what": "history", "why": "why"},)
    assert view["faults"] == ({"where": "record", "reason": "gone", "position": 4},)
    assert (view["from"], view["where"], view["position"], view["reason"]) == (("record",), "record", 4, "gone")
    assert "ok" not in view
