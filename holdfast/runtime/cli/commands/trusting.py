"""The command by which a person approves what would instruct agents in a workspace. It needs no server."""

from pathlib import Path
from typing import Annotated

import typer

from holdfast.runtime.cli.commands.options import By, Debug, Group, Json, examples


class Trusting(Group):
    """Approves instructions."""

    @examples(
        "trust .                        # show what agents would be told, and ask",
        "trust . --json | jq -r .digest",
        "trust . --digest sha256:3f09…  # approve what was shown with that digest, without a question",
    )
    def trust(
        self,
        workspace: Annotated[
            Path,
            typer.Argument(metavar="DIR", exists=True, file_okay=False, help="The workspace; on the worker's machine."),
        ],
        digest: Annotated[
            str | None, typer.Option(metavar="DIGEST", help="Approve all that is there, if it has this digest.")
        ] = None,
        by: By = None,
        json: Json = False,
        debug: Debug = False,
    ) -> None:
        """Approve the strategies and skills that a folder holds for agents.

        Without approval no agent is told them. An approval is of the very text: whatever changes needs its own.
        """
        folder = workspace.expanduser().absolute()
        self._carry_out(lambda verbs: verbs.trust(folder, digest, by=by), json=json, debug=debug)
