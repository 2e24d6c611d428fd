"""Settings of a worker or of the CLI, from environment variables. Temporal's own `TEMPORAL_*` are not among them."""

from collections.abc import Mapping
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
)

from holdfast.errors import SettingsError
from holdfast.runtime.config.encryption_keys import parse_keys, split_plain


def _reference(text: str) -> str:
    module, colon, attribute = text.partition(":")
    if not (module and colon and attribute):
        raise ValueError("write it as package.module:attribute")
    return text


def _url_of(*schemes: str) -> AfterValidator:
    def check(text: str) -> str:
        if urlsplit(text).scheme not in schemes:
            raise ValueError(f"it must start with {' or '.join(f'{scheme}://' for scheme in schemes)}")
        return text

    return AfterValidator(check)


def _keys(setting: SecretStr) -> SecretStr:
    parse_keys(setting.get_secret_value())
    return setting


def _encryption_keys(setting: SecretStr) -> SecretStr:
    parse_keys(split_plain(setting.get_secret_value())[0])
    return setting


def _upper(text: str) -> str:
    return text.upper()


def _lower(text: str) -> str:
    return text.lower()


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


ANSWER_SECONDS = 8.0
"""How long a worker may take to answer. Longer than Temporal keeps a query for the worker that has the run cached
(`holdfast.runtime.worker.construction.STICKY_TIMEOUT`), so that after a kill another worker gets its turn."""

EXAMPLE = "examples.release.catalog:catalog"
EXAMPLE_SCRIPT = "examples.release.script:script"

_SECRET = frozenset(
    {
        "database_url",
        "encryption_keys",
        "fleet_keys",
        "openai_api_key",
        "slack_signing_secret",
        "webhook_secret",
        "webhooks",
    }
)
"""Fields whose values no error shows."""

Reference = Annotated[str, AfterValidator(_reference)]
NonEmpty = Annotated[str, StringConstraints(min_length=1)]


