"""Commands end when they should, leave no process running, and see and return only what they may."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from holdfast.core.tools.arguments import ArgumentsInvalid
from holdfast.core.tools.decorator import ToolContext
from holdfast.workspace import shell
from holdfast.workspace.shell import Output, command_environment, run_command, run_shell

PATIENCE = 120.0


@pytest.fixture
def context(tmp_path: Path) -> ToolContext:
    """Return the context of a first attempt in an empty workspace."""
    return ToolContext(thread="t", workspace=tmp_path, key="k", attempt=1)


async def until(condition: Callable[[], bool]) -> None:
    """Poll a condition on other processes."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - the end of a process that is not our child sets no event
            await asyncio.sleep(0.01)


def has_ended(pid: int) -> bool:
    """Return whether a process has ended, reaped or not."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def pid_in(path: Path) -> int:
    """Return the process id that a command writes to a file."""

    def written() -> str:
        return path.read_text() if path.exists() else ""

    await until(lambda: written().endswith("\n"))
    return int(written())


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("echo out; echo err >&2; exit 3", "[exit code 3]\nout\nerr\n"),
        ("true", "[exit code 0]\n"),
        ("kill -9 $$", "[the shell was killed by signal 9 (Killed)]\n"),
        ("cat", "[exit code 0]\n"),
        ("printf 'a\\377b'", "[exit code 0]\na\ufffdb"),
        ("echo made > file; cat file", "[exit code 0]\nmade\n"),
    ],
)
async def test_the_result_has_exit_code_and_outputs(context: ToolContext, command: str, expected: str) -> None:
    """The result is the exit code, or the signal, and both outputs as text; standard input is empty."""
    assert expected == await run_command(command, context=context)


async def test_the_workers_secrets_are_not_visible(context: ToolContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command sees the variables on the list and no others."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-hidden")
    monkeypatch.setenv("DATABASE_URL", "postgresql://hidden")
    monkeypatch.setenv("LC_TIME", "C")

    result = await run_command("env", context=context)

    assert "hidden" not in result
    assert "LC_TIME=C" in result
    assert os.environ["PATH"] == command_environment()["PATH"]


async def test_output_is_bounded(context: ToolContext) -> None:
    """The beginning and the end of a long output are kept, and the missing bytes are counted."""
    result = await run_command("echo first; yes | head -c 20000000; echo last", context=context)

    assert result.startswith("[exit code 0]\nfirst\ny\n")
    assert "[19,900,011 bytes left out;" in result
    assert result.endswith("y\nlast\n")
    assert len(result) < 101_000


@pytest.mark.parametrize("chunk", [1, 3, 7, 64])
def test_output_does_not_depend_on_how_it_arrives(chunk: int) -> None:
    """The kept output does not depend on the size of the chunks received."""
    printed = bytes(range(97, 123))
    output = Output(kept=4)
    for start in range(0, len(printed), chunk):
        output.add(printed[start : start + chunk])

    text = output.text()

    assert (text[:4], text[-4:]) == ("abcd", "wxyz")
    assert "[18 bytes left out;" in text


def test_output_within_the_bounds_is_whole() -> None:
    """Output that fits is returned unchanged."""
    output = Output(kept=4)
    output.add(b"abcde")
    output.add(b"fgh")

    assert output.text() == "abcdefgh"


@pytest.mark.parametrize("start", ["sleep 300 &", "env -i sleep 300 &", "(setsid sleep 300 &)"])
async def test_the_time_limit_kills_everything(context: ToolContext, tmp_path: Path, start: str) -> None:
    """At the time limit, all processes of the command are killed, even in other groups or sessions."""
    start = start.replace("sleep 300", "sh -c 'echo $$ > pid; sleep 300; true'")
    pid, result, seconds = tmp_path / "pid", "", 0.0
    for seconds in (0.3, 3, 30, 120):  # on a busy machine, a process may need seconds to start
        pid.write_text("")
        result = await run_command(f"{start}\necho so far; sleep 300", timeout_seconds=seconds, context=context)
        if pid.read_text().endswith("\n") and "so far" in result:
            break

    stopped = f"[stopped at the time limit of {seconds:g} s: the command and its children were killed]"
    assert result == f"{stopped}\nso far\n"
    await until(lambda: not _in(tmp_path))
    assert has_ended(await pid_in(pid))


def _in(folder: Path) -> list[psutil.Process]:
    """Return the living processes whose working directory is that folder."""
    pids = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(folder) and process.status() != psutil.STATUS_ZOMBIE:
                pids.append(process)
        except psutil.Error:
            continue
    return pids


@pytest.mark.parametrize("start", ["sh -c 'echo $$ > pid; sleep 300; true'", "setsid sh -c 'echo $$ > pid; sleep 300'"])
async def test_cancellation_kills_everything(context: ToolContext, tmp_path: Path, start: str) -> None:
    """A cancelled call leaves no process running."""
    running = asyncio.create_task(run_command(f"{start} & sleep 300", context=context))
    child = await pid_in(tmp_path / "pid")

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    await until(lambda: has_ended(child))
    await until(lambda: not _in(tmp_path))


@pytest.mark.parametrize("when", range(4))
async def test_cancellation_while_the_shell_starts(context: ToolContext, tmp_path: Path, when: int) -> None:
    """A call cancelled before the shell is known to run leaves no process running either."""
    running = asyncio.create_task(run_command("sleep 300 & sleep 300", context=context))
    for _ in range(when):
        await asyncio.sleep(0)

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    await until(lambda: not _in(tmp_path))


@pytest.mark.parametrize("background", ["sleep 300 &", "sleep 300 >/dev/null 2>&1 &", "setsid sleep 300 &"])
async def test_background_processes_do_not_delay_the_result(
    context: ToolContext, tmp_path: Path, background: str
) -> None:
    """The call returns soon after its shell, even if a child keeps the pipe; the child is stopped and reported."""
    async with asyncio.timeout(PATIENCE):
        result = await run_command(f"{background} echo done", context=context)

    assert result == "[exit code 0]\n[processes left in the background were stopped]\ndone\n"
    await until(lambda: not _in(tmp_path))


async def test_the_end_of_a_pipeline_is_not_lost(context: ToolContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that briefly outlives the shell may still print."""
    monkeypatch.setattr(shell, "GRACE_SECONDS", PATIENCE)  # it ends when the child has closed the pipe
    result = await run_command("(sleep 0.05; echo late) & echo early", context=context)

    assert result.endswith("early\nlate\n")


