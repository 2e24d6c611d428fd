"""Reads requests as the parameter types of the providers' SDKs do."""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter
from typing_extensions import TypedDict


@cache
def _requests() -> dict[str, TypeAdapter[Any]]:
    from anthropic.types import message_create_params
    from openai.types.chat import completion_create_params
    from openai.types.responses import response_create_params

    return {
        "chat_completions": TypeAdapter(completion_create_params.CompletionCreateParamsNonStreaming),
        "responses": TypeAdapter(response_create_params.ResponseCreateParamsNonStreaming),
        "anthropic_messages": TypeAdapter(message_create_params.MessageCreateParamsNonStreaming),
        "chat_completions, streamed": TypeAdapter(completion_create_params.CompletionCreateParamsStreaming),
        "responses, streamed": TypeAdapter(response_create_params.ResponseCreateParamsStreaming),
        "anthropic_messages, streamed": TypeAdapter(message_create_params.MessageCreateParamsStreaming),
    }


@cache
def _messages() -> dict[str, tuple[TypeAdapter[Any], ...]]:
    from anthropic.types import ContentBlockParam, MessageParam
    from openai.types.chat import ChatCompletionMessageParam
    from openai.types.responses import ResponseInputItemParam

    class Turn(TypedDict):
        """A message of Anthropic's as we send it; the SDK's own type also accepts the SDK's own objects."""

        role: Literal["user", "assistant"]
        content: Iterable[ContentBlockParam]

    return {
        "chat_completions": (TypeAdapter(ChatCompletionMessageParam),),
        "responses": (TypeAdapter(ResponseInputItemParam),),
        "anthropic_messages": (TypeAdapter(MessageParam), TypeAdapter(Turn)),
    }


def sent_messages(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a request's messages or items."""
    return list(request.get("messages") or request.get("input") or [])


def check_request(issuer: str, request: dict[str, Any]) -> None:
    """Check that a request is of the SDK's type, and that each message has no field but those of its type.

    Raises:
        pydantic.ValidationError: It is not of that type.
    """
    kind = f"{issuer}, streamed" if request.get("stream") else issuer
    read = _read(_requests()[kind].validate_python(request, strict=True))
    assert read.keys() == request.keys()
    for message in sent_messages(request):
        check_message(issuer, message)


def check_message(issuer: str, message: dict[str, Any]) -> None:
    """Check that a message or an item is of the SDK's type, and has no other field.

    Raises:
        pydantic.ValidationError: It is not of that type.
    """
    read: Any = None
    for adapter in _messages()[issuer]:
        read = _read(adapter.validate_python(message, strict=True))
    assert read == message


def _read(value: Any) -> Any:
    """Read a value that pydantic checks lazily: an `Iterable`."""
    if isinstance(value, dict):
        return {name: _read(each) for name, each in value.items()}
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_unset=True)
    if isinstance(value, list | Iterator):
        return [_read(each) for each in value]
    return value
