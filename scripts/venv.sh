#!/bin/sh
# Make a virtual environment and install a lock file into it: scripts/venv.sh [FOLDER] [LOCK].
# It does nothing while the lock is unchanged, and uses uv if that is on the path.
# PYTHON lists the interpreters to try for a new environment: PYTHON=/path/to/python3.12 scripts/venv.sh
set -eu
venv=${1:-.venv}
lock=${2:-requirements/dev.lock}
candidates=${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}
export PYENV_DIR=/ # so that a pyenv without the version in .python-version offers its other versions

supported() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

have_uv() {
    command -v uv >/dev/null 2>&1
}

if ! "$venv/bin/python" -c '' 2>/dev/null; then
    interpreter=
    for each in $candidates; do
        if supported "$each"; then
            interpreter=$each
            break
        fi
    done
    if [ -z "$interpreter" ]; then
        echo "No Python 3.11 or newer among: $candidates. Install one, or name it: PYTHON=..." >&2
        exit 1
    fi
    if have_uv; then
        uv venv --quiet --clear --python "$interpreter" "$venv"
    else
        "$interpreter" -m venv --clear "$venv"
    fi || {
        echo "$interpreter cannot create $venv: install its venv and ensurepip (Debian: python3-venv)" >&2
        exit 1
    }
fi

if ! cmp -s "$lock" "$venv/installed.lock"; then
    echo "Installing $lock into $venv"
    if have_uv; then
        uv pip install --python "$venv/bin/python" --quiet --require-hashes -r "$lock"
    else
        "$venv/bin/python" -m pip install --disable-pip-version-check --quiet --require-hashes -r "$lock"
    fi
    cp "$lock" "$venv/installed.lock"
fi
