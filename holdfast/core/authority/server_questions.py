"""Questions of foreign servers to people: how a request shows them, and which answers they accept. Pure.

1. A server writes the text, so it may say anything. People see it marked as that server's words, with every character
   visible; an address is shown in full, and nothing of ours opens it.
2. An answer fits the form that the server asked for, or it is no answer.
3. A decision is bound to the digest of the whole question, and so to what people were shown.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic_core import from_json

from holdfast.core.authority.previews import CallPreview
from holdfast.core.base.canonical import exact_json, too_deep
from holdfast.core.tools.argument_schema import unfit
from holdfast.core.tools.foreign_waits import QuestionPart, ServerQuestion
from holdfast.errors import NotPortable


def question_text(question: ServerQuestion) -> str:
    """Return a question as people read it, line by line. The caller makes control characters visible."""
    return "\n".join(_lines(question))


def question_preview(question: ServerQuestion) -> CallPreview:
    """Return the question as a request shows it. Its base is the digest of the question."""
    return CallPreview(text=question_text(question), base=question.digest)


def accept(question: ServerQuestion, answer: str | None) -> dict[str, Any] | str:
    """Return the responses to all questions, or a sentence that says why the answer is none.

    Args:
        question: What was asked.
        answer: The JSON of the form's fields, or the one field's value; of several questions, an object with an entry
            for each key, which is `true` for an address. None for an address that was visited.
    """
    if question.is_visit:
        return {question.parts[0].key: {"action": "accept"}} if answer is None else "an address takes no answer"
    if answer is None:
        return "answer the question"
    try:
        value = from_json(answer, allow_inf_nan=False)
    except ValueError:
        value = answer
    if too_deep(value):
        return "it is nested too deeply"
    if len(question.parts) == 1:
        part = question.parts[0]
        content = value if isinstance(value, dict) else _only_field(part, answer, value)
        return _responses([(part, content)])
    keys = [part.key for part in question.parts]
    if not isinstance(value, dict) or set(value) != set(keys):
        return f"answer with an object that has the keys {', '.join(keys)[:500]}"
    return _responses([(part, value[part.key]) for part in question.parts])


def decline(question: ServerQuestion) -> dict[str, Any]:
    """Return the responses of people who decline to answer."""
    return {part.key: {"action": "decline"} for part in question.parts}


def _responses(answers: list[tuple[QuestionPart, Any]]) -> dict[str, Any] | str:
    responses: dict[str, Any] = {}
    for part, content in answers:
        if part.url:
            if content is not True:
                return f"{part.key[:100]}: answer true when the address has been visited"
            responses[part.key] = {"action": "accept"}
        elif why := _unfit(part, content):
            return why
        else:
            responses[part.key] = {"action": "accept", "content": content}
    try:
        exact_json(responses)
    except NotPortable as error:
        return f"the answer holds {error}"
    return responses


def _unfit(part: QuestionPart, content: Any) -> str:
    names = ", ".join(_fields(part))[:500] or "none"
    if not isinstance(content, dict):
        return f"answer with an object that has the fields of the form: {names}"
    if unknown := [name for name in content if name not in _fields(part)]:
        return f"the form has no field {unknown[0][:100]!r}; it has: {names}"
    if nested := [name for name, value in content.items() if not _is_flat(value)]:
        return f"{nested[0][:100]}: give a text, a number, true, false or a list of texts"
    why = unfit(content, part.form)
    return f"the answer does not fit the form: {why.removeprefix('arguments').lstrip(':. ')}"[:500] if why else ""


def _is_flat(value: Any) -> bool:
    texts = isinstance(value, list) and all(isinstance(each, str) for each in value)
    return texts or value is None or isinstance(value, str | int | float)


def _only_field(part: QuestionPart, text: str, value: Any) -> Any:
    """Return the content of a form with one field, from its value alone; a text needs no quotes."""
    fields = _fields(part)
    if len(fields) != 1:
        return value
    ((name, schema),) = fields.items()
    return {name: text if isinstance(schema, dict) and schema.get("type") == "string" else value}


def _fields(part: QuestionPart) -> Mapping[str, Any]:
    properties = part.form.get("properties")
    return properties if isinstance(properties, dict) else {}


def _lines(question: ServerQuestion) -> Iterator[str]:
    """Yield the question for people, line by line."""
    for number, part in enumerate(question.parts):
        if number:
            yield ""
        if len(question.parts) > 1:
            yield f"{part.key}:"
        yield from part.message.splitlines() or [""]
        if part.url:
            yield "To be visited by a person who trusts it; nobody has opened it:"
            yield part.url
            continue
        required = part.form.get("required")
        must = set(required) if isinstance(required, list) and all(isinstance(each, str) for each in required) else ()
        # Not in the server's order, which the log does not keep: the text is bound to the decision.
        for name, schema in sorted(_fields(part).items(), key=lambda field: (field[0] not in must, field[0])):
            yield f"- {name}{_kind(schema)}{', required' if name in must else ''}{_about(schema)}"


def _kind(schema: Any) -> str:
    if not isinstance(schema, dict):
        return ""
    choices = _choices(schema, "oneOf") or _choices(schema.get("items"), "anyOf")
    kind = schema.get("type")
    shown = f" ({kind})" if isinstance(kind, str) else ""
    return f"{shown}: one of {exact_json(choices)}" if choices else shown


def _choices(schema: Any, titled: str) -> list[Any]:
    """Return the values to choose from. A title could say something else than the value that is sent, so none is shown
    in the place of a value.
    """
    if not isinstance(schema, dict):
        return []
    values, options = schema.get("enum"), schema.get(titled)
    if isinstance(values, list):
        return values
    return [each.get("const") for each in options if isinstance(each, dict)] if isinstance(options, list) else []


def _about(schema: Any) -> str:
    if not isinstance(schema, dict):
        return ""
    texts = [schema.get("title"), schema.get("description")]
    said = " - ".join(text for text in texts if isinstance(text, str) and text)
    return f". {said}" if said else ""
