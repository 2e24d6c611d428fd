"""The screen of `prompt`: the next request to the LLM, tier by tier."""

from rich.text import Text

from holdfast.cli.screens.event_words import message_text
from holdfast.cli.text import brief, count, indented, visible
from holdfast.client.prompts import Prompt
from holdfast.client.threads import JSON

_WAITS = {
    "retry": "a person sends `retry`",
    "verification": "the checks after the long pause",
    "result": "the result of",
    "message": "a queued message",
    "say": "a message",
}


def prompt_screen(prompt: Prompt, view: JSON) -> Text:
    """Return the screen of a prompt: the sizes of all tiers, the conditions before it is sent, and each tier's text."""
    screen = Text.assemble(
        (visible(view["thread"]), "bold"),
        f"  {view['status'].replace('_', ' ')}  agent {visible(view['agent'])}, {visible(view['llm'])}\n\n",
        (f"{'TIER':<14}{'CHARACTERS':>12}{'TOKENS':>10}{'BUDGET':>10}{'USED':>6}\n", "dim"),
    )
    for tier in view["tiers"]:
        screen.append(*_row(tier["tier"], tier))
        screen.append(f"  {_transcript_text(view)}\n" if tier["tier"] == "transcript" else "\n")
    screen.append(*_row("request", view)).append(f"  {view['bytes']:,} bytes\n")
    if last := view["provider"]:
        words = f"{last['prompt_tokens']:,} tokens, {last['cached_tokens']:,} of them cached"
        screen.append(f"The provider counted {words}, for the last request.\n", "dim")
    if view["compacting"]:
        screen.append("It asks for a summary, for context compaction.\n", "yellow")
    if view["waits"]:
        screen.append("\nBefore it is sent\n", "bold")
        screen.append("".join(f"  {_WAITS[each['kind']]}: {brief(each['text'])}\n" for each in view["waits"]))
    for tier in view["tiers"]:
        if tier["text"] and tier["tier"] != "transcript":
            screen.append(f"\n{tier['tier']}\n", "bold").append(indented(visible(tier["text"])) + "\n")
    screen.append("\ntranscript\n", "bold")
    for message in prompt.decoded:
        screen.append(message_text(message))
    screen.rstrip()
    return screen


def _row(name: str, sizes: JSON) -> tuple[str, str]:
    """Return a line of the table, and its style."""
    budget = f"{sizes['budget']:,}" if sizes["budget"] else "–"
    share = f"{sizes['share']:.0%}" if sizes["budget"] else ""
    line = f"{name:<14}{sizes['chars']:>12,}{sizes['tokens']:>10,}{budget:>10}{share:>6}".rstrip()
    return line, "yellow" if sizes["budget"] and sizes["share"] > 1 else "bold" if name == "request" else ""


def _transcript_text(view: JSON) -> str:
    words = count(view["messages"], "message")
    return f"{words}, {count(view['compactions'], 'context compaction')}" if view["compactions"] else words
