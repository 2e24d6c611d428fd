"""Settings of the worker, the gateway and the CLI, by their variables. Temporal's client reads `TEMPORAL_*`.

`project` completes the environment from the files of a project folder.
"""

import difflib
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
    ValidationError,
    model_validator,
)

from holdfast.config.collectors import exposes, listen_address, metrics_url, read_headers, traces_url
from holdfast.config.encryption_keys import parse_keys, split_plain
from holdfast.config.endpoint import api_key, base_url, pasted
from holdfast.config.llm_endpoints import EndpointSetting, read_endpoints
from holdfast.core.base.retention import Retention, read_age, read_rules
from holdfast.core.llm.names import is_reference, order_problem
from holdfast.core.nodes import check_name, read_labels
from holdfast.errors import SettingsError


def _reference(text: str) -> str:
    module, colon, attribute = text.partition(":")
    if not (module and colon and attribute):
        raise ValueError("write it as package.module:attribute")
    return text


def _url_of(*schemes: str) -> AfterValidator:
    def check(text: str) -> str:
        if urlsplit(text).scheme not in schemes:
            raise ValueError(f"the URL must start with {' or '.join(f'{scheme}://' for scheme in schemes)}")
        return text

    return AfterValidator(check)


def _keys(setting: SecretStr) -> SecretStr:
    parse_keys(setting.get_secret_value())
    return setting


def _encryption_keys(setting: SecretStr) -> SecretStr:
    parse_keys(split_plain(setting.get_secret_value())[0])
    return setting


def _api_key(setting: SecretStr) -> SecretStr:
    return SecretStr(api_key(setting.get_secret_value()))


def _llms(text: str) -> str:
    names = _names(text)
    if why := order_problem(names):
        raise ValueError(why)
    return ",".join(names)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _upper(text: str) -> str:
    return text.upper()


def _lower(text: str) -> str:
    return text.lower()


def _rules(text: str) -> str:
    read_rules(text.replace(",", " ").split())
    return text


def _interval(text: str) -> str:
    if read_age(text) < timedelta(hours=1):
        raise ValueError("prune at most once an hour")
    return text


def _prefixes(given: object) -> object:
    return tuple(filter(None, map(str.strip, given.split(",")))) if isinstance(given, str) else given


def _labels(text: str) -> str:
    read_labels(text)
    return text


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


ANSWER_SECONDS = 8.0
"""How long the CLI waits for a worker's answer. It exceeds the time that Temporal holds a query for the worker that
has the run cached (`STICKY_TIMEOUT` in `holdfast.worker.construction`), so that another worker can answer after
a kill."""

EXAMPLE = "holdfast.examples.release.catalog:catalog"
EXAMPLE_SCRIPT = "holdfast.examples.release.script:script"

_SECRET = frozenset(
    {
        "anchors",
        "anthropic_api_key",
        "database_url",
        "encryption_keys",
        "fleet_keys",
        "llm_endpoints",
        "openai_api_key",
        "openid_secret",
        "slack_signing_secret",
        "stream_url",
        "telemetry_headers",
        "webhook_secret",
        "webhooks",
    }
)
"""Fields whose values never appear in errors."""

_PASTED = ("openai_api_key", "openai_base_url", "anthropic_api_key", "anthropic_base_url")
"""Fields whose values people paste."""

_PREFIX = "HOLDFAST_"
_EXAMPLES = "HOLDFAST_EXAMPLE_"
"""The prefix of variables that only the examples' tools read."""

Reference = Annotated[str, AfterValidator(_reference)]
NonEmpty = Annotated[str, StringConstraints(min_length=1)]


