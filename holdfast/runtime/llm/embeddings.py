"""Texts as vectors, from an OpenAI-compatible endpoint."""

import asyncio
from collections.abc import Sequence
from math import isfinite

import openai

BATCH = 16
"""Texts that are sent in one request."""

TEXT_BYTES = 8_000
"""How much of a text is sent: no token is shorter than a byte, and the API takes 8,192 of them."""

SECONDS = 10.0
"""How long the endpoint may take. Whoever waits can do without: words are found without it."""


class EmbeddingsUnavailable(Exception):
    """The endpoint does not answer, or not as it should; the text says why."""


class EmbeddingRefused(EmbeddingsUnavailable):
    """The endpoint does not take these texts."""


class Embeddings:
    """An embedding model.

    Args:
        client: Of the endpoint.
        model: Its name there.
        dimensions: How many numbers a vector is to have.
    """

    def __init__(self, client: openai.AsyncOpenAI, model: str, dimensions: int) -> None:
        self._client = client.with_options(max_retries=0, timeout=SECONDS)
        self.model = model
        self.dimensions = dimensions

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """The vectors of up to `BATCH` texts, none of them empty.

        Raises:
            EmbeddingRefused: The endpoint takes them not.
            EmbeddingsUnavailable: It cannot be had now, or gives no vectors of `dimensions` numbers.
        """
        cut = [text.encode("utf-8", "replace")[:TEXT_BYTES].decode("utf-8", "ignore") for text in texts]
        try:
            async with asyncio.timeout(SECONDS):  # the client's own limit is for each part of an answer
                answer = await self._client.embeddings.create(
                    input=cut, model=self.model, dimensions=self.dimensions, encoding_format="float"
                )
        except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
            raise EmbeddingRefused(f"{error.status_code}: {error.message}"[:500]) from None
        except (openai.OpenAIError, TimeoutError, ValueError) as error:
            words = str(error.__cause__ or "") or str(error) or f"no answer within {SECONDS:g} s"
            raise EmbeddingsUnavailable(f"{type(error).__name__}: {words}"[:500]) from None
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
                raise EmbeddingsUnavailable(f"{self.model} gave a vector that points nowhere")
        return vectors
