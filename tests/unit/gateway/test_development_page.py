"""The gateway that serves the page of `worker --dev`."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import pytest
from temporalio.client import Client

from holdfast.composition.components import Components
from holdfast.config.settings import Settings
from holdfast.gateway import app
from holdfast.hosting import development


async def test_the_page_of_development_streams_replies_and_nobody_has_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads the streams of its worker's process; the only way in is the page."""
    built: dict[str, Any] = {}

    def build(*parts: Any, **options: Any) -> None:
        built.update(options, callers=parts[1])

    monkeypatch.setattr(app, "build_app", build)
    environ = {"HOLDFAST_HOME": str(tmp_path), "HOLDFAST_STREAM_URL": "postgresql://holdfast@127.0.0.1:1/none"}
    settings = Settings.from_env(environ, root=tmp_path)
    async with AsyncExitStack() as cleanup:
        nowhere = await Client.connect("127.0.0.1:1", lazy=True)
        parts = Components(settings, environ, cleanup=cleanup, connected=nowhere)
        await development._gateway(parts, "http://127.0.0.1:8470", cast(Any, None))
        assert built["hub"] is not None
        assert built["hub"] is await parts.hub()
    assert built["callers"].scopes == frozenset()
