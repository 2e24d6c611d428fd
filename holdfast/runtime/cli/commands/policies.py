"""Commands about policy files: check one, ask what it says of a call."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from holdfast.runtime.cli.commands.options import Debug, Group, Json, examples

File = Annotated[Path, typer.Argument(metavar="FILE", help="A policy, as YAML or JSON.")]


class Policies(Group):
    """Check a policy file, or ask what it says of a call."""

    under = "policy"

    @examples("policy check policy.yaml", "policy check policy.yaml --json | jq -r .hash")
    def check(self, file: File, json: Json = False, debug: Debug = False) -> None:
        """Check a policy file.

        Exit 2 with every problem, its line and its field.
        """
        self._carry_out(lambda verbs: verbs.check_policy(file), json=json, debug=debug)

    @examples(
        """policy explain policy.yaml --tool pay --arguments '{"cents": 250000}'""",
        "policy explain policy.yaml --tool read_file --effect read --agent releaser --depth 1",
    )
    def explain(
        self,
        file: File,
        tool: Annotated[str, typer.Option(metavar="NAME", help="The tool that is called.")],
        arguments: Annotated[str, typer.Option(metavar="JSON", help="What it is called with.")] = "{}",
        effect: Annotated[
            Literal["read", "idempotent", "verifiable", "unsafe"], typer.Option(help="The tool's class of effect.")
        ] = "unsafe",
        agent: Annotated[str, typer.Option(metavar="NAME", help="The agent that calls it.")] = "",
        depth: Annotated[int, typer.Option(min=0, help="How many agents are above it.")] = 0,
        workspace: Annotated[str, typer.Option(metavar="DIR", help="The run's folder.")] = "",
        json: Json = False,
        debug: Debug = False,
    ) -> None:
        """Say which rule decides on a call, why, and who may decide."""
        from pydantic_core import from_json

        try:
            given = from_json(arguments, allow_inf_nan=False)
        except ValueError as error:
            raise typer.BadParameter(f"--arguments is no JSON: {error}") from None
        use = {"tool": tool, "effect": effect, "arguments": given, "agent": agent, "depth": depth}
        use["workspace"] = workspace
        self._carry_out(lambda verbs: verbs.explain_policy(file, use), json=json, debug=debug)
