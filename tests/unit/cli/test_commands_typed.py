"""Command line parsing: no option takes another option as its value."""

from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.main import get_command

from holdfast import starter
from holdfast.config.commands import Command
from holdfast.gateway import __main__ as gateway
from holdfast.worker import __main__ as worker


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command below this one, with the words that lead to it."""
    for name, each in getattr(command, "commands", {}).items():
        yield from commands(each, (*path, name))
    if not hasattr(command, "commands"):
        yield path, command


def only_command(main: Any) -> Any:
    """Return the command of a program without verbs."""
    app = typer.Typer(add_completion=False)
    app.command(cls=Command)(main)
    return get_command(app)


EVERY = [
    *commands(get_command(starter.app)),
    (("worker",), only_command(worker.main)),
    (("gateway",), only_command(gateway.main)),
]


def test_no_option_of_any_verb_takes_another_as_its_value() -> None:
    """`start --thread --json` is rejected with exit code 2, and so is every other such pair."""
    tried = 0
    for path, command in EVERY:
        for option in command.params:
            if option.param_type_name == "option" and not option.is_flag:
                for spelling in option.opts:
                    with pytest.raises(
                        Exception, match=f"{spelling} needs a value, and --debug is an option"
                    ) as caught:
                        command.make_context(path[-1], [spelling, "--debug"])
                    assert vars(type(caught.value)).get("exit_code") == 2
                    tried += 1
    assert tried > 60


def test_a_value_may_look_like_an_option() -> None:
    """A value may begin with dashes after `=`, after `--`, and if no option has that name."""
    (start,) = (command for path, command in EVERY if path == ("start",))
    for arguments, thread, task in (
        (["task", "--thread=--json"], "--json", "task"),
        (["--thread", "-1", "task"], "-1", "task"),
        (["--thread", "t", "--", "--json"], "t", "--json"),
        (["--", "--thread"], None, "--thread"),
    ):
        parsed = start.make_context("start", arguments).params
        assert (parsed["thread"], parsed["task"], parsed["json"]) == (thread, task, False)
