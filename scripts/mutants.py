"""Sample mutants of the code that decides, and list those that no test kills.

    python scripts/mutants.py --mutants 60 --seed 1 --results /tmp/mutants.json
    python scripts/mutants.py --again /tmp/mutants.json --results /tmp/after.json

Each mutant changes one comparison, condition, number or returned value. A copy of the project contains all of them,
each behind a switch. The tests run once without a mutant, to find those that reach each. Then those tests run with it
until the first failure, the cheapest first, in a process that is forked after all imports. For a mutant of code that
runs only on import, a new process runs the tests that import its module, the most direct first.
"""

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from mutant_runner import UNREACHED, Runner, say

ROOT = Path(__file__).resolve().parents[1]
MUTATED = ("holdfast/core/run", "holdfast/core/authority", "activities")
TESTS = ("tests/unit", "tests/workflow")
DEFAULT = "not slow and not extended"  # what `make test` runs
DIRECT = 15  # test files for a mutant of code that runs on import
PAIRS: tuple[tuple[type[ast.cmpop], type[ast.cmpop]], ...] = (
    (ast.Lt, ast.LtE),
    (ast.Gt, ast.GtE),
    (ast.Eq, ast.NotEq),
    (ast.Is, ast.IsNot),
    (ast.In, ast.NotIn),
)
OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {**dict(PAIRS), **{other: one for one, other in PAIRS}}
JOINED: dict[type[ast.boolop], type[ast.boolop]] = {ast.And: ast.Or, ast.Or: ast.And}
SWITCH = "import builtins, os\nbuiltins.mutant_is_on = lambda number: number == int(os.environ.get('MUTANT', '0'))\n"


class Mutant(NamedTuple):
    """One change: the text that replaces an expression of a file."""

    file: str
    line: int
    begin: int
    end: int
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}  {self.before[:60]} → {self.after[:60]}"


def mutants(name: str) -> Iterator[Mutant]:
    """Yield every mutant of a file."""
    code = (ROOT / name).read_bytes()
    starts = [0]
    for line in code.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node, after in changes(ast.parse(code)):
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        yield Mutant(name, node.lineno, begin, end, code[begin:end].decode(), after)


def changes(tree: ast.Module) -> Iterator[tuple[ast.expr, str]]:
    """Yield the expressions to change, each with the text that replaces it."""
    whole = [node for node in ast.walk(tree) if isinstance(node, ast.pattern | ast.JoinedStr)]
    fixed = {id(node) for top in whole for node in ast.walk(top)}
    for node in ast.walk(tree):
        if id(node) in fixed:  # a pattern cannot have a switch, and what is in an f-string has no position
            continue
        match node:
            case ast.Compare(left=left, ops=[operator], comparators=right) if type(operator) in OPPOSITE:
                yield node, ast.unparse(ast.Compare(left, [OPPOSITE[type(operator)]()], right))
            case ast.BoolOp(op=operator, values=values):
                yield node, ast.unparse(ast.BoolOp(JOINED[type(operator)](), values))
            case ast.If(test=test) | ast.IfExp(test=test):
                yield test, f"not ({ast.unparse(test)})"
            case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
                yield value, "None"
            case ast.Constant(value=bool()):
                yield node, str(not node.value)
            case ast.Constant(value=int() as number):
                yield node, str(number + 1)


def sample(count: int, seed: int, folders: list[str]) -> list[Mutant]:
    """Draw mutants, none within another."""
    files = sorted(str(file.relative_to(ROOT)) for folder in folders for file in (ROOT / folder).rglob("*.py"))
    drawn = [mutant for file in files for mutant in mutants(file)]
    random.Random(seed).shuffle(drawn)
    chosen: list[Mutant] = []
    for each in drawn:
        if not any(each.file == one.file and each.begin < one.end and one.begin < each.end for one in chosen):
            chosen.append(each)
        if len(chosen) == count:
            break
    return chosen


def write_copy(folder: Path, chosen: list[Mutant]) -> None:
    """Copy the project, with every mutant behind its switch: the number of its place in the list, from 1."""
    ignored = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", "node_modules")
    shutil.copytree(ROOT, folder, symlinks=True, ignore=ignored, dirs_exist_ok=True)
    (folder / ".venv").symlink_to(ROOT / ".venv")
    (folder / "sitecustomize.py").write_text(SWITCH)  # for the processes that tests start
    for number, each in sorted(enumerate(chosen, 1), key=lambda one: -one[1].begin):
        code = (folder / each.file).read_bytes()
        text = f"(({each.after}) if mutant_is_on({number}) else ({each.before}))"
        (folder / each.file).write_bytes(code[: each.begin] + text.encode() + code[each.end :])