class Settings(BaseModel):
    """The configuration from the environment; each field names its variable. `repr` and errors never show secrets."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    home: Annotated[Path, AfterValidator(_absolute)]
    """`HOLDFAST_HOME`: the state folder. Default: `.holdfast` in the project folder; without a project, beside
    `worker.py` in a checkout, or else in the current folder."""
    catalog: Reference = EXAMPLE
    """`HOLDFAST_CATALOG`: the agents and tools that the worker offers, as `package.module:attribute`."""
    policy: Annotated[Path, AfterValidator(_absolute)] | None = None
    """`HOLDFAST_POLICY`: a policy file that replaces the policies of all agents. Default: the catalog's policies."""
    script: Reference | None = None
    """`HOLDFAST_SCRIPT`: the scripted LLM's answers, as `package.module:attribute`. Default: the catalog's script."""
    llm: Annotated[str, AfterValidator(_llms)] = "gpt-5-mini"
    """`HOLDFAST_LLM`: the language model of agents that do not name one: `gpt-5-mini`, `anthropic/claude-sonnet-5`.
    Several, separated by commas, are a fallback order."""
    llm_endpoints: Annotated[dict[str, EndpointSetting], BeforeValidator(read_endpoints)] = {}
    """`HOLDFAST_LLM_ENDPOINTS`: further endpoints, as JSON: `{"router": {"api": "chat", "base_url":
    "https://router.example/v1", "key": "ROUTER_API_KEY"}}`. In `holdfast.toml`: `[llm.router]`."""
    embeddings: NonEmpty | None = None
    """`HOLDFAST_EMBEDDINGS`: the embedding model for memory search, at the language model's endpoint, such as
    `text-embedding-3-small`. Default: search by words only."""
    embedding_dimensions: Annotated[int, Field(ge=1, le=4_000)] = 512
    """`HOLDFAST_EMBEDDING_DIMENSIONS`: the number of dimensions of the embedding vectors."""
    task_queue: NonEmpty = "holdfast"
    """`HOLDFAST_TASK_QUEUE`: the Temporal task queue that workers poll."""
    database_url: Annotated[str, _url_of("postgresql", "postgres")] | None = Field(default=None, repr=False)
    """`DATABASE_URL`: the PostgreSQL database, as a libpq URL. Required without the embedded stack."""
    streams: bool = True
    """`HOLDFAST_STREAMS`: workers stream replies through PostgreSQL while the language model writes them, for `watch`,
    programs and the gateway. `false` shows each reply when it is complete."""
    stream_url: Annotated[str, _url_of("postgresql", "postgres")] | None = Field(default=None, repr=False)
    """`HOLDFAST_STREAM_URL`: the same database for streams, if `DATABASE_URL` leads to a pooler such as PgBouncer in
    transaction mode, which loses notifications. Default: `DATABASE_URL`."""
    artifacts: Annotated[Path, AfterValidator(_absolute)] | None = None
    """`HOLDFAST_ARTIFACTS`: a folder or mounted bucket for content too long for the log. Default: PostgreSQL."""
    openai_api_key: Annotated[SecretStr, AfterValidator(_api_key)] | None = None
    """`OPENAI_API_KEY`: the API key of the language model's endpoint."""
    openai_base_url: Annotated[str, AfterValidator(base_url)] | None = None
    """`OPENAI_BASE_URL`: an OpenAI-compatible endpoint. Default: the OpenAI client's own."""
    anthropic_api_key: Annotated[SecretStr, AfterValidator(_api_key)] | None = None
    """`ANTHROPIC_API_KEY`: the API key of the endpoint `anthropic`."""
    anthropic_base_url: Annotated[str, AfterValidator(base_url)] | None = None
    """`ANTHROPIC_BASE_URL`: its address. Default: `https://api.anthropic.com`."""
    encryption_keys: Annotated[SecretStr, AfterValidator(_encryption_keys)] | None = None
    """`HOLDFAST_ENCRYPTION_KEYS`: `id1:BASE64,id0:BASE64`. The first key encrypts what is sent to Temporal; every key
    decrypts. Default: no encryption. `plain` as the last entry still accepts plain text from runs that began before
    encryption was switched on."""
    fleet_keys: Annotated[SecretStr, AfterValidator(_keys)] | None = None
    """`HOLDFAST_FLEET_KEYS`: `id1:BASE64,id0:BASE64`, the same on every worker, gateway and CLI that starts runs. The
    first key seals messages that only our own processes may send; every key verifies. `worker.py --dev` creates a key
    in the state folder."""
    plain_starts: bool = True
    """`HOLDFAST_PLAIN_STARTS`: accept runs started without a fleet key, from the Web UI or the `temporal` command,
    with only a task and an agent's name. `false` refuses them."""
    takeover: bool = True
    """`HOLDFAST_TAKEOVER`: when a worker on this machine is killed, end its claims at once instead of waiting for
    Temporal's time-outs."""
    prune: Annotated[str, AfterValidator(_rules)] | None = None
    """`HOLDFAST_PRUNE`: the workers remove ended threads from the permanent record by these rules, such as
    `finished=90d failed=1y`. Default: only `prune` does."""
    prune_every: Annotated[str, AfterValidator(_interval)] = "24h"
    """`HOLDFAST_PRUNE_EVERY`: how often they do so: `1h`, `24h`, `7d`."""
    ui_url: Annotated[str, _url_of("https", "http")] | None = None
    """`HOLDFAST_UI_URL`: Temporal's Web UI, for links. Not needed with the embedded stack or Temporal Cloud."""
    key: Annotated[Path, AfterValidator(_absolute)] | None = None
    """`HOLDFAST_KEY`: the file of the private key with which the CLI signs decisions. Default: unsigned decisions."""
    by: NonEmpty | None = None
    """`HOLDFAST_BY`: the name under which the CLI sends decisions and messages. Default: the login name."""
    gateway_tokens: Annotated[Path, AfterValidator(_absolute)] | None = None
    """`HOLDFAST_GATEWAY_TOKENS`: a YAML file of callers and their tokens. Default: the policy's approvers only."""
    gateway_key: Annotated[Path, AfterValidator(_absolute)] | None = None
    """`HOLDFAST_GATEWAY_KEY`: the file of the private key with which the gateway vouches for approvers."""
    gateway_host: NonEmpty = "127.0.0.1"
    """`HOLDFAST_GATEWAY_HOST`: the address on which the gateway listens."""
    gateway_port: Annotated[int, Field(ge=0, le=65_535)] = 8470
    """`HOLDFAST_GATEWAY_PORT`: the port on which the gateway listens; 0 for any free port."""
    gateway_url: Annotated[str, _url_of("https", "http")] | None = None
    """`HOLDFAST_GATEWAY_URL`: the gateway's public URL, at which browsers reach the page; for links in notifications
    and in Temporal's Web UI, too."""
    openid_secret: SecretStr | None = None
    """`HOLDFAST_OPENID_SECRET`: the gateway's client secret at the OpenID Connect provider that the file of
    `HOLDFAST_GATEWAY_TOKENS` names. Default: a public client."""
    mcp_agents: NonEmpty | None = None
    """`HOLDFAST_MCP_AGENTS`: the agents that the gateway exposes to MCP clients at `/mcp`, separated by commas.
    Default: none."""
    slack_signing_secret: SecretStr | None = None
    """`HOLDFAST_SLACK_SIGNING_SECRET`: lets the gateway accept decisions from Slack buttons."""
    webhooks: SecretStr | None = None
    """`HOLDFAST_WEBHOOKS`: whom the worker notifies of approval requests and ended runs: comma-separated URLs, or a
    YAML file."""
    webhook_secret: SecretStr | None = None
    """`HOLDFAST_WEBHOOK_SECRET`: signs notifications. Default: unsigned notifications."""
    webhooks_insecure: bool = False
    """`HOLDFAST_WEBHOOKS_INSECURE`: allow webhooks over plain http:// to other machines."""
    anchors: SecretStr | None = None
    """`HOLDFAST_ANCHORS`: where workers send seals of the permanent record: comma-separated folders and `https://`
    URLs outside the database; `embedded` is the folder `anchors` in the state folder; `off` seals nothing. `verify` and
    exports read the folders. Default: `embedded` with the embedded database, else `off`."""
    node_key: Annotated[Path, AfterValidator(_absolute)] | None = None
    """`HOLDFAST_NODE_KEY`: the file of the private key with which this machine's workers sign seals, and the results of
    LLM and tool calls; made if it is missing. Default: `node.key` in the state folder."""
    node: Annotated[str, AfterValidator(check_name)] | None = None
    """`HOLDFAST_NODE`: this node's name, by which trust scopes and constraints select it. Default: the host's name."""
    node_labels: Annotated[str, AfterValidator(_labels)] = ""
    """`HOLDFAST_NODE_LABELS`: this node's labels, by which trust scopes select it, such as `region=eu,gpu=yes`."""
    tenants: Annotated[tuple[str, ...], BeforeValidator(_prefixes)] = ()
    """`HOLDFAST_TENANTS`: the prefixes of thread ids by which costs are summed, one for each tenant, such as
    `acme-,globex-`. Default: none."""
    traces_endpoint: Annotated[str, AfterValidator(traces_url)] | None = None
    """`HOLDFAST_TRACES_ENDPOINT`: workers export a trace of each activation of a run to this OpenTelemetry collector,
    over OTLP/HTTP: `http://collector:4318`. Default: no traces."""
    traces_content: bool = False
    """`HOLDFAST_TRACES_CONTENT`: record messages, results, reasons and people's names in traces, too."""
    metrics_listen: Annotated[str, AfterValidator(listen_address)] | None = None
    """`HOLDFAST_METRICS_LISTEN`: the address at which a worker serves `/metrics` to Prometheus, such as
    `127.0.0.1:9464`; anybody who reaches it can read them. Default: no metrics."""
    metrics_endpoint: Annotated[str, AfterValidator(metrics_url)] | None = None
    """`HOLDFAST_METRICS_ENDPOINT`: the OpenTelemetry collector to which a worker sends metrics instead, over
    OTLP/HTTP."""
    telemetry_headers: Annotated[dict[str, SecretStr], BeforeValidator(read_headers)] = {}
    """`HOLDFAST_TELEMETRY_HEADERS`: headers for collectors, each with the variable that holds its value:
    `Authorization=COLLECTOR_TOKEN`."""
    answer_seconds: Annotated[float, Field(gt=0, le=600)] = ANSWER_SECONDS
    """`HOLDFAST_ANSWER_SECONDS`: how long the CLI waits for a worker's answer."""
    log_level: Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], BeforeValidator(_upper)] = "INFO"
    """`HOLDFAST_LOG_LEVEL`: the least severe level to log; upper or lower case."""
    log_format: Annotated[Literal["console", "json"], BeforeValidator(_lower)] = "console"
    """`HOLDFAST_LOG_FORMAT`: `console` for people, `json` for log collectors; upper or lower case."""

    @model_validator(mode="after")
    def _check_collectors(self) -> Self:
        if self.metrics_listen and self.metrics_endpoint:
            raise ValueError(
                "HOLDFAST_METRICS_LISTEN and HOLDFAST_METRICS_ENDPOINT are both set: a worker has one exporter"
            )
        if any(exposes(each, self.telemetry_headers) for each in (self.traces_endpoint, self.metrics_endpoint)):
            raise ValueError(
                "HOLDFAST_TELEMETRY_HEADERS would be sent to another machine in plain text: use an https:// endpoint"
            )
        return self

    @property
    def retention(self) -> Retention | None:
        """The rules by which workers prune; None for none."""
        return read_rules(self.prune.replace(",", " ").split()) if self.prune else None

    @property
    def pruning_interval(self) -> timedelta:
        """The time from the start of one sweep to the start of the next."""
        return read_age(self.prune_every)

    @property
    def scripted(self) -> bool:
        """Whether the scripted LLM replaces the default endpoint, because neither its key nor its address is set."""
        return self.openai_api_key is None and self.openai_base_url is None

    @property
    def default_llm(self) -> str | tuple[str, ...]:
        """The LLM of agents that name none, or several in order; `scripted` if the scripted LLM replaces them."""
        names = _names(self.llm)
        if self.scripted and not any(is_reference(name, self.own_endpoints) for name in names):
            return "scripted"
        return names[0] if len(names) == 1 else tuple(names)

    @property
    def own_endpoints(self) -> frozenset[str]:
        """The configured endpoints besides OpenAI's or the one in its place."""
        anthropic = ["anthropic"] if self.anthropic_api_key or self.anthropic_base_url else []
        return frozenset([*anthropic, *self.llm_endpoints])

    @property
    def embedding_model(self) -> str | None:
        """The embedding model to request; None to search by words only."""
        return "scripted" if self.embeddings and self.scripted else self.embeddings

    @property
    def offers_example(self) -> bool:
        """Whether the catalog is the example that comes with Holdfast, which has its own script."""
        return self.catalog == EXAMPLE

    @classmethod
    def from_env(
        cls, environ: Mapping[str, str], *, root: Path, files: Mapping[Path, tuple[str, ...]] | None = None
    ) -> Self:
        """Read the settings from environment variables; an empty or blank variable counts as unset.

        Args:
            environ: `Project.environ`, or `os.environ`.
            root: The folder that holds `.holdfast` by default (`Project.root`).
            files: The files that some variables come from (`Project.files`), for errors.

        Raises:
            SettingsError: Some values are invalid; the error names all of them, and hides the secret ones.
        """
        texts = {field: environ.get(variable, "").strip() for field, variable in variables().items()}
        texts |= {field: pasted(texts[field]) for field in _PASTED}
        values = {field: text for field, text in texts.items() if text}
        try:
            return cls.model_validate({"home": root / ".holdfast", **values}, context=environ)
        except ValidationError as error:
            # Without its cause: pydantic's error contains the values, including secrets.
            raise SettingsError(_explain(error, values, files or {})) from None


