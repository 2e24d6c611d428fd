"""The installed command `holdfast`."""

import re
from pathlib import Path

import pytest

import holdfast
from holdfast.devstack.ports import any_free
from tests.package.installation import Installation

AT_EXIT = """
import os, sys
from holdfast.__main__ import main
end = os._exit
def report(code):
    print(*(sys.modules.keys() & {modules!r}), file=sys.stderr, flush=True)
    end(code)
os._exit = report
main()
"""


@pytest.fixture
def nowhere(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which no server runs."""
    return {"TEMPORAL_ADDRESS": f"127.0.0.1:{any_free()}"}


def test_help_and_version_load_nothing_heavy(developed: Installation, tmp_path: Path) -> None:
    """They are as quick as those of `starter.py`; the help lists `worker` and `gateway` without loading them."""
    modules = {"temporalio", "psycopg", "openai", "rich", "pydantic", "asyncio"}
    modules |= {f"holdfast.{name}" for name in ("activities", "gateway", "log.events", "worker", "workflows")}
    for option, message in (("--help", "  gateway  "), ("--version", f"{holdfast.__version__}\n")):
        ran = developed.run(developed.python, "-c", AT_EXIT.format(modules=modules), option, folder=tmp_path)
        assert (ran.returncode, ran.stderr.split()) == (0, [])
        assert message in ran.stdout


def test_every_verb_is_there_and_names_the_command(developed: Installation, tmp_path: Path) -> None:
    """`holdfast --help` has the verbs of `starter.py` and both programs; examples are for this command."""
    shown = developed.holdfast("--help", folder=tmp_path)
    verbs = re.findall(r"^  ([a-z-]+)  ", shown.stdout.partition("Run agents:")[2], re.MULTILINE)
    assert {"start", "approve", "watch", "doctor", "worker", "gateway", "policy"} < set(verbs)
    assert "  holdfast start" in shown.stdout
    for verb in ("worker", "gateway", "start", "policy"):
        ran = developed.holdfast(verb, "--help", folder=tmp_path)
        assert ran.returncode == 0
        assert f"holdfast {verb}" in ran.stdout
        assert not re.search(r"python|\.py\b", ran.stdout + shown.stdout)


def test_errors_name_the_command(developed: Installation, tmp_path: Path, nowhere: dict[str, str]) -> None:
    """Prefixes and hints name commands that the user can type, and the exit codes are those of the programs."""
    expected = {
        ("show", "x"): (4, "holdfast: no Temporal server answers at 127.0.0.1:", "`holdfast worker --dev`"),
        ("approve", "x", "1", "--key", "none"): (2, "holdfast: the key none cannot be read", "`holdfast keygen`"),
        ("worker",): (2, "holdfast worker: DATABASE_URL is not set", "--dev"),
        ("gateway",): (2, "holdfast gateway: no caller could use the gateway", "HOLDFAST_GATEWAY_TOKENS"),
        ("worker", "--catalog", "nothing:there"): (2, "holdfast worker: 'nothing:there': there is no module", ""),
    }
    for arguments, (code, beginning, hint) in expected.items():
        ran = developed.holdfast(*arguments, folder=tmp_path, **nowhere)
        assert (ran.returncode, ran.stdout) == (code, ""), ran
        assert ran.stderr.startswith(beginning)
        assert hint in ran.stderr
        assert "Traceback" not in ran.stderr
        assert ".py" not in ran.stderr


@pytest.mark.parametrize(("verb", "extra"), [("start", "cli"), ("worker", "worker"), ("gateway", "gateway")])
def test_a_missing_extra_is_named(bare: Installation, tmp_path: Path, verb: str, extra: str) -> None:
    """Without the packages that it needs, a command names the missing extra in one line, and ends with 2."""
    ran = bare.holdfast(verb, folder=tmp_path)
    message = f"holdfast: packages that this command needs are missing: pip install 'holdfast-agents[{extra}]'\n"
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", message)
