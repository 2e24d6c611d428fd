"""Checks the LLM endpoint's key and address, which people paste into variables and files."""

import re
from urllib.parse import urlsplit

_AROUND = " \t\r\n\xa0\ufeff\u200b\u200c\u200d\u2060\"'`“”‘’"  # noqa: RUF001 quotes of word processors
"""Characters that surround a pasted value."""

_KEY = re.compile(r"[\x21-\x7e]+")
_ROUTES = ("/chat/completions", "/completions", "/responses", "/messages", "/embeddings", "/models")


def pasted(text: str) -> str:
    """Return a value without quotes, blanks, line ends and a byte order mark around it."""
    return text.strip(_AROUND)


def api_key(text: str) -> str:
    """Check a key, which is sent in a header.

    Raises:
        ValueError: It cannot be sent; the message does not show it.
    """
    key = re.sub(r"(?i)^bearer\s+", "", text)
    if not _KEY.fullmatch(key):
        raise ValueError(
            "it has blanks, line ends or characters that are not ASCII within it, so no request could carry it: "
            "paste the key again"
        )
    return key


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("https", "http") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that do not match, or a port that is not a number
        return False


def base_url(text: str) -> str:
    """Check the address of an endpoint, to which each request adds its route.

    Raises:
        ValueError: It is not an address, or ends with a route.
    """
    if not _is_address(text):
        raise ValueError(
            "the URL must start with https:// or http://, and name a host, such as https://api.openai.com/v1 or "
            "http://localhost:11434/v1"
        )
    if re.search(r"\s", text):
        raise ValueError("the URL must not have blanks in it")
    for route in _ROUTES:
        if urlsplit(text).path.rstrip("/").endswith(route):
            raise ValueError(f"the URL must end before {route}, which each request adds")
    return text
