"""A tool gets the secrets that it declares, and no text reveals them."""

import base64
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Found, ToolContext, tool
from holdfast.config.own_secrets import own_secrets
from holdfast.config.settings import Settings
from holdfast.core.agents.required_secrets import read_secrets
from holdfast.core.tools.decorator import bind
from holdfast.core.tools.secrets import MIN_CHARS, NO_SECRETS, SecretNotDeclared, Secrets
from holdfast.errors import SettingsError, ToolSignatureError

KEY = "sk_live_4711"


@tool(effect="read", secrets=("STRIPE_KEY",))
def charge(cents: int, context: ToolContext) -> str:
    """Charge a customer."""
    return f"{cents} with {context.secret('STRIPE_KEY')}"


@tool(effect="read", secrets=("STRIPE_KEY", "BANK_PIN"))
def refund(context: ToolContext) -> str:
    """Refund a customer."""
    return context.secret("BANK_PIN")


def context(secrets: Secrets = NO_SECRETS) -> ToolContext:
    """Return the context of a call."""
    return ToolContext(thread="t", workspace=Path("/w"), key="k", attempt=1, secrets=secrets)


def test_a_tool_gets_what_it_declares() -> None:
    """The value is available when it is used; neither the LLM nor the recorded spec contains it."""
    secrets = read_secrets([charge], {"STRIPE_KEY": KEY, "OTHER": "x" * 20})
    tool_context = context(secrets.only(charge.secrets))
    assert charge.function(**bind(charge.function, {"cents": 5}, tool_context)) == f"5 with {KEY}"
    assert list(charge.spec.parameters["properties"]) == ["cents"]
    assert "STRIPE_KEY" not in charge.spec.model_dump_json()


def test_a_tool_gets_nothing_that_it_does_not_declare() -> None:
    """The environment and the other tools' secrets have no effect; the error names what to declare."""
    secrets = read_secrets([charge, refund], {"STRIPE_KEY": KEY, "BANK_PIN": "1234", "HOME": "/root"})
    tool_context = context(secrets.only(charge.secrets))
    for name in ("BANK_PIN", "HOME"):
        with pytest.raises(SecretNotDeclared, match=rf'@tool\(secrets=\("{name}",\)\)'):
            tool_context.secret(name)


def test_every_missing_secret_is_named_with_its_tools() -> None:
    """One error names all of them; a blank variable counts as missing."""
    with pytest.raises(SettingsError) as caught:
        read_secrets([charge, refund], {"STRIPE_KEY": "  "})
    lines = str(caught.value).splitlines()
    assert lines[:2] == [
        "STRIPE_KEY is not set, and tool 'charge', tool 'refund' need it.",
        "BANK_PIN is not set, and tool 'refund' needs it.",
    ]


def test_secrets_show_names_only() -> None:
    """Neither the context nor its secrets reveal a value in `repr` or `str`."""
    tool_context = context(Secrets({"STRIPE_KEY": KEY}))
    assert KEY not in f"{tool_context!r} {tool_context} {tool_context.secrets!r} {tool_context.secrets}"
    assert "STRIPE_KEY" in repr(tool_context.secrets)


@pytest.mark.parametrize("secrets", ["STRIPE_KEY", ("",), ("STRIPE-KEY",), (7,)])
def test_a_declaration_that_names_no_variables_is_rejected(secrets: Any) -> None:
    """A string in place of a tuple would be read as single letters."""
    with pytest.raises(ToolSignatureError, match="write a tuple of names"):

        @tool(secrets=secrets)
        def act(context: ToolContext) -> None:
            """Act."""


def test_a_tool_with_secrets_needs_a_context() -> None:
    """Secrets are read from the context of the function or of its check."""
    with pytest.raises(ToolSignatureError, match="add `context: ToolContext`"):

        @tool(secrets=("STRIPE_KEY",))
        def act() -> None:
            """Act."""

    def look(context: ToolContext) -> Found:
        return Found(context.secret("STRIPE_KEY"))

    @tool(effect="verifiable", check=look, secrets=("STRIPE_KEY",))
    def pay() -> None:
        """Pay."""

    assert pay.secrets == ("STRIPE_KEY",)


