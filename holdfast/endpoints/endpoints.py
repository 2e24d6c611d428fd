"""The LLM endpoints of a process: one client for each, and the adapter of its API.

1. Each client sends the key of its own endpoint, and no header that the environment sets for OpenAI's.
2. An endpoint that is not configured is an error only for an agent that names it; the error says how to configure it.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, assert_never

import openai

from holdfast.config.llm_endpoints import VERSION, EndpointSetting
from holdfast.config.settings import Settings
from holdfast.core.agents.agent import AgentSpec
from holdfast.core.agents.catalog import Catalog
from holdfast.core.llm.adapters import Adapter
from holdfast.core.llm.anthropic_messages import AnthropicMessages
from holdfast.core.llm.chat_completions import ChatCompletions
from holdfast.core.llm.names import Api, split_reference
from holdfast.core.llm.responses import Responses
from holdfast.core.llm.strict_schemas import strict_problem
from holdfast.core.transcript.prompt import request_prefix
from holdfast.endpoints.client import llm_client
from holdfast.endpoints.http_client import http_client
from holdfast.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from holdfast.endpoints.script import Script

DEFAULT: Final = "chat"
"""The name of the default endpoint, which plain names mean."""


@dataclass(frozen=True)
class Endpoint:
    """An endpoint of LLMs."""

    name: str
    api: Api
    client: openai.AsyncOpenAI
    """Without retries of its own, which are Temporal's."""
    headers: Mapping[str, Any] = field(default_factory=dict)
    """The headers of each request, in place of the client's own."""

    def adapter(self, issuer: str = "") -> Adapter:
        """Return an adapter for one of its LLMs.

        Args:
            issuer: The LLM as `ENDPOINT/LLM`: parts of replies that only their provider understands go back to that
                LLM alone. Empty for a plain name at the default endpoint.
        """
        match self.api:
            case "chat":
                limit = "max_completion_tokens" if self.client.base_url.host == _OPENAI else "max_tokens"
                return ChatCompletions(issuer, max_tokens=limit) if issuer else ChatCompletions(max_tokens=limit)
            case "responses":
                return Responses(issuer)
            case "messages":
                return AnthropicMessages(issuer)
            case _:
                assert_never(self.api)


_OPENAI = "api.openai.com"

_MOST_ROUTES = 1_000
"""The most routes to keep: a run may name any LLM."""


@dataclass(frozen=True)
class Route:
    """One of an agent's LLMs, with the endpoint that serves it."""

    reference: str
    """`ENDPOINT/LLM`; empty for a plain name at the default endpoint."""
    llm: str
    """The LLM, as the endpoint names it."""
    endpoint: Endpoint
    adapter: Adapter

    def prefix(self, spec: AgentSpec) -> bytes:
        """Encode the part of a request that describes the agent."""
        return request_prefix(spec, self.adapter, reference=self.reference, api=self.endpoint.api)


@dataclass(frozen=True)
class NoRoute:
    """One of an agent's LLMs, without an endpoint in this process."""

    reference: str
    why: str
    """What is missing, and what to do."""


@dataclass(frozen=True)
class Endpoints:
    """The endpoints of a process by name."""

    known: Mapping[str, Endpoint]
    missing: Mapping[str, str] = field(default_factory=dict)
    """The endpoints that are not configured, each with how to configure it."""
    stand_in: Endpoint | None = None
    """Replies in place of endpoints that are not configured; None for none."""
    _routes: dict[tuple[str, str], Route] = field(default_factory=dict)

    @classmethod
    def only(cls, client: openai.AsyncOpenAI) -> "Endpoints":
        """Return the endpoint of a Chat Completions client, in place of every endpoint that an agent may name."""
        endpoint = Endpoint(DEFAULT, "chat", client)
        return cls({DEFAULT: endpoint}, stand_in=endpoint)

    @property
    def names(self) -> Collection[str]:
        """The names that an agent may use, whether or not they are configured."""
        return {*self.known, *self.missing, "anthropic", "chat", "openai"}

    def default(self) -> openai.AsyncOpenAI:
        """Return the client of the default endpoint, which also has embeddings.

        Raises:
            SettingsError: It is not configured.
        """
        if DEFAULT not in self.known:
            raise SettingsError(self.missing[DEFAULT])
        return self.known[DEFAULT].client

    def routes(self, spec: AgentSpec) -> "tuple[Route | NoRoute, ...]":
        """Return the routes to an agent's LLMs, in its order; `NoRoute` for each that has no endpoint here."""
        return tuple(self._route(each, spec.llm) for each in spec.llms or ("",))

    def _route(self, reference: str, plain: str) -> Route | NoRoute:
        name, llm = split_reference(reference) if reference else (DEFAULT, plain)
        if (route := self._routes.get((reference, llm))) is None:
            if len(self._routes) >= _MOST_ROUTES:
                self._routes.clear()
            endpoint = self.known.get(name) or self.stand_in
            if endpoint is None:
                return NoRoute(reference or llm, self.missing.get(name) or _unknown(name))
            route = self._routes[reference, llm] = Route(reference, llm, endpoint, endpoint.adapter(reference))
        return route


def _unknown(name: str) -> str:
    return f"there is no LLM endpoint named {name!r}: add [llm.{name}] to holdfast.toml"


