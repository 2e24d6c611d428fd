"""What a `DATABASE_URL` from a folder may say: a database and its own password, and nothing of this user's.

libpq completes a URL with what it finds: `~/.pgpass`, a client certificate in `~/.postgresql`, a service. A stranger's
URL decides where that is sent, `hostaddr` even in the name of a host that the user knows.
"""

from pathlib import Path
from typing import Final

from holdfast.errors import SettingsError

ALLOWED: Final = frozenset(
    {
        *("user", "password", "host", "port", "dbname", "application_name", "connect_timeout", "channel_binding"),
        *("keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout"),
    }
)
"""The parameters of libpq that say nothing about this user's files or about another host."""

_TLS: Final = {"sslmode": ("require", "verify-ca", "verify-full"), "sslrootcert": ("system",)}
"""Those that may have some values only: none that weakens the connection or names a file."""

NOWHERE: Final = "/dev/null/none"
"""A path at which no file can be."""

_KEPT_OUT: Final = {"passfile": NOWHERE, "sslcert": NOWHERE, "gssencmode": "disable"}
"""What keeps libpq from this user's passwords, client certificates and tickets."""


def confined(path: Path, url: str) -> str:
    """Return the URL of a folder's database, extended so that libpq adds nothing of this user's to it.

    Args:
        path: The file that has it, for errors, which do not show the URL.
        url: The value of `DATABASE_URL`.

    Raises:
        SettingsError: It says what a folder must not decide.
    """
    found = _parsed(path, url)
    if wrong := sorted(
        name for name, value in found.items() if name not in ALLOWED and value not in _TLS.get(name, ())
    ):
        raise SettingsError(
            f"{path}: DATABASE_URL must not have {', '.join(wrong)}: a folder that you got from others would decide "
            "where your passwords and certificates are used. Set DATABASE_URL in the environment."
        )
    host, port = found.get("host", ""), found.get("port", "")
    if "," in host + port or host.startswith(("/", "@")):
        raise SettingsError(
            f"{path}: DATABASE_URL must name one host and no folder of a socket. Set it in the environment."
        )
    separator = "&" if "?" in url else "?"
    extended = url + separator + "&".join(f"{name}={value}" for name, value in _KEPT_OUT.items())
    if _parsed(path, extended) != {**found, **_KEPT_OUT}:
        raise SettingsError(f"{path}: DATABASE_URL can be read in two ways. Quote its special characters (%3F, %23).")
    return extended


def _parsed(path: Path, url: str) -> dict[str, str]:
    """The parameters as libpq reads them: no other parser agrees with it on every URL."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        return {name: str(value) for name, value in conninfo_to_dict(url).items() if value}
    except ProgrammingError:
        raise SettingsError(f"{path}: DATABASE_URL is not a URL of PostgreSQL.") from None  # libpq's words show it
