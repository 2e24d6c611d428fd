"""The tables of the reference page of settings, made from the code."""

import ast
import inspect
from itertools import pairwise

from pydantic_core import PydanticUndefined

from holdfast.config import settings
from holdfast.config.project import IN_TOML, TEMPORAL
from holdfast.config.settings import Settings, variables
from holdfast.devstack.ports import Ports
from tests.docs.pages import DOCS

PAGE = DOCS / "reference/settings.md"


def descriptions() -> dict[str, str]:
    """Return the text below each field of `Settings`, without the variable that it begins with."""
    tree = ast.parse(inspect.getsource(settings))
    (body,) = (node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Settings")
    texts = {}
    for declared, text in pairwise(body):
        if isinstance(declared, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            assert isinstance(declared.target, ast.Name)
            description = " ".join(str(text.value.value).split()).partition(": ")[2]
            texts[declared.target.id] = description[0].upper() + description[1:]
    return texts


def description_of(field: str) -> str:
    """Return a field's description, with its default and its name in `holdfast.toml`, if it has them."""
    value = Settings.model_fields[field].default
    shown = str(value).lower() if isinstance(value, bool) else value
    default = "" if value in (None, PydanticUndefined, {}) else f" Default: `{shown}`."
    return f"{descriptions()[field]}{default}{f' In `holdfast.toml`: `{field}`.' if field in IN_TOML else ''}"


def tables() -> dict[str, list[str]]:
    """Return each table of the page, by its marker."""
    rows = [f"| `{variable}` | {description_of(field)} |" for field, variable in variables().items()]
    ports = Ports()
    used = {
        ports.grpc: "Temporal, of `worker --dev`",
        ports.http: "Temporal's HTTP API, of `worker --dev`",
        ports.ui: "Temporal's Web UI, of `worker --dev`",
        Settings.model_fields["gateway_port"].default: "the gateway (`HOLDFAST_GATEWAY_PORT`)",
    }
    return {
        "settings": ["| variable | what it is |", "|---|---|", *rows],
        "temporal": [", ".join(f"`{name}`" for name in TEMPORAL) + "."],
        "ports": ["| port | used by |", "|---|---|", *(f"| {port} | {what} |" for port, what in used.items())],
    }


def settings_page() -> str:
    """Return the current page with up-to-date tables."""
    page = PAGE.read_text(encoding="utf-8")
    for name, lines in tables().items():
        begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        before, _, rest = page.partition(begin)
        page = "".join([before, begin, *(f"{line}\n" for line in lines), end, rest.partition(end)[2]])
    return page
