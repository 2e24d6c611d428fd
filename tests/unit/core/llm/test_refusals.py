"""Rejected requests: the endpoint's message is kept, and one about a too long context is recognised."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.activities.llm_calls.llm_replies import NotAReply, read_reply
from holdfast.activities.llm_calls.retry_after import LONGEST, retry_after
from holdfast.core.llm.refusals import REJECTION_CHARS, is_too_long, rejection_message
from tests.support.runs import ADAPTER, agent_spec

TOO_LONG = [
    (400, "This model's maximum context length is 8192 tokens, got 9000."),
    (400, "request exceeds the context size"),
    (400, "the request exceeds the available context size, try increasing it"),
    (400, "prompt is too long: 210000 tokens > 200000 maximum"),
    (413, "<html><title>413 Request Entity Too Large</title></html>"),
    (413, '{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}'),
    (
        400,
        "This endpoint's maximum context length is 8192 tokens. However, you requested about 9000 "
        "tokens (8000 of text input, 1000 in the output).",
    ),
    (400, "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."),
    (
        400,
        "Unable to submit request because the input token count is 40000 but model only supports up to "
        "32768. Reduce the input token count and try again.",
    ),
    (
        413,
        "Request too large for model `llama` in organization `o` service tier `on_demand` on tokens per "
        "minute (TPM): Limit 6000, Requested 8000, please reduce your message size and try again.",
    ),
    (
        429,
        "Request too large for gpt-4 in organization o on tokens per min (TPM): Limit 10000, Requested "
        "12000. The input or output tokens must be reduced in order to run successfully.",
    ),
    (400, "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length"),
    (400, "litellm.ContextWindowExceededError: litellm.BadRequestError"),
    (
        400,
        "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded "
        "with context length of only 4096 tokens",
    ),
    (400, "Input is too long for requested model."),
    (400, "too many tokens: total number of tokens in the prompt cannot exceed 4081"),
    (400, "This model's maximum prompt length is 131072 but the request contains 537812 tokens."),
    (
        400,
        "You passed 9001 input tokens and requested 0 output tokens. However, the model's context "
        "length is only 8192 tokens",
    ),
    (
        400,
        "The decoder prompt (length 9000) is longer than the maximum model length of 8192. Make sure "
        "that `max_model_len` is no smaller",
    ),
    (400, "The prompt (total length 9000) is too long to fit into the model (context length 8192)"),
    (400, "max_tokens must be at least 1, got -820."),
    (
        400,
        "'max_tokens' or 'max_completion_tokens' is too large: 4096. This model's maximum context "
        "length is 8192 tokens and your request has 5000 input tokens (4096 > 8192 - 5000).",
    ),
    (
        422,
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 "
        "`inputs` tokens and 20 `max_new_tokens`",
    ),
    (
        400,
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input "
        "length or `max_tokens` and try again",
    ),
    (400, "Requested token count exceeds the model's maximum context length of 8192 tokens."),
    (400, "The input (9000 tokens) is longer than the model's context length (8192 tokens)."),
    (400, "The prompt is too long: 9000, model maximum context length: 8191"),
    (400, "Prompt exceeds max length"),
    (400, "Range of input length should be [1, 30720]"),
    (400, "Invalid request: Your request exceeded model token limit: 8192"),
    (400, "invalid params, context window exceeds limit (2013)"),
    (413, "Request body too large for gpt-4o model. Max size: 8000 tokens."),
    (400, "prompt token count of 70000 exceeds the limit of 64000"),
    (400, "Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192"),
    (400, "the number of input tokens 9000 cannot exceed the total tokens limit 8192 for this model"),
    (
        400,
        "The estimated number of input and maximum output tokens (9000) exceeded this model context "
        "window limit (8192)",
    ),
    (500, "the request exceeds the available context size"),
    (200, '{"error":{"message":"maximum context length is 5","code":400}}'),
    (400, "prompt too long; exceeded max context length by 5 tokens"),
    (400, "input length exceeds the context length"),
    (400, "Your input exceeds the context window of this model. Please adjust your input and try again."),
    (400, "Request payload size exceeds the limit: 20971520 bytes."),
    (
        400,
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 "
        "tokens. Please reduce the length of the messages.",
    ),
    (400, "Input length 9000 exceeds maximum length 8192"),
    (400, '{"message":"Too many input tokens."}'),
    (400, "max tokens per request exceeded: 9000 > 8192"),
    (400, "The total number of tokens (prompt 9000 + 1) exceeds the model's limit"),
    (422, "Input tokens exceeded: 9000"),
    (400, "Input is too large"),
    (400, "the input is larger than the max context size. skipped"),
    (500, "input is too large to process. increase the physical batch size"),
    (400, "Context size has been exceeded."),
    (400, "conversation is too long"),
    (400, "Your request is too long for this model"),
    (400, "Message too long: 90000 tokens"),
    (400, "Prompt 超长"),
    (400, "输入长度超过模型限制"),
    (400, "prompt tokens too long"),
    (400, "Input token length is too long: 131073 > 131072"),
    (400, "the max input characters is 20000"),
    (400, "length of prompt_tokens (40000) must be less than max_seq_len (32768)."),
    (400, "Prompt has 300000 tokens, but the configured context size is 262144"),
    (400, "Model context limit reached"),
    (400, "Invalid 'messages[1].content': string too long. Expected a string with maximum length 1048576"),
]
"""Statuses and messages, as providers, servers and proxies write them."""

OTHERWISE = [
    (
        400,
        "max_tokens is too large: 100000. This model supports at most 16384 completion tokens, whereas "
        "you provided 100000.",
    ),
    (400, "max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens for claude"),
    (400, "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 6000000 bytes > 5242880 bytes"),
    (
        429,
        "Rate limit reached for model `x` on tokens per minute (TPM): Limit 6000, Used 5000, Requested "
        "2000. Please try again in 10s.",
    ),
    (
        400,
        "Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array "
        "with length 130 instead.",
    ),
    (400, "Invalid 'tools[0].function.name': string too long. Expected a string with maximum length 64"),
    (401, "Incorrect API key"),
    (400, "API key not valid"),
    (404, "The model `x` does not exist"),
    (413, "Rate limit reached on tokens per minute (TPM): Limit 6000, Used 5000, Requested 2000. try again in 10s"),
    (413, "image too large"),
    (429, "You exceeded your current quota, please check your plan and billing details."),
    (400, "messages: text content blocks must be non-empty"),
    (400, "temperature must be less than 2"),
    (400, "A maximum of 100 PDF pages may be provided."),
    (400, "Unknown parameter context_length"),
    (500, "Internal server error"),
    (503, "overloaded"),
    (400, "max_output_tokens exceeds the maximum of 4096"),
    (429, "Number of request tokens has exceeded your per-minute rate limit"),
    (400, "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]"),
    (400, "This request would exceed your organization's rate limit of 40,000 input tokens per minute"),
    (400, "Requested output tokens exceed the model limit"),
    (
        402,
        "This request requires more credits, or fewer max_tokens. You requested up to 65536 tokens, but "
        "can only afford 3000.",
    ),
    (403, "request entity too large"),
    (400, "Invalid 'input[3].call_id': string too long. Expected a string with maximum length 64"),
    (400, "Context caching minimum token count is 4096"),
    (400, "thinking.budget_tokens must be less than max_tokens"),
    (400, "max_tokens 超过限制"),
    (400, "prompt_cache_key length must be less than 64"),
]
"""Limits on the reply, on media, on tools and on the rate, and messages that have nothing to do with size."""


def body(message: str) -> bytes:
    """Return an error body with this message; JSON and pages are used as they are."""
    return (message if message[:1] in ("{", "<") else json.dumps({"error": {"message": message}})).encode()


@pytest.mark.parametrize(("status", "message"), TOO_LONG)
def test_a_request_that_is_too_long_is_recognised(status: int, message: str) -> None:
    """The context is compacted, because a blocked run would wait for a person."""
    assert is_too_long(status, body(message))


@pytest.mark.parametrize(("status", "message"), OTHERWISE)
def test_another_limit_is_not_taken_for_the_length_of_the_context(status: int, message: str) -> None:
    """Compaction for another limit would lose the conversation without any benefit."""
    assert not is_too_long(status, body(message))


@pytest.mark.parametrize(
    "answer",
    [
        {"error": {"message": "This model's maximum context length is 8192 tokens", "code": 400}},
        {"choices": [{"finish_reason": "model_context_window_exceeded", "message": {"content": "I w"}}]},
        {"choices": [{"finish_reason": "contextLengthReached", "message": {"content": ""}}]},
    ],
)
def test_a_success_may_say_so_too(answer: object) -> None:
    """Routers report the provider's error in a success; some providers end a reply when the window is full."""
    with pytest.raises(NotAReply) as raised:
        read_reply(json.dumps(answer).encode(), adapter=ADAPTER, spec=agent_spec(), tools={}, step_id="s")
    assert raised.value.too_long


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            b"<html><head><title>Firewall</title></head><body>Ask IT.<script>x</script></body></html>",
            "Firewall: Ask IT.",
        ),
        (b'[{"error": {"code": 400, "message": "API key not valid"}}]', "API key not valid"),
        (b'{"detail": "no"}', "no"),
        (b'{"detail": [{"loc": ["body", "messages", 0], "msg": "field required"}]}', "body.messages.0: field required"),
        (b'{"detail": [{"loc": [{"a": 1}, "body", [[1]]], "msg": "wrong"}]}', "body: wrong"),
        (b'{"detail": [{"loc": "body", "msg": "wrong"}]}', "wrong"),
        (b'{"error": "text"}', "text"),
        (b'{"error": true, "message": "really"}', "really"),
        (b'{"error": {"message": ""}, "detail": "d"}', "d"),
        (b'{"message": "m"}', "m"),
        (b'{"errors": [{"message": "a"}, {"message": "b"}]}', "a; b"),
        (
            rb'{"error": {"message": "Oh", "metadata": {"raw": "{\"error\": \"inner\"}"}}}',
            "Oh; inner",
        ),
        (b'"just text"', "just text"),
        (b'{"base_resp": {"status_code": 1004, "status_msg": "login fail"}}', "login fail"),
        (b'{"foo": "bar"}', '{"foo": "bar"}'),
        (b"plain\x1b[31m text\n", "plain\\x1b[31m text"),
        (b'{"error": {"message": "\\u202e\\u001b[2Jx"}}', "\\u202e\\x1b[2Jx"),
        (b"", ""),
        (b"{}", ""),
    ],
)
def test_the_message_of_an_endpoint_is_kept_in_every_form(given: bytes, words: str) -> None:
    """A page, a list, plain text and each form of JSON are kept on one line, with control characters written out."""
    assert rejection_message(given) == words


