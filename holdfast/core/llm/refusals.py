"""Rejections by an endpoint: the message, and whether it means that the request is too long for the LLM.

Providers, servers, gateways and proxies word that in many ways; the patterns here cover the known ones. A limit on the
reply, on an image or on the rate of requests is a different problem, which context compaction does not solve.
"""

import html
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from holdfast.core.base.text import one_line, visible

REJECTION_CHARS = 2_000
"""Maximum length of an endpoint's message; a longer one is cut."""

_READ_CHARS = 20_000
"""Maximum number of characters of a body that are read."""

_MESSAGE_FIELDS = (
    *("message", "msg", "detail", "details", "error", "errors", "error_description", "errorMessage", "error_message"),
    *("description", "title", "reason", "Message", "fault", "faultstring", "status_msg", "base_resp", "code", "type"),
)
"""Fields that may have an endpoint's message, in order of preference; errors come before all of them."""

_MARKUP = re.compile(
    r"<(script|style|head)\b.*?(?:</\1>|\Z)|<!--.*?(?:-->|\Z)|<[^>]{0,2000}>", re.DOTALL | re.IGNORECASE
)
_TITLE = re.compile(r"<title[^>]{0,200}>(.*?)(?:</title>|\Z)", re.DOTALL | re.IGNORECASE)
_PAGE = re.compile(r"\s*(?:<!doctype|<html|<head|<body|<\?xml|<h1|<title)", re.IGNORECASE)


def rejection_message(body: bytes) -> str:
    """Return the message in the body of a rejection, on one line and without control characters; empty for no body.

    The body may be JSON in many forms, a web page or plain text.
    """
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        text = body[: 4 * _READ_CHARS].decode("utf-8", "replace")[:_READ_CHARS]
        message = _page_text(text) if _PAGE.match(text) else text
    else:
        message = "; ".join(dict.fromkeys(_texts(value))) or (
            "" if value in ({}, [], None, "") else body.decode()[:_READ_CHARS]
        )
    return one_line(visible(one_line(message, _READ_CHARS)), REJECTION_CHARS)


def _texts(value: Any, levels: int = 6) -> Iterator[str]:
    """Yield the texts of a message in a rejection's JSON."""
    if isinstance(value, str):
        if value.strip():
            yield value
    elif isinstance(value, int) and not isinstance(value, bool):
        yield f"{value}"
    elif isinstance(value, list) and levels:
        for each in value[:5]:
            yield from _texts(each, levels - 1)
    elif isinstance(value, dict) and levels:
        for key in (key for key in ("error", "errors", *_MESSAGE_FIELDS) if key in value):
            if texts := list(_texts(value[key], levels - 1)):
                place = value.get("loc")  # FastAPI's path of a field
                steps = place[:10] if isinstance(place, list) else []
                path = ".".join(f"{step}" for step in steps if isinstance(step, str | int))
                yield from (f"{path}: {text}" if path else text for text in texts)
                break
        metadata = value.get("metadata")  # has the message that a router got from the provider behind it
        yield from _raw(metadata.get("raw") if isinstance(metadata, dict) else None, levels - 1)


def _raw(value: Any, levels: int) -> Iterator[str]:
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    yield from _texts(value, levels)


def _page_text(text: str) -> str:
    title = _TITLE.search(text)
    parts = [title[1] if title else "", _MARKUP.sub(" ", text)]
    return ": ".join(filter(None, (" ".join(html.unescape(part).split()) for part in parts)))


