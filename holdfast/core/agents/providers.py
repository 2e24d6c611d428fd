"""Providers of resources: functions that open the resources of tools, and the order in which they are opened.

    @asynccontextmanager
    async def pool(settings: Settings) -> AsyncIterator[Pool]:
        async with open_pool(settings.url) as pool:
            yield pool

A provider is a function decorated with `@asynccontextmanager` or `@contextmanager`, or a plain one, sync or async, that
returns the resource. Its return type is the type of the resource. Its parameters are other resources, by type.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any, Literal, get_args, get_origin

from holdfast.core.tools.decorator import Tool, ToolContext
from holdfast.core.tools.resources import resource_type, resources_of
from holdfast.core.tools.secrets import Secrets, is_secret_name
from holdfast.core.tools.signatures import hints_of, parameters_of, plain, source_location, with_location
from holdfast.errors import CatalogError

Lifetime = Literal["async", "sync", "value"]
"""An async context manager · a sync one · a function that returns the resource, which nothing closes."""


_NO_RESOURCES = ("builtins", "types", "typing")
"""Modules of types that cannot be resources: those of ordinary arguments, and those that are not classes, such as
unions."""


@dataclass(frozen=True)
class Provider:
    """A function that provides a resource, as created by `resource` and the catalog."""

    function: Callable[..., Any]
    provides: Any
    """The type by which parameters request it."""
    needs: Mapping[str, Any]
    """The type of the resource that each parameter gets; `Secrets` for the provider's own secrets."""
    lifetime: Lifetime
    secrets: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The function's name."""
        return plain(self.function).__name__

    @property
    def where(self) -> str:
        """The provider as errors name it, with file and line."""
        found = source_location(self.function)
        return f"resource {self.name!r}" + (f" ({found})" if found else "")


def resource(*, secrets: Sequence[str]) -> Callable[[Callable[..., Any]], Provider]:
    """Make a provider that may read secrets; a function without secrets can be passed to the catalog directly.

        @resource(secrets=("BANK_KEY",))
        @asynccontextmanager
        async def bank(secrets: Secrets) -> AsyncIterator[Bank]:
            async with Bank(secrets.value("BANK_KEY")) as bank:
                yield bank

    Args:
        secrets: Environment variables of the worker that the function reads from its parameter of type `Secrets`.

    Raises:
        CatalogError: The function cannot be a provider; the message has its file and line.
    """

    def make(function: Callable[..., Any]) -> Provider:
        return read_provider(function, secrets=secrets)

    return make


def read_provider(function: Callable[..., Any] | Provider, *, secrets: Sequence[str] = ()) -> Provider:
    """Return the provider for a function.

    Raises:
        CatalogError: It is not a valid provider; the message has its file and line.
    """
    if isinstance(function, Provider):
        return function
    if not inspect.isroutine(plain(function)):
        raise CatalogError(f"{function!r} is not a function that provides a resource")
    try:
        return _read(function, tuple(secrets))
    except CatalogError as error:
        raise CatalogError(with_location(function, f"resource {plain(function).__name__!r}{error}")) from None


def _read(function: Callable[..., Any], secrets: tuple[str, ...]) -> Provider:
    try:
        hints = hints_of(function)
    except NameError as error:
        raise CatalogError(f": {error}; its annotations must resolve where it is defined") from None
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise CatalogError(": it yields; decorate it with @asynccontextmanager or @contextmanager")
    written = inspect.unwrap(plain(function))
    lifetime: Lifetime = "value"
    if inspect.isasyncgenfunction(written):
        lifetime = "async"
    elif inspect.isgeneratorfunction(written):
        lifetime = "sync"
    needs: dict[str, Any] = {}
    for parameter in parameters_of(function):
        if parameter.name not in hints or parameter.kind is parameter.POSITIONAL_ONLY:
            raise CatalogError(f", parameter {parameter.name!r}: it needs a type, and is passed by name")
        needs[parameter.name] = resource_type(hints[parameter.name]) or hints[parameter.name]
    if not all(map(is_secret_name, secrets)):
        raise CatalogError(f": secrets={secrets!r} does not name environment variables")
    if bool(secrets) != (Secrets in needs.values()):
        raise CatalogError(": @resource(secrets=(…)) and a parameter of type Secrets belong together")
    return Provider(function, _provided(hints.get("return"), lifetime), needs, lifetime, secrets)


def _provided(returned: Any, lifetime: Lifetime) -> Any:
    """Return the type of the resource: the returned or yielded type."""
    if lifetime != "value" and returned is not None:
        returned = next(iter(get_args(returned)), None)
    kind = get_origin(returned) or returned
    known = isinstance(kind, type) and kind.__module__ not in _NO_RESOURCES
    if not known or kind in (ToolContext, Secrets):
        how = "AsyncIterator[Pool]" if lifetime == "async" else "Iterator[Pool]" if lifetime == "sync" else "Pool"
        raise CatalogError(f" must say which class it provides, one of your own or a library's: `-> {how}`")
    return returned


def by_type(providers: Iterable[Callable[..., Any] | Provider]) -> dict[Any, Provider]:
    """Return the providers by the type that they provide, in the order in which to open them.

    Raises:
        CatalogError: Two provide the same type, a required resource has no provider, or they depend on each other.
    """
    found: dict[Any, Provider] = {}
    for each in map(read_provider, providers):
        if other := found.get(each.provides):
            raise CatalogError(f"{other.where} and {each.where} both provide {name_of(each.provides)}; keep one")
        found[each.provides] = each
    for each in found.values():
        for parameter, kind in each.needs.items():
            if kind not in found and kind is not Secrets:
                raise CatalogError(f"{each.where}, parameter {parameter!r}: {_missing(kind, found)}")
    graph = {kind: [need for need in each.needs.values() if need in found] for kind, each in found.items()}
    try:
        return {kind: found[kind] for kind in TopologicalSorter(graph).static_order()}
    except CycleError as error:
        circle = " needs ".join(found[kind].where for kind in reversed(error.args[1]))
        raise CatalogError(f"resources need each other, so none can be opened first: {circle}") from None


def check_provided(tool: Tool, providers: Mapping[Any, Provider]) -> None:
    """Check that there is a provider of each resource that a tool, its check or its undo function requests.

    Raises:
        CatalogError: One is missing; the message has the function's file and line, and the parameter.
    """
    for role, function in (("", tool.function), (", check", tool.check), (", undo", tool.undo)):
        for parameter, kind in (resources_of(function) if function else {}).items():
            if kind not in providers:
                where = f"tool {tool.spec.name!r}{role}, parameter {parameter!r}"
                raise CatalogError(with_location(function, f"{where}: {_missing(kind, providers)}"))  # type: ignore[arg-type]


def name_of(kind: Any) -> str:
    """Return a type's name for a message."""
    return kind.__qualname__ if isinstance(kind, type) and not get_args(kind) else str(kind)


def _missing(kind: Any, available: Iterable[Any]) -> str:
    listed = ", ".join(map(name_of, available)) or "none"
    return f"no resource of type {name_of(kind)}; add a provider to Catalog(resources=[…]), which has: {listed}"
