"""Tools whose arguments a JSON schema describes, such as those of foreign servers, instead of a function's signature.

1. The arguments are parsed once into canonical JSON, which is judged, shown, recorded and sent. The defaults that the
   schema gives to missing parameters are part of it.
2. The schema is checked at a bounded cost (`holdfast.core.tools.argument_schema`): a foreign schema may be hostile.
"""

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic_core import from_json

from holdfast.core.base.canonical import MAX_DEPTH, exact_json, too_deep
from holdfast.core.tools.argument_schema import unfit
from holdfast.core.tools.arguments import Arguments, ArgumentsInvalid
from holdfast.core.tools.decorator import R_co, Tool
from holdfast.errors import NotPortable


class Unread(BaseModel):
    """Stands in for a model of the parameters, which no function of such a tool declares."""


@dataclass(frozen=True)
class SchemaTool(Tool[R_co]):
    """A tool whose function takes all arguments as one `arguments: dict[str, Any]`."""

    def read(self, arguments: str) -> Arguments:
        """Parse the arguments that the LLM wrote, or their recorded form, and check them by the schema.

        Args:
            arguments: JSON text; empty for no arguments.

        Raises:
            ArgumentsInvalid: They are not a JSON object, or do not fit the schema; the message has the path.
        """
        try:
            value = from_json(arguments.strip() or "{}", allow_inf_nan=False)
        except ValueError as error:
            raise ArgumentsInvalid(f"they are not JSON: {error}") from None
        if not isinstance(value, dict):
            raise ArgumentsInvalid("they are not a JSON object")
        if too_deep(value):
            raise ArgumentsInvalid(f"they are nested more than {MAX_DEPTH} levels deep")
        try:
            text = exact_json({**self.spec.defaults, **value})
        except NotPortable as error:
            raise ArgumentsInvalid(f"they hold {error}") from None
        # Read again: the call gets exactly the values that the log has.
        values: dict[str, Any] = from_json(text)
        if why := unfit(values, self.spec.parameters):
            raise ArgumentsInvalid(why)
        return Arguments({"arguments": values}, text)
