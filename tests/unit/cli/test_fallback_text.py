"""The log's line about a reply says which LLM gave it, if the agent has several."""

from holdfast.cli.screens.event_words import fallback_text, reply_text


def test_the_line_of_a_reply_names_its_endpoint_and_who_was_passed_over() -> None:
    """The endpoint, the LLM, and each LLM before it with its reason; nothing for a plain name, as before."""
    passed = {"llm": "anthropic/claude", "message": "529: over\x1bloaded", "at": "2026-01-02T03:04:05Z", "cause": "x"}
    event = {
        "message": {"role": "assistant", "content": "done"},
        "usage": {"prompt_tokens": 10, "completion_tokens": 5},
        "duration_ms": 7,
        "attempt": 1,
        "outage": None,
        "artifact": "",
        "llm": "gpt",
        "endpoint": "openai",
        "passed_over": [passed],
        "at": "2026-01-02T03:04:05Z",
    }
    line = reply_text(event)
    assert "gpt at openai in place of anthropic/claude (529: over" in line
    assert "\x1b" not in line
    assert fallback_text({**event, "endpoint": ""}) == ""