class Settings(BaseModel):
    """What the environment says; each field names its variable. Secrets do not show in `repr` or in errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    home: Annotated[Path, AfterValidator(_absolute)]
    """`HOLDFAST_HOME`: the state folder; without it, `.holdfast` beside `worker.py` and `starter.py`."""
    catalog: Reference = EXAMPLE
    """`HOLDFAST_CATALOG`: the agents and tools that the worker offers, as `package.module:attribute`."""
    policy: Annotated[Path, AfterValidator(_absolute)] | None = None
    """`HOLDFAST_POLICY`: a file whose policy takes the place of every agent's own; None for those of the catalog."""
    script: Reference | None = None
    """`HOLDFAST_SCRIPT`: what the scripted LLM answers, as `package.module:attribute`; None for the catalog's own."""
    llm: NonEmpty = "gpt-5-mini"
    """`HOLDFAST_LLM`: the language model of agents that do not name one."""
    embeddings: NonEmpty | None = None
    """`HOLDFAST_EMBEDDINGS`: the embedding model by which memories are found, too, at the language model's endpoint:
    `text-embedding-3-small`, for instance. None to find them by words alone."""
    embedding_dimensions: Annotated[int, Field(ge=1, le=4_000)] = 512
    """`HOLDFAST_EMBEDDING_DIMENSIONS`: how many numbers its vectors are to have."""
    task_queue: NonEmpty = "holdfast"
    """`HOLDFAST_TASK_QUEUE`: the Temporal task queue that workers listen on."""
    database_url: Annotated[str, _url_of("postgresql", "postgres")] | None = Field(default=None, repr=False)
    """`DATABASE_URL`: PostgreSQL, as a libpq URL; None without one."""
    artifacts: Annotated[Path, AfterValidator(_absolute)] | None = None
    """`HOLDFAST_ARTIFACTS`: a folder, or a mounted bucket, for what is too long for the log; None for PostgreSQL."""
    openai_api_key: SecretStr | None = None
    """`OPENAI_API_KEY`: None without one."""
    openai_base_url: Annotated[str, _url_of("https", "http")] | None = None
    """`OPENAI_BASE_URL`: an OpenAI-compatible endpoint; None for the client's default."""
    encryption_keys: Annotated[SecretStr, AfterValidator(_encryption_keys)] | None = None
    """`HOLDFAST_ENCRYPTION_KEYS`: `id1:BASE64,id0:BASE64`; the first encrypts what goes to Temporal, all decrypt. None
    to encrypt nothing. `plain` as the last entry: plain text of runs that began before is still taken."""
    fleet_keys: Annotated[SecretStr, AfterValidator(_keys)] | None = None
    """`HOLDFAST_FLEET_KEYS`: `id1:BASE64,id0:BASE64`, the same on every worker, gateway and CLI that starts runs; the
    first seals what only our own processes may say, all verify. `worker.py --dev` makes one in the state folder."""
    plain_starts: bool = True
    """`HOLDFAST_PLAIN_STARTS`: take runs that were started without a fleet key, from the Web UI or the `temporal`
    command: with a task and an agent's name alone. `false` refuses them."""
    takeover: bool = True
    """`HOLDFAST_TAKEOVER`: end the claims of workers of this machine that were killed at once, instead of waiting for
    Temporal's time-outs."""
    ui_url: Annotated[str, _url_of("https", "http")] | None = None
    """`HOLDFAST_UI_URL`: Temporal's Web UI, for links; not needed with the embedded stack or Temporal Cloud."""
    key: Annotated[Path, AfterValidator(_absolute)] | None = None
    """`HOLDFAST_KEY`: the file of the private key that the CLI signs decisions with; None to send them unsigned."""
    by: NonEmpty | None = None
    """`HOLDFAST_BY`: the name that the CLI decides and speaks under; None for the login name."""
    gateway_tokens: Annotated[Path, AfterValidator(_absolute)] | None = None
    """`HOLDFAST_GATEWAY_TOKENS`: a YAML file of who may use the gateway; None for the policy's approvers alone."""
    gateway_key: Annotated[Path, AfterValidator(_absolute)] | None = None
    """`HOLDFAST_GATEWAY_KEY`: the file of the private key with which the gateway vouches for who decides."""
    gateway_host: NonEmpty = "127.0.0.1"
    """`HOLDFAST_GATEWAY_HOST`: the address that the gateway listens on."""
    gateway_port: Annotated[int, Field(ge=0, le=65_535)] = 8470
    """`HOLDFAST_GATEWAY_PORT`: its port; 0 for any that is free."""
    gateway_url: Annotated[str, _url_of("https", "http")] | None = None
    """`HOLDFAST_GATEWAY_URL`: where others reach the gateway, for notices."""
    slack_signing_secret: SecretStr | None = None
    """`HOLDFAST_SLACK_SIGNING_SECRET`: with it, the gateway takes decisions from buttons in Slack."""
    webhooks: SecretStr | None = None
    """`HOLDFAST_WEBHOOKS`: whom the worker tells of requests and endings: URLs with commas between, or a YAML file."""
    webhook_secret: SecretStr | None = None
    """`HOLDFAST_WEBHOOK_SECRET`: signs what they are told; None to send it unsigned."""
    webhooks_insecure: bool = False
    """`HOLDFAST_WEBHOOKS_INSECURE`: also tell receivers at plain http:// beyond this machine."""
    answer_seconds: Annotated[float, Field(gt=0, le=600)] = ANSWER_SECONDS
    """`HOLDFAST_ANSWER_SECONDS`: how long the CLI waits for a worker to answer."""
    log_level: Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], BeforeValidator(_upper)] = "INFO"
    """`HOLDFAST_LOG_LEVEL`: the least severe level that is logged, in any case."""
    log_format: Annotated[Literal["console", "json"], BeforeValidator(_lower)] = "console"
    """`HOLDFAST_LOG_FORMAT`: `console` for people, `json` for collectors, in any case."""

    @property
    def scripted(self) -> bool:
        """Whether the scripted LLM takes the place of a language model: no key is set and no endpoint named."""
        return self.openai_api_key is None and self.openai_base_url is None

    @property
    def embedding_model(self) -> str | None:
        """The embedding model to ask for; None to find by words alone."""
        return "scripted" if self.embeddings and self.scripted else self.embeddings

    @property
    def offers_example(self) -> bool:
        """Whether the catalog is the one that comes with Holdfast, which has a script of its own."""
        return self.catalog == EXAMPLE

    @classmethod
    def from_env(cls, environ: Mapping[str, str], *, root: Path) -> Self:
        """Read the settings from environment variables; an empty or blank variable counts as absent.

        Args:
            environ: usually `os.environ`.
            root: the folder of `worker.py` and `starter.py`.

        Raises:
            SettingsError: a value cannot be used; all such values are named, secret ones not shown.
        """
        given = {field: text for field, variable in variables().items() if (text := environ.get(variable, "").strip())}
        try:
            return cls.model_validate({"home": root / ".holdfast", **given})
        except ValidationError as error:
            # The cause is dropped: pydantic's error holds the values, secret ones too.
            raise SettingsError(_explain(error, given)) from None


def variables() -> dict[str, str]:
    """Return the environment variable of each field."""
    foreign = {"database_url", "openai_api_key", "openai_base_url"}
    return {name: name.upper() if name in foreign else f"HOLDFAST_{name.upper()}" for name in Settings.model_fields}


def _explain(error: ValidationError, given: Mapping[str, str]) -> str:
    lines = []
    for problem in error.errors(include_url=False):
        field = str(problem["loc"][0])
        words = problem["msg"].removeprefix("Value error, ")
        words = words[0].lower() + words[1:]
        shown = "" if field in _SECRET else f"={given[field]}"
        lines.append(f"{variables()[field]}{shown} cannot be used: {words}.")
    return "\n".join([*lines, "Correct the variable, or unset it for the default."])