async def test_concurrent_commands_are_independent(tmp_path: Path) -> None:
    """Concurrent commands do not stop each other's processes."""
    outcomes = await asyncio.gather(*(run_shell(f"sleep 0.1; echo {n}", tmp_path, seconds=PATIENCE) for n in range(12)))

    assert [f"{n}\n" for n in range(12)] == [outcome.output for outcome in outcomes]


async def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    """Every call closes the descriptors that it opened, including calls that fail."""
    await run_shell("true", tmp_path, seconds=PATIENCE)
    before = psutil.Process().num_fds()

    for command in ("true", "sleep 300 &", "sleep 300"):
        await run_shell(command, tmp_path, seconds=0.1)
    with pytest.raises(OSError, match="cannot be started"):
        await run_shell("true", tmp_path / "missing", seconds=1)

    assert before == psutil.Process().num_fds()


@pytest.mark.parametrize(
    ("command", "folder", "error"),
    [
        ("echo \0", ".", "NUL character"),
        ("true", "missing", "write_file creates it"),
        ("true #" + "x" * 3_000_000, ".", "to a script"),
    ],
)
async def test_a_command_that_cannot_start_gives_the_reason(
    tmp_path: Path, command: str, folder: str, error: str
) -> None:
    """The error gives the reason and the remedy."""
    with pytest.raises((OSError, ValueError), match=error):
        await run_shell(command, tmp_path / folder, seconds=1)


@pytest.mark.parametrize("seconds", ["0", "-1", "601", '"soon"'])
def test_the_time_limit_is_bounded(seconds: str) -> None:
    """The description gives the range of the time limit, which ends before the tool's own."""
    with pytest.raises(ArgumentsInvalid, match="timeout_seconds"):
        run_command.parse(f'{{"command": "true", "timeout_seconds": {seconds}}}')

    assert run_command.spec.timeout > 601
