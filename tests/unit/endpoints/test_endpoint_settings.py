"""The LLM endpoint's variables: text pasted around a value is removed, and faults are named at the start."""

from pathlib import Path

import pytest

from holdfast.config.own_secrets import own_secrets
from holdfast.config.settings import Settings
from holdfast.endpoints.client import llm_client
from holdfast.endpoints.http_client import http_client, is_loopback
from holdfast.errors import SettingsError

AROUND = ["{}", '"{}"', "'{}'", "\ufeff{}", "{}\n", "\xa0{}\xa0", "“{}”", " {} ", "\u200b{}"]


def settings(**environ: str) -> Settings:
    """Read settings from these variables."""
    return Settings.from_env(environ, root=Path("/nowhere"))


@pytest.mark.parametrize("around", AROUND)
def test_text_pasted_around_a_key_or_an_address_is_removed(around: str) -> None:
    """Quotes, blanks, line ends and a byte order mark are removed; the key is redacted in the form that is sent."""
    key, url = around.format("sk-abcdefgh12345"), around.format("https://llm.example/v1")
    configured = settings(OPENAI_API_KEY=key, OPENAI_BASE_URL=url)
    assert configured.openai_api_key is not None
    assert configured.openai_api_key.get_secret_value() == "sk-abcdefgh12345"
    assert configured.openai_base_url == "https://llm.example/v1"
    assert "sk-abcdefgh12345" not in own_secrets(configured, {"OPENAI_API_KEY": key}).redact(
        "refused: sk-abcdefgh12345"
    )


@pytest.mark.parametrize("blank", ["", " ", '""', "\ufeff", "\xa0", "''"])
def test_a_blank_value_counts_as_unset(blank: str) -> None:
    """Compose files pass variables that are not set as empty ones."""
    assert settings(OPENAI_API_KEY=blank, OPENAI_BASE_URL=blank).scripted


def test_the_word_bearer_is_removed_from_a_key() -> None:
    """The word is often copied with the key from an example of a header."""
    configured = settings(OPENAI_API_KEY="Bearer sk-abcdefgh12345").openai_api_key
    assert configured is not None
    assert configured.get_secret_value() == "sk-abcdefgh12345"


@pytest.mark.parametrize("key", ["sk-abc def", "sk-abc\ndef", "sk-\u0430bcdef", "sk-abc\x00def", "sk-abc\xa0def"])
def test_a_key_that_no_request_can_carry_is_rejected_unseen(key: str) -> None:
    """The error names the variable, and shows no part of the key."""
    with pytest.raises(SettingsError) as raised:
        settings(OPENAI_API_KEY=key)
    assert "OPENAI_API_KEY" in str(raised.value)
    assert "sk-" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("api.example/v1", "must start with https:// or http://"),
        ("localhost:11434/v1", "must start with https:// or http://"),
        ("https://", "name a host"),
        ("https://a.example:port/v1", "name a host"),
        ("https://a.example/v1/chat/completions", "must end before /chat/completions"),
        ("https://a.example/v1/chat/completions/", "must end before /chat/completions"),
        ("https://a.example/v1/responses", "must end before /responses"),
        ("https://a.exa mple/v1", "blanks"),
    ],
)
def test_an_invalid_endpoint_address_is_rejected(url: str, words: str) -> None:
    """The error shows a valid address."""
    with pytest.raises(SettingsError, match=words) as raised:
        settings(OPENAI_BASE_URL=url)
    assert "OPENAI_BASE_URL" in str(raised.value)


def test_the_clients_own_variables_are_read_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A blank address counts as unset, and a header that cannot be sent is named."""
    monkeypatch.setenv("OPENAI_BASE_URL", "")
    monkeypatch.setenv("OPENAI_ORG_ID", " ")
    configured = settings(OPENAI_API_KEY="sk-abcdefgh12345", OPENAI_BASE_URL="")
    with llm_client(configured, dev=False, say=print) as client:
        assert f"{client.base_url}" == "https://api.openai.com/v1/"
    monkeypatch.setenv("OPENAI_ORG_ID", "org-\u0430")
    with pytest.raises(SettingsError, match="OPENAI_ORG_ID"), llm_client(configured, dev=False, say=print):
        pass


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("SSL_CERT_FILE", "/nowhere/ca.pem", "SSL_CERT_FILE=/nowhere/ca.pem cannot be read"),
        ("SSL_CERT_FILE", __file__, "SSL_CERT_FILE=.* cannot be read"),
        ("SSL_CERT_DIR", "/nowhere", "SSL_CERT_DIR=/nowhere is no folder"),
        ("ALL_PROXY", "socks5://user:hunter22@127.0.0.1:1", "ALL_PROXY names a SOCKS proxy"),
        ("https_proxy", "socks5h://127.0.0.1:1", "https_proxy names a SOCKS proxy"),
        ("HTTPS_PROXY", "ftp://user:hunter22@127.0.0.1:1", "HTTPS_PROXY is no proxy that can be used"),
    ],
)
def test_faults_of_the_clients_environment_are_named(
    variable: str, value: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error gives the variable and the remedy, and no password."""
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "ALL_PROXY", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError, match=words) as raised:
        http_client("https://llm.example/v1")
    assert "hunter22" not in str(raised.value)


async def test_a_local_endpoint_needs_none_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither proxies nor certificates affect plain HTTP to this machine."""
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/ca.pem")
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1")
    async with http_client("http://localhost:11434/v1"):
        pass


@pytest.mark.parametrize("host", ["localhost", "127.0.0.5", "::1", "[::1]", "llm.localhost", "LOCALHOST."])
def test_this_machine_is_known_by_its_names(host: str) -> None:
    """Loopback addresses, and the names that always resolve to them, are this machine."""
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["localhost.example", "10.0.0.1", "llm.example", "127.0.0.1.example"])
def test_another_host_is_not_this_machine(host: str) -> None:
    """Requests to another host go through the proxy."""
    assert not is_loopback(host)
