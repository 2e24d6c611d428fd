"""Prices of LLMs: list prices from the package `genai-prices`. Nothing is fetched."""

from collections.abc import Sequence
from decimal import Decimal

from holdfast.core.budget.account import TokenPrice, nano_dollars
from holdfast.core.llm.messages import Usage

MANY = 1_000_000
"""Tokens at whose average price a token is estimated: long requests may cost more for each token."""


def price(llm: str, usage: Usage) -> float | None:
    """The price of these tokens in US dollars; None if the package has no price for the LLM."""
    exact = _exact(llm, usage)
    return None if exact is None else float(exact)


def cost_of(llm: str, usage: Usage) -> int | None:
    """The price of these tokens in nano-dollars, rounded up; None if the package has no price for the LLM."""
    exact = _exact(llm, usage)
    return None if exact is None else nano_dollars(exact)


def token_price(llm: str) -> TokenPrice | None:
    """The price of a token in nano-dollars, rounded up; None if the package has no price for the LLM."""
    request = _exact(llm, Usage(prompt_tokens=MANY))
    reply = _exact(llm, Usage(completion_tokens=MANY))
    if request is None or reply is None:
        return None
    return TokenPrice(request=nano_dollars(request / MANY), reply=nano_dollars(reply / MANY))


def dearest_price(llms: Sequence[str]) -> TokenPrice | None:
    """The highest prices of a token among LLMs of which any may reply; None if the price of one is unknown."""
    prices = [price for llm in llms if (price := token_price(llm))]
    if len(prices) < len(llms):
        return None
    return TokenPrice(request=max(each.request for each in prices), reply=max(each.reply for each in prices))


def _exact(llm: str, usage: Usage) -> Decimal | None:
    from genai_prices import Usage as Tokens
    from genai_prices import calc_price

    read = min(usage.cached_tokens, usage.prompt_tokens)  # some endpoints report more than was sent
    tokens = Tokens(
        input_tokens=usage.prompt_tokens,
        cache_read_tokens=read,
        cache_write_tokens=min(usage.cache_write_tokens, usage.prompt_tokens - read),
        output_tokens=usage.completion_tokens,
    )
    try:
        return calc_price(tokens, model_ref=llm).total_price
    except (LookupError, ValueError):
        return None
