"""An anchor that is a webhook: each seal is sent as JSON in a POST.

Only the status of the response counts. Redirects are not followed, and the body, which may be endless, is not read.
"""

import asyncio
from urllib.parse import quote

import httpx2

from holdfast.config.webhooks import Receiver
from holdfast.core.log.node_seals import SignedCheckpoint

SECONDS = 8.0
"""Time limit of a request."""
TRANSIENT = (408, 429)
"""Client errors that are retried."""


class CheckpointRejected(Exception):  # never seen by users: the sealer logs it
    """The receiver rejected a seal permanently."""


class WebhookAnchor:
    """Sends seals to a URL.

    Args:
        receiver: The URL, which may contain a secret: only its host is logged.
    """

    def __init__(self, receiver: Receiver) -> None:
        self.name = receiver.host
        self._url = receiver.url
        self._client: httpx2.AsyncClient | None = None

    async def put(self, seal: SignedCheckpoint) -> None:
        """Send a seal.

        Raises:
            CheckpointRejected: The receiver answered 4xx, except 408 and 429.
            OSError: The receiver was unreachable, or answered with another error; a later attempt may succeed.
        """
        if self._client is None:
            self._client = httpx2.AsyncClient(follow_redirects=False, timeout=SECONDS)
        keys = quote(seal.thread, safe=""), str(seal.events), seal.head[:16], seal.gone
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "holdfast",
            "Idempotency-Key": ":".join(key for key in keys if key),
        }
        try:
            async with (
                asyncio.timeout(SECONDS),
                self._client.stream("POST", self._url, content=seal.line(), headers=headers) as response,
            ):
                pass
        except (httpx2.HTTPError, TimeoutError) as error:
            raise OSError(type(error).__name__) from None  # its text may contain the URL
        if 400 <= response.status_code < 500 and response.status_code not in TRANSIENT:
            raise CheckpointRejected(f"HTTP {response.status_code}")
        if not response.is_success:
            raise OSError(f"HTTP {response.status_code}")

    async def aclose(self) -> None:
        """Close the connections."""
        if self._client:
            await self._client.aclose()
