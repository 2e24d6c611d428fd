"""Providers of resources, resource parameters, and methods as tools: definitions that a catalog rejects."""

import functools
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from holdfast import Agent, Catalog, CatalogError, Resource, Secrets, ToolContext, ToolSignatureError, resource, tool
from holdfast.core.tools.arguments import ArgumentsInvalid
from holdfast.core.tools.decorator import bind

AGENT = Agent(name="a", instructions="")


@dataclass
class Settings:
    """A type that pydantic could read from JSON."""

    admin: bool = False


class Pool:
    """A type that pydantic could not read from JSON."""


class Service:
    """A service with methods."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def greet(self, name: str, loud: bool = False) -> str:
        """Greet somebody.

        Args:
            name: The person's name.
            loud: Whether to shout.
        """
        return f"{self.prefix} {name}{'!' * loud}"

    async def wave(self, context: ToolContext, settings: Resource[Settings]) -> str:
        """Wave."""
        return f"{self.prefix} {context.key} {settings.admin}"

    def check(self, name: str) -> None:
        """Check."""


def settings() -> Settings:
    """Provide settings."""
    return Settings()


@asynccontextmanager
async def pool(settings: Settings) -> AsyncIterator[Pool]:
    """Provide a pool."""
    yield Pool()


def none_returned():  # type: ignore[no-untyped-def]  # that is the mistake
    """Return nothing declared: there is no return type."""


def text() -> str:
    """Provide a type that arguments have."""
    return ""


def context() -> ToolContext:
    """Provide a type of Holdfast's own."""
    raise NotImplementedError


async def undecorated() -> AsyncIterator[Pool]:
    """Lack a decorator."""
    yield Pool()


@contextmanager
def either() -> Iterator[Pool | None]:
    """Provide a union."""
    yield None


def untyped(x) -> Pool:  # type: ignore[no-untyped-def]  # that is the mistake
    """Have a parameter without a type."""
    return Pool()


def first(second: Pool) -> Settings:
    """Be one half of a cycle."""
    return Settings()


def secretive(secrets: Secrets) -> Pool:
    """Read secrets that it does not declare."""
    return Pool()


@pytest.mark.parametrize(
    ("providers", "message"),
    [
        ([none_returned], "'none_returned' must say which class it provides, .*`-> Pool`"),
        ([text], "'text' must say which class it provides"),
        ([context], "'context' must say which class it provides"),
        ([either], r"'either' must say which class it provides.*`-> Iterator\[Pool\]`"),
        ([undecorated], "'undecorated': it yields; decorate it with @asynccontextmanager"),
        ([untyped], "'untyped', parameter 'x': it needs a type"),
        ([secretive], "'secretive': .*belong together"),
        ([pool], r"'pool' \(.*\), parameter 'settings': no resource of type Settings; .*which has: Pool"),
        ([settings, settings], "both provide Settings; keep one"),
        ([first, pool], r"need each other.*'(first|pool)' \(.*needs resource '(first|pool)'"),
        ([Settings()], "is not a function that provides a resource"),
    ],
)
def test_invalid_providers_are_rejected(providers: list[Any], message: str) -> None:
    """The error gives the reason, with the provider's file and line."""
    with pytest.raises(CatalogError, match=message) as refused:
        Catalog(agents=[AGENT], resources=providers)
    assert re.search(r"test_providers\.py:\d+", str(refused.value)) or providers == [Settings()]


def test_a_missing_provider_is_rejected() -> None:
    """The error has file and line of the function (tool, check or undo) that asks for it, and the parameter."""

    def lost(settings: Resource[Settings]) -> None:
        """Undo."""

    @tool(undo=lost)
    def act(pool: Resource[Pool]) -> str:
        """Act."""
        return ""

    with pytest.raises(CatalogError, match=r"test_providers\.py:\d+: tool 'act', parameter 'pool': no resource"):
        Catalog(agents=[AGENT], tools=[act], resources=[settings])
    with pytest.raises(CatalogError, match=r"tool 'act', undo, parameter 'settings': no resource of type Settings"):
        Catalog(agents=[AGENT], tools=[act], resources=[plain_pool])
    Catalog(agents=[AGENT], tools=[act], resources=[settings, plain_pool])