@given(
    value=st.text(st.characters(codec="utf-8"), min_size=MIN_CHARS).filter(lambda text: len(text.strip()) >= MIN_CHARS),
    before=st.text(max_size=5),
    after=st.text(max_size=5),
)
def test_a_value_is_redacted_in_every_encoding(value: str, before: str, after: str) -> None:
    """Plain, as JSON, as `repr` or in a URL, the value is replaced by `[secret NAME]`."""
    redact = Secrets({"STRIPE_KEY": value}).redact
    secret = value.strip()
    for form in (
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        repr(secret)[1:-1],
        json.dumps(repr(secret)[1:-1])[1:-1],
        json.dumps(json.dumps(secret))[3:-3],
        quote(secret, safe=""),
    ):
        assert secret not in redact(f"<{form}>")
        assert redact(f"<{form}>") == "<[secret STRIPE_KEY]>"
    assert "[secret STRIPE_KEY]" in redact(before + secret + after)


def test_short_values_are_not_redacted() -> None:
    """A pin of four digits would match parts of other numbers."""
    secrets = Secrets({"BANK_PIN": "1234567", "STRIPE_KEY": "12345678"})
    assert secrets.redact("1234567, and 12345678") == "1234567, and [secret STRIPE_KEY]"


def test_overlapping_values_are_redacted() -> None:
    """The longest value is replaced first, and both names are correct."""
    secrets = Secrets({"SHORT": "abcdefgh"}) | Secrets({"LONG": "abcdefgh-ijkl"})
    assert secrets.redact("abcdefgh-ijkl abcdefgh") == "[secret LONG] [secret SHORT]"


def test_a_process_redacts_its_own_keys() -> None:
    """The LLM's key, the database's password and encryption keys are redacted; a plain word only within its URL."""
    key = "A" * 43 + "="
    settings = Settings.from_env(
        {
            "OPENAI_API_KEY": "sk-hunter2-1",
            "DATABASE_URL": "postgresql://ann:hunter2%2F22@db/runs",
            "HOLDFAST_ENCRYPTION_KEYS": f"k1:{key}",
        },
        root=Path("/srv"),
    )
    redacted = own_secrets(settings).redact(f"sk-hunter2-1 postgresql://ann:hunter2%2F22@db/runs hunter2/22 {key}")
    assert redacted == (
        "[secret OPENAI_API_KEY] postgresql://[secret DATABASE_URL]db/runs [secret DATABASE_URL] "
        "[secret HOLDFAST_ENCRYPTION_KEYS]"
    )
    example = Settings.from_env({"DATABASE_URL": "postgresql://holdfast:holdfast@db/holdfast"}, root=Path("/srv"))
    redact = own_secrets(example).redact
    assert redact("holdfast.worker: postgresql://holdfast:holdfast@db/holdfast") == (
        "holdfast.worker: postgresql://[secret DATABASE_URL]db/holdfast"
    )