def options_advice(catalog: Catalog, endpoints: Endpoints, *, default_llm: "str | Sequence[str]") -> list[str]:
    """Return a sentence for each option of an agent that an endpoint cannot follow, and for each tool whose schema it
    is asked to enforce and cannot.
    """
    found: dict[str, None] = {}
    for name in catalog.agents:
        spec = catalog.spec(name, default_llm=default_llm, endpoints=endpoints.names)
        for route in endpoints.routes(spec):
            if isinstance(route, Route):
                found |= dict.fromkeys(f"agent {name!r}, {each}" for each in _unfollowed(spec, route.endpoint))
    return list(found)


def _unfollowed(spec: AgentSpec, endpoint: Endpoint) -> Iterator[str]:
    if endpoint.api == "messages" and spec.options.temperature is not None:
        yield f"endpoint {endpoint.name!r}: its API has no temperature, so that option has no effect there"
    for tool in spec.tools if spec.options.strict else ():
        if why := strict_problem(tool.parameters, endpoint.api):
            yield f"tool {tool.name!r}: endpoint {endpoint.name!r} cannot enforce its schema: {why}"


def require_endpoints(catalog: Catalog, endpoints: Endpoints, *, default_llm: "str | Sequence[str]") -> None:
    """Check that every LLM of a catalog's agents has an endpoint here.

    Raises:
        SettingsError: One has none; the message names the agents and what to set.
    """
    for name in catalog.agents:
        spec = catalog.spec(name, default_llm=default_llm, endpoints=endpoints.names)
        for route in endpoints.routes(spec):
            if isinstance(route, NoRoute):
                which = f", LLM {route.reference}" if spec.llms else ""
                raise SettingsError(f"agent {name!r}{which}: {route.why}")


@asynccontextmanager
async def open_endpoints(
    settings: Settings, *, dev: bool, say: Callable[[str], None], script: "Script | None" = None
) -> "AsyncIterator[Endpoints]":
    """Open the endpoints that the settings configure, for a block.

    Args:
        settings: With the keys.
        dev: Whether the scripted LLM replies in place of an endpoint that is not configured.
        say: Called with a line if the scripted LLM is used.
        script: What the scripted LLM answers; None for the script that the settings name.

    Raises:
        SettingsError: A setting is wrong.
    """
    known: dict[str, Endpoint] = {}
    missing: dict[str, str] = {}
    stand_in = None
    async with AsyncExitStack() as cleanup:
        if dev or not settings.scripted:
            client = cleanup.enter_context(llm_client(settings, dev=dev, say=say, script=script))
            default = Endpoint(DEFAULT, "chat", await cleanup.enter_async_context(client))
            known[DEFAULT] = default
            if settings.scripted:
                stand_in = default
            else:
                known["openai"] = Endpoint("openai", "responses", client)
        else:
            missing |= dict.fromkeys((DEFAULT, "openai"), _NOT_SET)
        for name, setting in {**_anthropic(settings), **settings.llm_endpoints}.items():
            if setting.secret is None and setting.key:
                missing[name] = (
                    f"{setting.key}, the key of the endpoint {name}, is not set: put it into the environment"
                )
                continue
            client = await cleanup.enter_async_context(_client(setting))
            known[name] = Endpoint(name, setting.api, client, _headers(setting))
        if "anthropic" not in known:
            missing["anthropic"] = (
                "ANTHROPIC_API_KEY is not set. Set it, or write chat/anthropic/… for an LLM at OPENAI_BASE_URL"
            )
        yield Endpoints(known, missing, stand_in)


_NOT_SET = "neither OPENAI_API_KEY nor OPENAI_BASE_URL is set. Set one, or use --dev for a scripted LLM."


def _anthropic(settings: Settings) -> dict[str, EndpointSetting]:
    if not (settings.anthropic_api_key or settings.anthropic_base_url):
        return {}
    url, secret = settings.anthropic_base_url or "", settings.anthropic_api_key
    return {"anthropic": EndpointSetting.model_construct(api="messages", base_url=url, key="", secret=secret)}


def _client(setting: EndpointSetting) -> openai.AsyncOpenAI:
    url = setting.address
    if setting.api == "messages":
        url = url.rstrip("/").removesuffix("/v1")
    return openai.AsyncOpenAI(api_key="none", base_url=url, max_retries=0, http_client=http_client(url))


def _headers(setting: EndpointSetting) -> dict[str, Any]:
    """Return the headers of an endpoint's API, without those that OpenAI's client takes from the environment."""
    key = setting.secret.get_secret_value() if setting.secret else ""
    lines = os.environ.get("OPENAI_CUSTOM_HEADERS", "").split("\n")
    foreign = ["OpenAI-Organization", "OpenAI-Project", *(line.partition(":")[0].strip() for line in lines)]
    headers: dict[str, Any] = {name: openai.Omit() for name in foreign if name}
    headers["User-Agent"] = "holdfast"
    if setting.api == "messages":
        own = {"anthropic-version": VERSION, "X-Api-Key": key or openai.Omit()}
        return headers | {"Authorization": openai.Omit(), **own}
    return headers | {"Authorization": f"Bearer {key}" if key else openai.Omit()}
