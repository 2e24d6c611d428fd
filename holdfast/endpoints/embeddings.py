"""Fetches embeddings of texts from an OpenAI-compatible endpoint."""

import asyncio
from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import openai

BATCH = 16
"""The most texts in one request."""

TEXT_BYTES = 8_000
"""Longer texts are cut to this: a token has at least one byte, and the API allows 8,192 tokens."""

SECONDS = 10.0
"""Time limit of a request. Callers work without embeddings: search by words needs none."""


class EmbeddingsUnavailable(Exception):
    """The endpoint did not respond, or sent an invalid response; the text says why."""


class EmbeddingRejected(EmbeddingsUnavailable):
    """The endpoint rejected the texts."""


class Embeddings:
    """An embedding model.

    Args:
        client: A client of the endpoint.
        model: The model's name at the endpoint.
        dimensions: The length of the vectors.
    """

    def __init__(self, client: "openai.AsyncOpenAI", model: str, dimensions: int) -> None:
        self._client = client.with_options(max_retries=0, timeout=SECONDS)
        self.model = model
        self.dimensions = dimensions

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Fetch the vectors of up to `BATCH` texts, none of them empty.

        Raises:
            EmbeddingRejected: The endpoint rejected the texts.
            EmbeddingsUnavailable: It is unavailable, or gave vectors of another length than `dimensions`.
        """
        import openai  # a second of imports, which commands that only read memories save

        cut = [text.encode("utf-8", "replace")[:TEXT_BYTES].decode("utf-8", "ignore") for text in texts]
        try:
            async with asyncio.timeout(SECONDS):  # the client's own time limit applies to each read
                answer = await self._client.embeddings.create(
                    input=cut, model=self.model, dimensions=self.dimensions, encoding_format="float"
                )
        except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
            raise EmbeddingRejected(f"{error.status_code}: {error.message}"[:500]) from None
        except (openai.OpenAIError, TimeoutError, ValueError) as error:
            reason = str(error.__cause__ or "") or str(error) or f"no answer within {SECONDS:g} s"
            raise EmbeddingsUnavailable(f"{type(error).__name__}: {reason}"[:500]) from None
        vectors = [one.embedding for one in sorted(answer.data, key=lambda one: one.index)]
        if len(vectors) != len(texts):
            raise EmbeddingsUnavailable(f"{self.model} gave {len(vectors)} vectors for {len(texts)} texts")
        for vector in vectors:
            if len(vector) != self.dimensions:
                raise EmbeddingsUnavailable(
                    f"{self.model} gives vectors of {len(vector)} numbers, not {self.dimensions}; "
                    f"set HOLDFAST_EMBEDDING_DIMENSIONS={len(vector)}"
                )
            if not any(vector) or not all(map(isfinite, vector)):
                raise EmbeddingsUnavailable(f"{self.model} gave a vector that is zero or not finite")
        return vectors