_CODES = re.compile(
    r"context_?length_?exceeded|exceed_?context_?size|context_?window_?exceed|context_?overflow|prompt_?too_?long"
    r"|input_?too_?long|max_?prompt_?tokens_?exceeded|tokens_?limit_?reached|max_?context_?length_?exceeded"
    r"|request_too_large"
)
_CONTEXT = re.compile(r"context[ _-]?(?:length|window|size|limit)|max(?:imum)?[_ ]model[_ ]len(?:gth)?")
_EXCEEDED = re.compile(
    r"exceed|too (?:long|large|big|many)|long(?:er)? than|larger than|greater than|maximum|\bonly\b|reduce|fit|overflow"
    r"|limit reached|limited to \d|\d tokens?, but"
)
_PHRASES = re.compile(
    r"(?:prompt|inputs?|conversation|messages?|request)(?: \([^)]{0,60}\))?(?: tokens?)?(?: length| count)?"
    r" (?:is |are |was |were )?too (?:long|large)"
    r"|(?:messages|input)\[\d+\]\.content\S{0,40} string too long|max(?:imum)? input characters"
    r"|(?:prompt|输入|上下文|对话|消息).{0,20}(?:超长|超过|超出|过长)"
    r"|too many (?:input |prompt |total )?tokens|tokens per request exceeded"
    r"|(?:input|prompt|request|requested|total|messages?)[\w'` ]{0,40}(?:tokens?|length)\b.{0,80}"
    r"(?:exceed|greater than|longer than|larger than|over the limit|only supports|must be less than \D{0,20}\d{4})"
    r"|tokens?\b.{0,60}\bexceed\w*.{0,40}(?:limit|maximum|allowed|model|capacity)"
    r"|exceed\w*.{0,60}(?:token limit|number of (?:input )?tokens)"
    r"|exceed\w*.{0,60}max(?:imum)? (?:input |prompt |model )?(?:length|tokens)"
    r"|maximum (?:prompt|input|model|sequence) length"
    r"|reduce (?:the |your )?(?:length of|prompt|input|messages?\b|number of (?:input )?tokens|context)"
    r"|too large for model|> ?\d+ (?:token )?maximum|less than \d+ tokens|max_new_tokens`? must be"
    r"|keep the first \d+ tokens|range of input length|payload size exceeds|(?:payload|content) too large"
    r"|max_(?:completion_)?tokens must be at least 1, got -|request (?:body |entity )?(?:is )?too large"
)
_ABOUT_REPLY = re.compile(
    r"(?:output|completion|generated|response) tokens|max_(?:completion_|output_)?tokens|maxtokens"
)
_ABOUT_REQUEST = re.compile(r"context|input|prompt|messages|request has|at least 1, got -")
_ABOUT_MEDIA = re.compile(
    r"\b(?:images?|files?|pdf|pages?|documents?|audio|video|media|attachments?|pixels?|tools?|functions?)\b"
)
_ABOUT_SIZE = re.compile(r"tokens?\b|context")
_RATE = re.compile(
    r"rate[ _-]?limit|per (?:min|minute|hour|day|second)|\b[tr]p[md]\b|quota|try again in|too many requests"
)
_LIMIT = re.compile(r"limit:? ([\d,]+)(?!.{0,40}used:? [\d,]+).{0,40}requested:? ([\d,]+)")


def is_too_long(status: int, body: bytes) -> bool:
    """Whether a rejection means that the request is too long for the LLM.

    Args:
        status: The HTTP status; that of a success if the rejection came with one.
        body: The body.
    """
    text = body[: 4 * _READ_CHARS].decode("utf-8", "replace")[:_READ_CHARS]
    if "\\u" in text:  # JSON in ASCII
        with suppress(ValueError, RecursionError):
            text = json.dumps(json.loads(body), ensure_ascii=False)[:_READ_CHARS]
    text = " ".join(text.casefold().split())
    if _RATE.search(text) and not (_CODES.search(text) and status in (400, 413)):
        # A request larger than the limit per minute will never pass; a smaller one will pass later.
        limit = _LIMIT.search(text)
        return limit is not None and _number(limit[2]) > _number(limit[1])
    if status in (401, 402, 403, 404, 408, 425, 429):
        return False
    if _CODES.search(text):
        return True
    if _ABOUT_REPLY.search(text) and not _ABOUT_REQUEST.search(text):
        return False
    if _ABOUT_MEDIA.search(text) and not _ABOUT_SIZE.search(text):
        return False
    if status == 413:
        return True
    return bool(_PHRASES.search(text) or (_CONTEXT.search(text) and _EXCEEDED.search(text)))


def _number(digits: str) -> int:
    return int(digits[:20].replace(",", "") or "0")
