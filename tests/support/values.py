"""Values that the tests of the adapters put into messages and replies."""

from typing import Any

from hypothesis import strategies as st

from holdfast.core.base.canonical import MAX_INTEGER

Wire = dict[str, Any]

TEXT = st.text(min_size=1, max_size=12)
BLANK = st.sampled_from([" ", "\n\n"])
IDENT = st.text("abcdefgh0123456789_-", min_size=1, max_size=12)
NAME = st.sampled_from(["look", "pay", "wipe"])
NUMBER = st.integers(-MAX_INTEGER, MAX_INTEGER) | st.floats(-MAX_INTEGER, MAX_INTEGER)
"""Larger ones are recorded, and not always as the same number (`holdfast.core.llm.blocks.ProviderPart`)."""
JSON = st.recursive(
    st.none() | st.booleans() | NUMBER | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
OBJECT = st.dictionaries(st.text(max_size=5), JSON, max_size=3)
COUNT = st.integers(0, 1_000_000)
