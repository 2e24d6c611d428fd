"""The modules that each extra of the distribution provides, so that a command can name the missing extra."""

from importlib.util import find_spec

_STORES = ("dotenv", "httpx2", "openai", "psycopg", "psycopg_pool", "typer")
EXTRAS = {
    "cli": (*_STORES, "rich", "securesystemslib"),
    "gateway": (*_STORES, "fastapi", "jinja2", "joserfc", "securesystemslib", "uvicorn", "uvloop"),
    "mcp": ("httpx2", "mcp"),
    "telemetry": ("httpx2", "opentelemetry.proto"),
    "worker": (*_STORES, "genai_prices", "uvloop"),
}
"""The modules that a program imports beyond what the extension API needs. `pyproject.toml` has their distributions."""


def is_installed(extra: str) -> bool:
    """Whether all modules of an extra can be imported. Imports none of them."""
    return all(map(_is_found, EXTRAS[extra]))


def _is_found(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # nor is the package above it
        return False
