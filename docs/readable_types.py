"""A Sphinx extension: in the Python API, types are shown as a reader would write them."""

from collections.abc import Callable
from types import GenericAlias, UnionType
from typing import Annotated, Any, ForwardRef, Literal, Union, get_args, get_origin

from sphinx.ext.autodoc._dynamic import _loader, _type_annotations
from sphinx.util import inspect as signatures
from sphinx.util.typing import stringify_annotation

from holdfast.core.llm.blocks import Content
from holdfast.core.log.events import AgentEvent

ALIASES = {id(alias): ForwardRef(name) for name, alias in {"Content": Content, "AgentEvent": AgentEvent}.items()}
"""Types that are shown by their name, because what they stand for would fill a screen."""


def readable(annotation: Any) -> Any:
    """Replace aliases by their names, and leave out pydantic's metadata."""
    if id(annotation) in ALIASES:
        return ALIASES[id(annotation)]
    if get_origin(annotation) is Annotated:
        return readable(get_args(annotation)[0])
    if isinstance(annotation, UnionType) or get_origin(annotation) is Union:
        return Union[tuple(map(readable, get_args(annotation)))]  # noqa: UP007 -- of a tuple
    if get_origin(annotation) in (Callable, Literal):
        return annotation
    if hasattr(annotation, "copy_with"):
        return annotation.copy_with(tuple(map(readable, get_args(annotation))))
    if isinstance(annotation, GenericAlias):
        return GenericAlias(get_origin(annotation), tuple(map(readable, get_args(annotation))))
    return annotation


def stringify_readable(annotation: Any, *given: Any, **options: Any) -> str:
    """Take the place of Sphinx's own function, which has no hook."""
    return str(stringify_annotation(readable(annotation), *given, **options))


def setup(_: Any) -> None:
    """Take effect wherever autodoc writes a type."""
    for module in (_loader, _type_annotations, signatures):
        module.stringify_annotation = stringify_readable  # type: ignore[attr-defined]