def plain_pool() -> Pool:
    """Provide a pool without needs."""
    return Pool()


def test_a_resource_is_never_read_from_arguments() -> None:
    """The LLM cannot supply a resource, and the marker cannot hide in a larger type whose value the LLM would write."""

    @tool
    def act(order: int, settings: Annotated[Resource[Settings], "mine"]) -> bool:
        """Act."""
        return settings.admin

    assert list(act.spec.parameters["properties"]) == ["order"]
    with pytest.raises(ArgumentsInvalid, match="settings"):
        act.read('{"order": 1, "settings": {"admin": true}}')
    forged = {"order": 1, "settings": Settings(admin=True)}
    arguments = bind(act.function, forged, CONTEXT, {Settings: Settings()})
    assert act(**arguments) is False

    def optional(settings: Resource[Settings] | None = None) -> None:
        """Ask for a resource in a union."""

    def several(settings: list[Resource[Settings]]) -> None:
        """Ask for a resource in a list."""

    for function in (optional, several):
        with pytest.raises(ToolSignatureError, match=r"'settings': Resource\[…\] must be the whole annotation"):
            tool(function)
        with pytest.raises(ToolSignatureError, match=r"check=.*parameter 'settings': Resource"):
            tool(effect="verifiable", check=function)(plain)


def plain(order: int) -> str:
    """Be a plain function."""
    return f"{order}"


CONTEXT = ToolContext(thread="t", workspace=None, key="k", attempt=1)  # type: ignore[arg-type]


async def test_methods_are_tools() -> None:
    """A method of an instance is a tool, without `self` and with its docstring, its context and its resources."""
    service = Service("Hello")
    greet = tool(effect="read")(service.greet)
    assert (greet.spec.name, greet.spec.description) == ("greet", "Greet somebody.")
    assert list(greet.spec.parameters["properties"]) == ["name", "loud"]
    assert greet.spec.parameters["properties"]["name"]["description"] == "The person's name."
    assert greet("you", loud=True) == "Hello you!"
    wave = tool(effect="verifiable", check=Service("x").wave)(service.wave)
    assert wave.spec.parameters["properties"] == {}
    arguments = bind(wave.function, {}, CONTEXT, {Settings: Settings(True)})
    assert await wave(**arguments) == "Hello k True"
    assert Catalog(agents=[AGENT], tools=[greet, wave], resources=[settings]).tools.keys() == {"greet", "wave"}


def test_partials_are_tools() -> None:
    """An argument that a partial object binds, by position or by name, is no parameter of the tool."""
    greet = tool(name="shout")(functools.partial(Service.greet, Service("Hey"), loud=True))
    assert (greet.spec.name, list(greet.spec.parameters["properties"])) == ("shout", ["name"])
    assert greet(**bind(greet.function, greet.parse('{"name": "you"}'), CONTEXT)) == "Hey you!"
    with pytest.raises(ArgumentsInvalid):
        greet.read('{"name": "you", "loud": false}')


class Callee:
    """A callable object."""

    def __call__(self, name: str) -> str:
        """Call it."""
        return name


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (Service.greet, r"parameter 'self': this is a method of a class; .*tool\(effect=…\)\(service.greet\)"),
        (Callee(), "is not a function; make a tool of a function"),
        (functools.partial(Callee(), name="x"), "is not a function"),
        (staticmethod(plain), "is no method yet"),
    ],
)
def test_an_object_that_cannot_be_a_tool_is_explained(function: Callable[..., Any], message: str) -> None:
    """The error suggests an alternative."""
    with pytest.raises(ToolSignatureError, match=message):
        tool(function)


def test_a_resource_with_secrets() -> None:
    """The decorator makes a provider that declares its secrets; invalid names are rejected."""

    def opened(secrets: Secrets) -> Pool:
        return Pool()

    catalog = Catalog(agents=[AGENT], resources=[resource(secrets=("POOL_KEY",))(opened)])
    assert catalog.resources[Pool].secrets == ("POOL_KEY",)
    with pytest.raises(CatalogError, match="does not name environment variables"):
        resource(secrets=("POOL KEY",))(opened)
