"""How our models are written into Temporal's history: as JSON that leaves defaults out, for every byte is kept.

Reading is that of Temporal's own pydantic converter, so any client that uses it can read what we wrote.
"""

from typing import Any

from pydantic import BaseModel
from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import PydanticJSONPlainPayloadConverter
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultPayloadConverter,
    JSONPlainPayloadConverter,
)


class _LeanJSON(PydanticJSONPlainPayloadConverter):
    def to_payload(self, value: Any) -> Payload | None:
        """Encode a model without its defaults, anything else as usual."""
        if not isinstance(value, BaseModel):
            return super().to_payload(value)
        data = value.model_dump_json(exclude_defaults=True).encode()
        return Payload(metadata={"encoding": self.encoding.encode()}, data=data)


class LeanPayloadConverter(CompositePayloadConverter):
    """Temporal's default converters, with ours in place of plain JSON."""

    def __init__(self) -> None:
        lean = _LeanJSON()
        super().__init__(
            *(
                lean if isinstance(each, JSONPlainPayloadConverter) else each
                for each in DefaultPayloadConverter.default_encoding_payload_converters
            )
        )


data_converter = DataConverter(payload_converter_class=LeanPayloadConverter)
"""For every client and worker of ours."""
