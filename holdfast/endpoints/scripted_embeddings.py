"""Embeddings without a model: hashed words and character n-grams. Similar spellings are near; meaning is ignored."""

import base64
import hashlib
import json
import math
import struct
from functools import lru_cache
from typing import Any

DIMENSIONS = 1_536
"""The length of a vector if the request gives none."""

_NGRAMS = (3, 4)
_COMMON_CHARS = 3
"""Words of at most this length count less: most of them occur in every text."""


def hashed_embedding(text: str, dimensions: int = DIMENSIONS) -> list[float]:
    """The vector of a text, normalised to length 1; the same on every machine."""
    vector = [0.0] * dimensions
    for word in _words(text):
        for index, weight in _features(word, dimensions):
            vector[index] += weight
    length = math.sqrt(sum(number * number for number in vector))
    if not length:  # a text without words, or one whose features cancel out
        vector[0] = length = 1.0
    return [number / length for number in vector]


def embeddings_reply(body: bytes) -> tuple[int, dict[str, Any]]:
    """Answer `POST /v1/embeddings`: the status, and the body."""
    try:
        request = json.loads(body)
        value = request["input"]
        texts = [value] if isinstance(value, str) else list(value)
        dimensions = int(request.get("dimensions") or DIMENSIONS)
        if not texts or not all(isinstance(text, str) and text for text in texts) or not 0 < dimensions <= 4_096:
            raise ValueError("`input` must be a text or a list of texts, none of them empty")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return 400, {"error": {"message": f"the request cannot be answered: {error}", "type": "invalid_request_error"}}
    vectors = [hashed_embedding(text, dimensions) for text in texts]
    packed = request.get("encoding_format") == "base64"
    tokens = sum(len(text) for text in texts) // 4 + 1
    return 200, {
        "object": "list",
        "model": request.get("model", "scripted"),
        "data": [
            {"object": "embedding", "index": index, "embedding": _packed(vector) if packed else vector}
            for index, vector in enumerate(vectors)
        ],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def _words(text: str) -> list[str]:
    return "".join(c if c.isalnum() else " " for c in text.casefold()).split()


@lru_cache(maxsize=100_000)
def _features(word: str, dimensions: int) -> tuple[tuple[int, float], ...]:
    """The indices that a word contributes to, each with its weight."""
    weight = 0.3 if len(word) <= _COMMON_CHARS else 1.0
    marked = f"<{word}>"
    grams = [marked[start : start + size] for size in _NGRAMS for start in range(len(marked) - size + 1)]
    share = weight / math.sqrt(len(grams) or 1)
    return (*(_hashed(gram, dimensions, share) for gram in grams), _hashed(word, dimensions, weight))


def _hashed(feature: str, dimensions: int, weight: float) -> tuple[int, float]:
    number = int.from_bytes(hashlib.blake2b(feature.encode("utf-8", "replace"), digest_size=8).digest(), "big")
    return number // 2 % dimensions, weight if number % 2 else -weight


def _packed(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
