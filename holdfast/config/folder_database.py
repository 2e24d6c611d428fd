"""Confines a `DATABASE_URL` from a project folder: it may name a database and its own password, no secret of the user.

libpq completes a URL from the user's files: `~/.pgpass`, a client certificate in `~/.postgresql`, a service. A
stranger's URL decides where those secrets are sent; with `hostaddr`, even under the name of a host that the user knows.
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
"""The parameters of libpq that name neither files of the user nor another host."""

_TLS: Final = {"sslmode": ("require", "verify-ca", "verify-full"), "sslrootcert": ("system",)}
"""Parameters limited to values that neither weaken the connection nor name a file."""

NOWHERE: Final = "/dev/null/none"
"""A path at which no file can be."""

_KEPT_OUT: Final = {"passfile": NOWHERE, "sslcert": NOWHERE, "gssencmode": "disable"}
"""Parameters that keep libpq from this user's passwords, client certificates and tickets."""


def confined(path: Path, url: str) -> str:
    """Return the URL of a folder's database, extended so that libpq adds no secret of the user.

    Args:
        path: The file that sets it, for errors, which do not show the URL.
        url: The value of `DATABASE_URL`.

    Raises:
        SettingsError: It has a parameter that a folder must not decide.
    """
    parameters = _parse(path, url)
    if wrong := sorted(
        name for name, value in parameters.items() if name not in ALLOWED and value not in _TLS.get(name, ())
    ):
        raise SettingsError(
            f"{path}: DATABASE_URL must not have {', '.join(wrong)}: a folder that you got from others would decide "
            "where your passwords and certificates are used. Set DATABASE_URL in the environment."
        )
    host, port = parameters.get("host", ""), parameters.get("port", "")
    if "," in host + port or host.startswith(("/", "@")):
        raise SettingsError(
            f"{path}: DATABASE_URL must name one host and no folder of a socket. Set it in the environment."
        )
    separator = "&" if "?" in url else "?"
    extended = url + separator + "&".join(f"{name}={value}" for name, value in _KEPT_OUT.items())
    if _parse(path, extended) != {**parameters, **_KEPT_OUT}:
        raise SettingsError(f"{path}: DATABASE_URL can be read in two ways. Quote its special characters (%3F, %23).")
    return extended


def _parse(path: Path, url: str) -> dict[str, str]:
    """Return the parameters, parsed by libpq: no other parser agrees with it on every URL."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        return {name: str(value) for name, value in conninfo_to_dict(url).items() if value}
    except ProgrammingError:
        raise SettingsError(
            f"{path}: DATABASE_URL is not a URL of PostgreSQL."
        ) from None  # libpq's message shows the URL
