"""Record histories of the current code under `tests/replay/histories/RELEASE/` (`make histories`).

    python -m tests.replay.record [SCENARIO ...]

1. The release is the version in `holdfast/version.py`. Each release has a folder of its own and never writes to
   another's.
2. The histories of a published release, which is one that CHANGELOG.md has a date for, are never changed or removed:
   they represent runs that may still be open.
"""

import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from temporalio.client import WorkflowHandle

from holdfast.activities.notify import Notifier
from holdfast.client.connect import connect, ensure_search_attributes, stack_config
from holdfast.config.webhooks import Receiver as To
from holdfast.core.loop.state import LoopLimits
from holdfast.devstack.devstack import DevStack
from holdfast.devstack.ports import Ports, any_free
from holdfast.encryption.fleet_keys import stack_seals
from tests.replay.releases import CURRENT, ROOT, is_released
from tests.replay.scenarios import BUILDERS, CATALOG, EARLIER, LAUNCHERS, LOOPS, NODE, SCENARIOS
from tests.support.rig import runs_of, start_rig, status_of
from tests.support.serving import Receiver, served

HISTORIES = Path(__file__).parent / "histories"


def folder_of(release: str, changelog: str | None = None) -> Path:
    """Return the folder for the histories of a release.

    Args:
        release: Its version.
        changelog: The changelog's text; None for CHANGELOG.md.

    Raises:
        SystemExit: The release is published.
    """
    if is_released(release, changelog):
        raise SystemExit(
            f"{release} is released: its histories never change. Raise the version in holdfast/version.py."
        )
    return HISTORIES / release


async def record(release: str, only: Sequence[str]) -> None:
    """Play scenarios on a real server, and write the history of each of its Temporal runs.

    Args:
        release: The release that the histories represent.
        only: The names of the scenarios; other histories stay. Empty for all.

    Raises:
        SystemExit: The release is published.
    """
    folder = folder_of(release)
    folder.mkdir(parents=True, exist_ok=True)
    scenarios = {**SCENARIOS, **LOOPS, **LAUNCHERS}
    chosen = [name for name in scenarios if name in only or not only]
    for old in folder.glob("*.json"):
        if old.stem.split(".")[0] in chosen:
            old.unlink()
    with tempfile.TemporaryDirectory(prefix="holdfast-") as temporary:
        stack = DevStack(Path(temporary) / "home", usual=Ports(any_free(), any_free(), any_free()))
        servers = await asyncio.to_thread(stack.start)
        try:
            # A fixed identity: the default one contains the machine's name.
            seals = stack_seals(servers)
            client = await connect({**stack_config(servers), "identity": "holdfast"}, seals=seals)
            await ensure_search_attributes(client)
            for name in chosen:
                script, play, begin = scenarios[name]
                own = Path(temporary) / name  # each scenario has its own workspace
                own.mkdir()
                options: dict[str, Any] = {
                    "worker_client": client,
                    "database_url": servers.database_url,
                    "folder": own,
                    "task_queue": name,
                    "identity": "holdfast",
                    **({"node": NODE} if name == "placed" else {}),
                }
                run: WorkflowHandle[Any, Any]
                if name in EARLIER:
                    async with start_rig(client, EARLIER[name], script, **options) as earlier:
                        run = await earlier.start(**{"thread": name, **begin})
                        await status_of(run, "dormant")
                async with (
                    served(Receiver()) as url,
                    Notifier([To(url=url)] if name == "notified" else ()) as notifier,
                    start_rig(
                        client,
                        BUILDERS if name in LOOPS else CATALOG,
                        script,
                        notifier=notifier,
                        **options,
                    ) as rig,
                ):
                    if begin.get("agent") == "keeper":
                        (rig.workspace / "TASKS.md").write_text("- [ ] one\n")
                    if name in LOOPS:
                        run = await rig.start_loop(name, task="build", **{"limits": LoopLimits(iterations=2), **begin})
                    elif name in LAUNCHERS:
                        run = await rig.launch(name)
                    elif name not in EARLIER:
                        run = await rig.start(**{"thread": name, **begin})
                    run = await play(run, rig) or run
                    latest = client.get_workflow_handle(run.id)
                    runs = await runs_of(client, run)
                    if (await latest.describe()).run_id != runs[-1].run_id:
                        runs += [latest]
                    histories = [await each.fetch_history() for each in runs]
                for number, history in enumerate(histories, start=1):
                    file = folder / (f"{name}.json" if len(histories) == 1 else f"{name}.{number}.json")
                    # Stack traces of failed activities contain the folders of the machine that recorded them.
                    text = history.to_json().replace(f"{ROOT}/", "").replace(sys.prefix, ".venv")
                    file.write_text(text + "\n")
                    print(f"{file.relative_to(HISTORIES.parent)}: {len(history.events)} events")
        finally:
            await asyncio.to_thread(stack.stop)


if __name__ == "__main__":
    asyncio.run(record(CURRENT, sys.argv[1:]))
