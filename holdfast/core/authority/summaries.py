"""Summaries of one line: of a task, a tool call, and the terms and votes of an approval request."""

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.core.authority.approvals import ApprovalRequest
from holdfast.core.authority.statements import speaker_words
from holdfast.core.authority.votes import votes_for
from holdfast.core.base.text import one_line, plain
from holdfast.core.llm.blocks import Content, text_of

TASK = "task"
"""The key of the memo with the task in one line: Temporal lists memos, and does not list summaries."""

_CHARS = 100


def summary(task: Content) -> str:
    """Return the task in one line, for the Web UI, which reads it as Markdown."""
    return plain(_first_line(task), _CHARS)


def memo(task: Content) -> dict[str, str]:
    """Return the memo that Temporal keeps with a run, for lists of runs."""
    return {TASK: one_line(_first_line(task), _CHARS)}


def _first_line(task: Content) -> str:
    return next((line for line in text_of(task).splitlines() if line.strip()), "")


def describe_terms(request: ApprovalRequest) -> str:
    """Return a line with the people who may decide, the votes so far and the deadline; empty if anybody may, at any
    time.
    """
    parts: list[str] = []
    for number, each in enumerate(request.requirements):
        who, given = ", ".join(request.who_for(number)) or "its approvers", len(votes_for(request.votes, number))
        parts.append(f"{each.rule}: {given} of {each.terms.quorum} of {who}")
    if request.who and not request.requirements:
        parts.append(f"decided by {', '.join(request.who)}")
    if request.quorum > 1 or request.requirements:
        parts.append(votes_words([vote.view() for vote in request.votes], request.quorum))
    if request.expires_at:
        parts.append(
            f"{'denied' if request.on_expiry == 'deny' else 'approved'} at {request.expires_at:%Y-%m-%d %H:%M} UTC"
        )
    text = one_line("; ".join(parts), 300)
    return text[:1].upper() + text[1:]


def votes_words(votes: Sequence[Mapping[str, Any]], quorum: int) -> str:
    """Return the number of votes for each answer, with names: `1 of 2 have approved: alice (signed)`.

    Args:
        votes: The votes, in the format of `ApprovalRequest.view`.
        quorum: Number of people who must give the same answer.
    """
    answers: dict[tuple[str, str], list[str]] = {}
    for vote in votes:
        instead = f"{vote['by']} for {vote['for']}" if vote.get("for") else str(vote["by"])
        instead = speaker_words(instead, vote["proof"]) if "proof" in vote else instead
        answers.setdefault((vote["decision"], vote.get("result", "")), []).append(instead)
    counts = []
    for (decision, result), people in answers.items():
        said = "have approved" if decision == "approve" else f"say {decision}"
        words = f' "{one_line(result, 80)}"' if result else ""
        counts.append(f"{len(people)} of {quorum} {said}{words}: {', '.join(people)}")
    return "; ".join(counts) or f"0 of {quorum} have answered"
