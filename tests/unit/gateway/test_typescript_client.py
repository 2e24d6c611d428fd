"""The types of the TypeScript client are those of the gateway."""

from scripts.openapi import TYPES, description, stamp


async def test_the_committed_types_are_of_this_api() -> None:
    """The types were generated from the description that the gateway serves now; if not, `make client` does it."""
    with TYPES.open(encoding="utf-8") as types:
        assert types.readline() == stamp(await description()), "the API has changed: run `make client`, and commit"