def variables() -> dict[str, str]:
    """Return the environment variable of each field."""
    foreign = {"database_url", *_PASTED}
    return {name: name.upper() if name in foreign else f"HOLDFAST_{name.upper()}" for name in Settings.model_fields}


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Return a sentence for each variable with our prefix that is not a setting, and so has no effect.

    Args:
        environ: The environment.
    """
    known = variables().values()
    return [
        f"There is no setting {name}.{nearest(name, known)}"
        for name in sorted(environ)
        if name.startswith(_PREFIX) and not name.startswith(_EXAMPLES) and name not in known
    ]


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a sentence that suggests the nearest known name; empty if none is near."""
    names = {each.removeprefix(_PREFIX): each for each in known}  # the common prefix must not make names look similar
    near = difflib.get_close_matches(name.removeprefix(_PREFIX), names, n=1)
    return f" Did you mean {names[near[0]]}?" if near else ""


def _explain(error: ValidationError, values: Mapping[str, str], files: Mapping[Path, tuple[str, ...]]) -> str:
    sources = {variable: path for path, names in files.items() for variable in names}
    lines, sources_named = [], set()
    for problem in error.errors(include_url=False):
        if not problem["loc"]:  # of several settings together
            lines.append(f"{problem['msg'].removeprefix('Value error, ')}.")
            sources_named.add("variable")
            continue
        field = str(problem["loc"][0])
        variable = variables()[field]
        message = problem["msg"].removeprefix("Value error, ")
        message = message[0].lower() + message[1:]
        value = "" if field in _SECRET else f"={values[field]}"
        source = f", set in {sources[variable]}," if variable in sources else ""
        lines.append(f"{variable}{value}{source} is not valid: {message}.")
        sources_named.add("file" if source else "variable")
    return "\n".join([*lines, f"Correct the {' or the '.join(sorted(sources_named))}, or unset it to use the default."])
