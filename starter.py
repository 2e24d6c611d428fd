"""The command line: start agent runs, look at them, decide what they ask. `python starter.py --help`.

`holdfast.runtime.cli.commands` declares the verbs, `holdfast.runtime.cli.verbs` carries them out. Here is what only the
application knows, loaded when a verb needs it: the workflows, and what is kept in PostgreSQL.
Exit codes: 0 ok · 1 the run failed or diverges · 2 usage · 3 not found · 4 no server or no worker · 5 refused.
"""

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from holdfast.runtime.cli.commands.acting import Acting
from holdfast.runtime.cli.commands.deciding import Deciding
from holdfast.runtime.cli.commands.looking import Looking
from holdfast.runtime.cli.commands.looping import Looping
from holdfast.runtime.cli.commands.policies import Policies
from holdfast.runtime.cli.commands.remembering import Remembering
from holdfast.runtime.cli.commands.trusting import Trusting
from holdfast.runtime.cli.commands.upkeep import Upkeep

if TYPE_CHECKING:
    from psycopg_pool import AsyncConnectionPool

    from holdfast.memory.semantic import MemoryStore
    from holdfast.runtime.cli.verbs import Verbs
    from holdfast.runtime.config.settings import Settings
    from holdfast.runtime.reading.record import OpenRecord

ROOT = Path(__file__).resolve().parent

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help and plain errors: they need no imports, and read well in a pipe
    context_settings={"help_option_names": ["--help", "-h"]},
    help="""Start agent runs, look at them, and decide what they ask.

    \b
    Examples:
      python starter.py start "Publish 1.2"
      python starter.py watch run-3f09ac
      python starter.py approve run-3f09ac 1
      python starter.py say run-3f09ac "Now announce it"

    \b
    Exit codes:
      0 ok · 1 the run failed, was cancelled or diverges · 2 usage · 3 not found
      4 no server, or no worker · 5 refused
    """,
)


def _carry_out(verb: Callable[["Verbs"], Awaitable[int]], *, json: bool, debug: bool, **options: Any) -> NoReturn:
    from holdfast.runtime.cli.main import carry_out

    raise typer.Exit(carry_out(verb, root=ROOT, record=_record, as_json=json, debug=debug, **options))


@asynccontextmanager
async def _pool(url: str) -> AsyncIterator["AsyncConnectionPool"]:
    """Connections to the database at `url`."""
    import logging

    from holdfast.runtime.stores.pool import open_pool

    # The pool would tell of each attempt on stderr, in its own words; who needs it says what came of it.
    logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())
    async with open_pool(url, size=2) as pool:
        yield pool


@asynccontextmanager
async def _record(url: str, artifacts: Path | None = None) -> AsyncIterator["OpenRecord"]:
    """The permanent record in the database at `url`, with ledger and artifacts."""
    from functools import partial

    from holdfast.runtime.reading.record import Evidence, OpenRecord
    from holdfast.runtime.stores.artifacts import FolderArtifacts, PostgresArtifacts
    from holdfast.runtime.stores.ledger import effects_of
    from holdfast.runtime.stores.prune import prunable, prune
    from holdfast.runtime.stores.threads import PostgresThreads

    async with _pool(url) as pool:
        threads = PostgresThreads(pool)
        kept = FolderArtifacts(artifacts) if artifacts else PostgresArtifacts(pool)
        evidence = Evidence(partial(effects_of, pool), threads.asides, kept)
        yield OpenRecord(threads, partial(prunable, pool), partial(prune, pool), evidence)


@asynccontextmanager
async def _memories(url: str, settings: "Settings") -> AsyncIterator["MemoryStore"]:
    """The semantic memory in the database at `url`."""
    import logging
    from contextlib import AsyncExitStack

    import structlog

    from holdfast.runtime.stores.memories import PostgresMemories

    # Stdout is for results.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    async with AsyncExitStack() as cleanup:
        embeddings = None
        # The scripted LLM's vectors are for the embedded database alone: elsewhere, workers have a model.
        model = settings.embedding_model
        if model and not (settings.scripted and settings.database_url):
            from holdfast.runtime.llm.client import llm_client
            from holdfast.runtime.llm.embeddings import Embeddings

            made = cleanup.enter_context(llm_client(settings, dev=True, say=lambda _: None))
            client = await cleanup.enter_async_context(made)
            embeddings = Embeddings(client, model, settings.embedding_dimensions)
        pool = await cleanup.enter_async_context(_pool(url))
        yield PostgresMemories(pool, embeddings)


def _workflows() -> Sequence[type]:
    from workflows import WORKFLOWS

    return WORKFLOWS


for _group in (
    Acting(_carry_out),
    Deciding(_carry_out),
    Looking(_carry_out),
    Looping(_carry_out),
    Policies(_carry_out),
    Remembering(_carry_out, memories=_memories),
    Trusting(_carry_out),
    Upkeep(_carry_out, workflows=_workflows),
):
    _group.register(app)


def main() -> NoReturn:
    """Run the command line and end the process with the verb's exit code, whatever happens."""
    code = 1
    try:
        for word in sys.argv[1:]:
            word.encode()  # what is not UTF-8 can be neither sent nor recorded
        app()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(bool(end.code))
    except UnicodeEncodeError:
        print("starter.py: an argument is not valid UTF-8; check the terminal's encoding", file=sys.stderr)
        code = 2
    except BaseException as error:
        print(f"starter.py: {type(error).__name__}: {error}", file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code)  # temporalio can crash the interpreter at exit, and an exit code must not lie


if __name__ == "__main__":
    main()
