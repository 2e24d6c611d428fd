"""What LLMs cost: list prices from the package `genai-prices`. Nothing is fetched."""

from holdfast.llm.messages import Usage


def price(llm: str, usage: Usage) -> float | None:
    """The price of these tokens in US dollars; None if the package has no price for the LLM."""
    from genai_prices import Usage as Tokens
    from genai_prices import calc_price

    tokens = Tokens(
        input_tokens=usage.prompt_tokens,
        cache_read_tokens=usage.cached_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        output_tokens=usage.completion_tokens,
    )
    try:
        return float(calc_price(tokens, model_ref=llm).total_price)
    except LookupError:
        return None
