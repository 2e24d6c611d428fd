"""Screens of open requests: the question, the terms of the decision, and the commands that decide."""

from rich.text import Text

from holdfast.cli.text import brief, clock, count, indented, visible
from holdfast.client.threads import JSON
from holdfast.config.programs import CLI
from holdfast.core.authority.approvals import ANSWERS, SHORT_DIGEST, WORDS
from holdfast.core.authority.claims import CLAIMED, MARK, claim_rows
from holdfast.core.authority.previews import CallPreview, cut_words, preview_heading, preview_rows
from holdfast.core.authority.summaries import votes_words
from holdfast.core.base.readable_json import readable_call, readable_json

_CHANGES = {"+": "green", "-": "red"}
"""The first character of a row of a diff → its style."""

_OPTIONS = {
    "approve": ("approve",),
    "deny": ("deny",),
    "respond": ("respond",),
    "happened": ("reconcile", "--happened"),
    "absent": ("reconcile", "--absent"),
    "undo": ("reconcile", "--undo"),
    "abandon": ("reconcile", "--abandon"),
}

_MEANINGS = {
    "approve": "let it run",
    "deny": "refuse it; --reason is shown to the agent",
    "respond": "answer in the tool's place",
    "happened": "it did; --result gives the agent its result",
    "absent": "it did not: run it",
    "undo": "undo what it may have done",
    "abandon": "leave the outcome unknown and continue",
}


_ANSWERS = {
    "approve": "you have visited the address",
    "respond": "send the server this answer: the fields as JSON, or the only field's value",
    "deny": "decline to answer; --reason is shown to the agent",
}
"""The meanings of the decisions on a server's question."""


def request_screen(request: JSON) -> Text:
    """Return an open request: the call with all arguments, why it needs a decision, and the commands that decide."""
    screen = request_text(request)
    width = 0
    commands = []
    for decision in request.get("answers", ANSWERS.get(request["kind"], ())):
        if decision not in _OPTIONS:
            continue  # from a newer release
        verb, *options = _OPTIONS[decision]
        arguments = ["TEXT"] if decision == "respond" else options
        arguments += ["--digest", request["digest"][:SHORT_DIGEST]] if request.get("digest") else []
        meaning = (_ANSWERS if request["kind"] == "question" else _MEANINGS)[decision]
        commands.append((CLI.command(verb, request["thread"], request["request"], *arguments), meaning))
        width = max(width, len(commands[-1][0]))
    for line, meaning in commands:
        screen.append(f"  {line:<{width}}", "bold").append(f"  {meaning}\n", "dim")
    return screen


def request_text(request: JSON) -> Text:
    """Return a request without the commands that decide."""
    screen = request_head(request)
    screen.append(indented(readable_call(request["arguments"], request.get("context")), "    ") + "\n")
    for line in (*preview_lines(request), *claim_lines(request)):
        screen.append("  ").append(line).append("\n")
    for term in request_terms(request):
        screen.append(f"  {term}\n", "dim")
    return screen


def request_terms(request: JSON) -> tuple[str, ...]:
    """Return the terms of a decision, besides the call: who decides by when, reminders, the rule, and the digest."""
    lines = [terms_text(request)]
    if edited_by := request.get("edited_by"):
        lines.append(f"{brief(edited_by)} has changed the LLM's arguments")
    if veto := request.get("veto"):
        lines.append(f"May also deny: {brief(', '.join(veto), 300)}")
    later = [
        f"reminded {count(request['reminded'], 'time')}" if request.get("reminded") else "",
        f"next reminder {clock(request['remind_at'])}" if request.get("remind_at") else "",
        f"more people are asked {clock(request['escalate_at'])}" if request.get("escalate_at") else "",
    ]
    lines.append(", ".join(part for part in later if part))
    if rule := request.get("rule"):
        lines.append(f"Rule: {brief(rule, 400)}")
    if digest := request.get("digest"):
        lines.append(f"Digest: {brief(digest)}")
    return tuple(line[:1].upper() + line[1:] for line in lines if line)


def claim_lines(request: JSON) -> tuple[Text, ...]:
    """Return the agent's claim, each row with a mark before it, under a line that says whose words they are; no lines
    for none.
    """
    rows = claim_rows(str(request.get("claim") or ""))
    return tuple(Text(line, "dim") for line in (CLAIMED, *(f"{MARK}{row}" for row in rows))) if rows else ()


def preview_lines(request: JSON) -> tuple[Text, ...]:
    """Return the preview of the call, each row with a mark before it, and how to read the rest of a long one; no lines
    for a request without one.
    """
    if not request.get("preview"):
        return ()
    preview = CallPreview(**request["preview"])
    rows = (Text.assemble((MARK, "dim"), (row, _CHANGES.get(row[:1], ""))) for row in preview_rows(preview))
    cut = cut_words(preview, request["thread"])
    return Text(preview_heading(request["kind"]), "dim"), *rows, *([Text(visible(cut), "bold yellow")] if cut else [])


def terms_text(request: JSON) -> str:
    """Return who may decide, how many have, and until when; empty if anybody may decide at any time."""
    terms, quorum = [], request.get("quorum", 1)
    requirements = request.get("requirements") or ()
    for each in requirements:
        by = brief(", ".join(each["who"]) or "its approvers", 300)
        terms.append(f"{brief(each['rule'], 300)}: {len(each['votes'])} of {each['quorum']} of {by}")
    if (who := request.get("who")) and not requirements:
        terms.append(f"decided by {brief(', '.join(who), 300)}")
    if quorum > 1 or requirements:
        terms.append(brief(votes_words(request.get("votes", ()), quorum), 300))
    if request.get("expires_at"):
        then = "denied" if request.get("on_expiry", "deny") == "deny" else "approved"
        terms.append(f"{then} at {clock(request['expires_at'])}")
    if request.get("settles_at"):
        until = clock(request["settles_at"])
        terms.append(f"the call's request may still arrive until {until}; an earlier absent or undo takes effect then")
    text = "; ".join(terms)
    return text[:1].upper() + text[1:]


def deciding_screen(request: JSON, payload: JSON, public: str = "") -> Text:
    """Return a decision as a person sends it, and signs it with the key `public`: it is bound to this text."""
    screen = request_head(request)
    screen.append(indented(readable_call(request["arguments"], request.get("context")), "    ") + "\n")
    for line in (*preview_lines(request), *claim_lines(request)):
        screen.append("  ").append(line).append("\n")
    if "arguments" in payload:
        screen.append("  to run with\n", "dim").append(indented(readable_json(payload["arguments"]), "    ") + "\n")
    decision = f"{payload['decision']} by {payload['by']}" + (" and remember" if payload.get("remember") else "")
    details = "".join(f"; {name}: {brief(payload[name])}" for name in ("reason", "result") if payload.get(name))
    if payload.get("say"):
        screen.append("  and says to the agent\n", "dim").append(indented(visible(payload["say"]), "    ") + "\n")
    signed = f", key {public}" if public else ", not signed"
    screen.append(f"  Decision: {visible(decision)}{details}\n  digest {request['digest']}{signed}", "dim")
    return screen


def request_head(request: JSON) -> Text:
    """Return the question of a request, and what the call does, in a line each."""
    question = WORDS.get(request["kind"], "")
    sentence = visible(str(request.get("consequence") or ""))
    return Text.assemble(
        (f"Request {request['request']}", "bold yellow"),
        f" of {visible(request['thread'])}: {question}  ",
        (visible(request["tool"]), "bold"),
        (f"  ({brief(request['why'])})\n", "dim"),
        (f"  It {sentence}\n" if sentence else "", "bold"),
    )
