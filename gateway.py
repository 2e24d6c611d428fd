"""The gateway: threads over HTTP, for programs that do not speak Temporal. `python gateway.py --help`.

`main` parses; `holdfast.gateway.process` builds the parts and serves the application.
"""

from functools import partial
from typing import Annotated

import typer

from holdfast.composition.process import run_process
from holdfast.config.commands import Version, run_main
from holdfast.config.programs import GATEWAY
from holdfast.gateway.process import run_gateway


def main(
    host: Annotated[str | None, typer.Option(help="Address to listen on: HOLDFAST_GATEWAY_HOST.")] = None,
    port: Annotated[int | None, typer.Option(help="Port: HOLDFAST_GATEWAY_PORT.", min=0, max=65535)] = None,
    catalog: Annotated[
        str | None, typer.Option(help="The workers' catalog, for its own stores: package.module:attribute.")
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Version = False,
) -> None:
    """Serve threads over HTTP until Ctrl-C.

    Examples:
        HOLDFAST_GATEWAY_TOKENS=tokens.yaml python gateway.py
        HOLDFAST_GATEWAY_TOKENS=tokens.yaml HOLDFAST_GATEWAY_KEY=gateway.key python gateway.py --port 9000
    """
    serve = partial(run_gateway, host=host, port=port)
    run_process(GATEWAY, serve, debug=debug, catalog=catalog)


if __name__ == "__main__":
    run_main(main)
