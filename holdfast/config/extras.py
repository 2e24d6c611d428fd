"""What each extra of the distribution installs for, so that a command can say which one is missing."""

from importlib.util import find_spec

_STORES = ("dotenv", "httpx2", "openai", "psycopg", "psycopg_pool", "typer")
EXTRAS = {
    "cli": (*_STORES, "rich", "securesystemslib"),
    "gateway": (*_STORES, "fastapi", "securesystemslib", "uvicorn", "uvloop"),
    "worker": (*_STORES, "genai_prices", "uvloop"),
}
"""The modules that a program imports beyond what the extension API needs. `pyproject.toml` has their distributions."""


def is_installed(extra: str) -> bool:
    """Whether all that an extra stands for can be imported. Imports none of it."""
    return all(find_spec(module) for module in EXTRAS[extra])