def module_of(file: str) -> str:
    """Return the name under which a file is imported: top-level packages are linked into `holdfast`."""
    name = file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    return name if name.startswith(("holdfast", "tests")) else f"holdfast.{name}"


def imports() -> dict[str, set[str]]:
    """Map each module to the modules that it imports."""
    files = [file for top in ("holdfast", "activities", "workflows", "tests") for file in (ROOT / top).rglob("*.py")]
    graph: dict[str, set[str]] = {}
    for file in files:
        imported = graph.setdefault(module_of(str(file.relative_to(ROOT))), set())
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:  # the code has no other kind of import
                imported |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
    return graph


def tests_of(module: str, graph: dict[str, set[str]], folders: list[str]) -> list[str]:
    """Return the test files that import a module, the most direct first."""
    reached, frontier = [module], {module}
    while frontier:
        frontier = {name for name, imported in graph.items() if imported & frontier} - set(reached)
        reached += sorted(frontier)
    files = (f"{name.replace('.', '/')}.py" for name in reached if ".test_" in name)
    return [file for file in files if file.startswith(tuple(folders))]


def on_import(number: int, tests: list[str], folder: Path, environment: dict[str, str]) -> tuple[str, str]:
    """Run tests in a new process with a mutant of code that runs on import; return the outcome, and what failed."""
    if not tests:
        return "survived", "no test imports it"
    command = [sys.executable, "-m", "pytest", "-qx", "-m", DEFAULT, "-p", "no:cacheprovider", *tests[:DIRECT]]
    environment = {**environment, "MUTANT": str(number)}
    try:
        result = subprocess.run(
            command, cwd=folder, env=environment, timeout=900, capture_output=True, check=False, text=True
        )
    except subprocess.TimeoutExpired:
        return "timed out", ""
    lines = [line for line in result.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    ran = f"{len(tests[:DIRECT])} of {len(tests)} test files ran"
    return ("killed", lines[0].split()[1] if lines else "import") if result.returncode else ("survived", ran)


def read_again(file: Path) -> list[Mutant]:
    """Read the mutants of a file of results, and find them in today's code."""
    found = []
    for row in json.loads(file.read_text()):
        same = [each for each in mutants(row["file"]) if (each.before, each.after) == (row["before"], row["after"])]
        if same:
            found.append(min(same, key=lambda each: abs(each.line - row["line"])))
        else:
            say(f"gone       {row['file']}:{row['line']}  {row['before']}")
    return found


def main() -> None:
    """Draw the sample, and print the outcome of each mutant as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--in", dest="folders", nargs="+", default=list(MUTATED), help="folders to change")
    parser.add_argument("--tests", nargs="+", default=list(TESTS), help="folders or files of tests")
    parser.add_argument("--again", type=Path, help="the mutants of this file of results, instead of a sample")
    parser.add_argument("--results", type=Path, help="write the results to this file, as JSON")
    options = parser.parse_args()
    chosen = read_again(options.again) if options.again else sample(options.mutants, options.seed, options.folders)
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        folder = Path(name) / "project"
        write_copy(folder, chosen)
        runner = Runner([str(each) for each in chosen], options.jobs, Path(name))
        os.chdir(folder)
        sys.path[0] = str(folder)
        os.environ["PYTHONPATH"] = str(folder)
        environment = dict(os.environ)  # pytest adds the name of a folder that it removes at its end
        plain = ["-q", "-m", DEFAULT, "-p", "no:cacheprovider", "-p", "no:xdist"]
        pytest.main([*plain, *options.tests], plugins=[runner])
        graph = imports()
        for number, each in enumerate(chosen, 1):
            if runner.outcomes.get(number) == UNREACHED:
                tests = tests_of(module_of(each.file), graph, options.tests)
                runner.note(number, *on_import(number, tests, folder, environment))
        os.chdir(ROOT)
    rows = [
        {**each._asdict(), "outcome": runner.outcomes[number], "by": runner.killers[number]}
        for number, each in enumerate(chosen, 1)
    ]
    say(", ".join(f"{count} {name}" for name, count in Counter(row["outcome"] for row in rows).items()))
    if options.results:
        options.results.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    main()
