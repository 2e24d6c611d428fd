"""Templates of instructions: text with places that a run fills in when its agent is loaded.

    Template("You help {{ context.name }}, a {{ context.tier }} customer. Today is {{ date }}.")

1. A place names a value, and nothing else: a template calls nothing, calculates nothing and reads no attribute.
2. A value is inserted once, as it is: places in it are not filled in. A text is written on one line, so that it cannot
   look like a part of the instructions.
3. A secret stays a reference: a template shows its name.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from holdfast.core.agents.run_functions import RunContext
from holdfast.core.base.canonical import exact_json
from holdfast.core.base.models import nearest
from holdfast.errors import CatalogError, ContextInvalid

FACTS = ("date", "time", "person", "agent", "thread")
"""The values that a template has besides the context: the date (UTC) and the time at which the run loaded its agent,
the person who gave the task if their identity is proven, the agent's name and the thread's id.
"""

_PLACE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_PATH = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*")
_BREAKS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


@dataclass(frozen=True)
class Template:
    """Instructions with places such as `{{ context.name }}`, `{{ date }}`, `{{ time }}` and `{{ person }}`."""

    text: str

    @property
    def places(self) -> tuple[str, ...]:
        """The names of the values that it shows."""
        return tuple(found.strip() for found in _PLACE.findall(self.text))

    def check(self, model: type[BaseModel] | None) -> None:
        """Reject a place that cannot be filled in.

        Args:
            model: The model of the agent's context; None for no context.

        Raises:
            CatalogError: A place is no name, or names a value that no run has.
        """
        for place in self.places:
            first, _, rest = place.partition(".")
            if not _PATH.fullmatch(place):
                raise CatalogError(
                    f"the template has {{{{ {place[:60]} }}}}: a place is a name such as context.name or date, and no "
                    "expression; use a function for more"
                )
            if first == "context" and rest:
                _check_path(place, rest, model)
            elif place not in FACTS:
                raise CatalogError(
                    f"the template has {{{{ {place} }}}}; a template has context.FIELD, {', '.join(FACTS)}"
                )

    def filled(self, values: Mapping[str, Any] | None, run: RunContext) -> str:
        """Return the text with its places filled in.

        Raises:
            ContextInvalid: The context lacks a value.
        """
        facts = {
            "date": run.at.date().isoformat(),
            "time": run.at.isoformat(timespec="minutes"),
            "person": run.person,
            "agent": run.agent,
            "thread": run.thread,
        }

        def fill(found: re.Match[str]) -> str:
            place = found[1].strip()
            return _BREAKS.sub(" ", facts[place]) if place in facts else _shown(_value_at(place, values))

        return _PLACE.sub(fill, self.text)


def _check_path(place: str, rest: str, model: type[BaseModel] | None) -> None:
    """Reject a path to a field that a model lacks, as far as the types tell."""
    kind: Any = model
    if model is None:
        raise CatalogError(f"the template has {{{{ {place} }}}}, but the agent has no context: Agent(context=MODEL)")
    for part in rest.split("."):
        if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
            return
        if part not in kind.model_fields:
            raise CatalogError(
                f"the template has {{{{ {place} }}}}, but {kind.__name__} has no field {part!r}; "
                f"{nearest(part, list(kind.model_fields))}"
            )
        kind = kind.model_fields[part].annotation


def _value_at(place: str, values: Mapping[str, Any] | None) -> Any:
    value: Any = values
    for part in place.split(".")[1:]:
        if not isinstance(value, Mapping) or part not in value:
            raise ContextInvalid(f"the instructions show {place}, which the context does not have")
        value = value[part]
    return value


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return _BREAKS.sub(" ", value)
    if isinstance(value, Mapping) and value.keys() == {"secret"}:
        return f"[secret {value['secret']}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, float) else exact_json(value)
