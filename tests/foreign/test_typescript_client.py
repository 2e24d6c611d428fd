"""The TypeScript client against a real gateway: `make client` builds it, and these tests are skipped without that."""

import asyncio
import shutil
from pathlib import Path

import pytest

from scripts.openapi import TYPES, description, stamp
from tests.support.pages import page_site
from tests.support.rig import StartRig

HERE = Path(__file__).parent
CLIENT = HERE.parents[1] / "clients" / "typescript"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("node") is None or not (CLIENT / "dist" / "index.js").is_file(),
        reason="the TypeScript client is not built: `make client` does it",
    ),
]


async def ran(*command: str, folder: Path = HERE) -> str:
    """Run a program, and return its output; fail with it if the program does."""
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


async def test_a_program_starts_follows_and_decides(rig: StartRig) -> None:
    """The built client starts a run, follows it, decides by the digest, and resumes after a cut."""
    async with page_site(rig) as site:
        assert await ran("node", str(HERE / "holdfast_client.mjs"), site.url, "of-alice") == "ok\n"


async def test_the_types_are_what_the_generator_makes(tmp_path: Path) -> None:
    """Nobody has edited the generated types, and the built client is of them."""
    text = await description()
    (tmp_path / "openapi.json").write_text(text, encoding="utf-8")
    generator = CLIENT / "node_modules" / ".bin" / "openapi-typescript"
    await ran(str(generator), str(tmp_path / "openapi.json"), "--output", str(tmp_path / "openapi.ts"), folder=CLIENT)
    assert TYPES.read_text(encoding="utf-8") == stamp(text) + (tmp_path / "openapi.ts").read_text(encoding="utf-8")
    await ran(str(CLIENT / "node_modules" / ".bin" / "tsc"), "--noEmit", folder=CLIENT)