def redact_in(environ: dict[str, str], text: str) -> str:
    """Return a text as a process with that environment would record it."""
    return own_secrets(Settings.from_env(environ, root=Path("/srv")), environ).redact(text)


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("PGPASSWORD", "pg-hunter2-1", "pg-hunter2-1"),
        ("TEMPORAL_API_KEY", "tmprl-key-4711", "tmprl-key-4711"),
        ("TEMPORAL_GRPC_META_AUTHORIZATION", "Bearer tmprl-token-1", "tmprl-token-1"),
        ("HTTPS_PROXY", "http://ann:proxy-pw-1@proxy:3128", "proxy-pw-1"),
        ("https_proxy", "http://ann:proxy%2Dpw-1@proxy:3128", "proxy-pw-1"),
        ("http_proxy", "ann:proxy-pw-1@proxy:3128", "proxy-pw-1"),
        ("ALL_PROXY", "socks5://ann:proxy-pw-1@proxy:1080", "proxy-pw-1"),
        ("OPENAI_BASE_URL", "https://ann:llm-pw-11@llm/v1", "llm-pw-11"),
        ("HOLDFAST_WEBHOOK_SECRET", "hook-secret-1", "hook-secret-1"),
        ("SOME_SERVICE_TOKEN", "some-token-1", "some-token-1"),
        ("AWS_SECRET_ACCESS_KEY", "aws-secret-1", "aws-secret-1"),
    ],
)
def test_every_secret_of_the_environment_is_redacted(name: str, value: str, secret: str) -> None:
    """Secrets in variables of any program are redacted, plain and in base64."""
    for text in (secret, base64.b64encode(secret.encode()).decode()):
        assert secret not in (redacted := redact_in({name: value}, f"<{text}>"))
        assert redacted.startswith("<[secret "), redacted


@pytest.mark.parametrize("name", ["HOLDFAST_FLEET_KEYS", "HOLDFAST_ENCRYPTION_KEYS"])
def test_every_key_is_redacted_in_every_spelling(name: str) -> None:
    """A key is redacted in base64 of either alphabet, with or without padding, and in hex."""
    secret = bytes(range(200, 232))
    text = base64.b64encode(secret).decode()
    environ = {name: f"new:{base64.b64encode(bytes(32)).decode()},old:{text}"}
    for spelling in (text, text.rstrip("="), base64.urlsafe_b64encode(secret).decode(), secret.hex()):
        assert f"<[secret {name}]" == redact_in(environ, f"<{spelling}>").rstrip(">=")


def test_secrets_in_files_are_redacted(tmp_path: Path) -> None:
    """TLS keys are redacted line by line, signing keys and password files too; their paths stay readable."""
    lines = ["-----BEGIN PRIVATE KEY-----", "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49", "AwEHBG0wawIBAQQg4711"]
    pem = "\n".join([*lines, "-----END PRIVATE KEY-----", ""])
    (tmp_path / "tls.key").write_text(pem)
    (tmp_path / "sign.key").write_text("ed25519:cHJpdmF0ZSBrZXkgb2YgYWxpY2U=\n")
    (tmp_path / "pgpass").write_text("# mine\ndb:5432:runs:ann:pass\\:word-1\n")
    environ = {
        "PGSSLKEY": str(tmp_path / "tls.key"),
        "TEMPORAL_TLS_CLIENT_KEY_DATA": pem.replace("MIGH", "TEMP"),
        "HOLDFAST_KEY": str(tmp_path / "sign.key"),
        "PGPASSFILE": str(tmp_path / "pgpass"),
    }
    redacted = redact_in(
        environ, f"{pem} TEMPAgEAMBMGByqGSM49AgEGCCqGSM49 ed25519:cHJpdmF0ZSBrZXkgb2YgYWxpY2U= pass:word-1"
    )
    for secret in ("AgEAMBMGByqGSM49", "AwEHBG0wawIBAQQg4711", "cHJpdmF0ZSBrZXkgb2Y", "pass:word-1"):
        assert secret not in redacted
    assert redact_in(environ, f"cannot read {tmp_path}/tls.key") == f"cannot read {tmp_path}/tls.key"


@given(value=st.binary(min_size=12, max_size=40), before=st.binary(max_size=7), after=st.binary(max_size=7))
def test_a_value_is_redacted_at_any_offset_in_base64(value: bytes, before: bytes, after: bytes) -> None:
    """Basic authentication encodes a name before the password; no three bytes of the value remain."""
    secret = value.hex()[:24]
    encoded = base64.b64encode(before + secret.encode() + after).decode()
    redacted = Secrets({"PASSWORD": secret}).redact(encoded)
    assert "[secret PASSWORD]" in redacted
    assert len(redacted.replace("[secret PASSWORD]", "")) <= len(encoded) - len(secret)