def test_messages_are_bounded() -> None:
    """Neither a long message nor deep nesting produces a long text."""
    assert len(rejection_message(b'{"error": "' + b"x" * 1_000_000 + b'"}')) == REJECTION_CHARS
    assert len(rejection_message(b"[" * 100_000)) <= REJECTION_CHARS


@pytest.mark.parametrize(
    ("headers", "words", "seconds"),
    [
        ({"retry-after": "2s"}, "", 2),
        ({"retry-after": "1m30.5s"}, "", 90.5),
        ({"retry-after": "500ms"}, "", 0.5),
        ({}, "Please try again in 2.5s. Visit us.", 2.5),
        ({}, '{"details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "17s"}]}', 17),
        ({}, '{"retry_after": 3, "code": 429}', 3),
        ({}, "Please retry in 1 minute and 5 seconds", 65),
        ({}, "retry after 3 failed attempts", None),
        ({}, "try again later", None),
        ({"retry-after": "soon"}, "retry after 7 seconds", 7),
        ({"retry-after": "9" * 400}, "", None),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}, "", 360),
        ({"x-ratelimit-remaining-tokens": "5", "x-ratelimit-reset-tokens": "6m0s"}, "", None),
        (
            {"anthropic-ratelimit-tokens-remaining": "0", "anthropic-ratelimit-tokens-reset": "9999-01-01T00:00:00Z"},
            "",
            600,
        ),
        ({}, "try again in 99999 hours", 600),
    ],
)
def test_a_delay_is_read_from_headers_and_messages(headers: dict[str, str], words: str, seconds: float | None) -> None:
    """Durations, exhausted limits and messages give the delay; none exceeds the limit."""
    expected = None if seconds is None else timedelta(seconds=seconds)
    assert retry_after(headers, words) == expected
    assert expected is None or expected <= LONGEST


def test_a_reset_may_be_a_moment_in_milliseconds() -> None:
    """Some routers give the time since 1970."""
    moment = int((datetime.now(UTC) + timedelta(seconds=60)).timestamp() * 1000)
    delay = retry_after({"x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{moment}"})
    assert delay is not None
    assert timedelta(seconds=30) < delay <= timedelta(seconds=60)
    assert retry_after({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1000000000"}) is None, "that was in 2001"
