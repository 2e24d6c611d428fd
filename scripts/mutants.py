"""Sample mutants of the code that decides, and count those that the unit and workflow tests kill.

    python scripts/mutants.py --mutants 60 --seed 1

Each mutant changes one comparison, condition, number or returned value. The tests that import the module run until the
first failure, the most direct first. The files are changed in place and restored: use a separate checkout.
"""

import argparse
import ast
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
MUTATED = ("holdfast/core/run", "holdfast/core/authority", "activities")
TESTS = ("tests/unit", "tests/workflow")
SECONDS = 900  # for the tests of one mutant
PAIRS = ((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot), (ast.In, ast.NotIn))
OTHER = {**dict(PAIRS), **{other: one for one, other in PAIRS}, ast.And: ast.Or, ast.Or: ast.And}


class Mutant(NamedTuple):
    """One change: the text that replaces a node of a file."""

    file: Path
    node: ast.expr
    text: str

    def source(self, code: str) -> str:
        """Return the code with the change."""
        lines = code.encode().splitlines(keepends=True)
        starts = [sum(map(len, lines[:number])) for number in range(len(lines))]
        begin = starts[self.node.lineno - 1] + self.node.col_offset
        end = starts[(self.node.end_lineno or 0) - 1] + (self.node.end_col_offset or 0)
        return (code.encode()[:begin] + f"({self.text})".encode() + code.encode()[end:]).decode()


def mutants(file: Path) -> Iterator[Mutant]:
    """Yield every mutant of a file."""
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.Compare(left=left, ops=[operator], comparators=right) if type(operator) in OTHER:
                yield Mutant(file, node, ast.unparse(ast.Compare(left, [OTHER[type(operator)]()], right)))
            case ast.BoolOp(op=operator, values=values):
                yield Mutant(file, node, ast.unparse(ast.BoolOp(OTHER[type(operator)](), values)))
            case ast.If(test=test) | ast.IfExp(test=test):
                yield Mutant(file, test, f"not ({ast.unparse(test)})")
            case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
                yield Mutant(file, value, "None")
            case ast.Constant(value=bool()):
                yield Mutant(file, node, str(not node.value))
            case ast.Constant(value=int() as number):
                yield Mutant(file, node, str(number + 1))


def module_of(file: Path) -> str:
    """Return the name under which a file is imported: top-level packages are linked into `holdfast`."""
    name = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    return name if name.startswith(("holdfast", "tests")) else f"holdfast.{name}"


def imports() -> dict[str, set[str]]:
    """Map each module to the modules that it imports."""
    files = [file for top in ("holdfast", "activities", "workflows", "tests") for file in (ROOT / top).rglob("*.py")]
    graph: dict[str, set[str]] = {}
    for file in files:
        imported = graph.setdefault(module_of(file), {"tests.conftest"} if "workflow" in file.parts[-2:] else set())
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:  # the code has no other kind of import
                imported |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
    return graph


def tests_of(module: str, graph: dict[str, set[str]]) -> list[str]:
    """Return the test files that import a module, the most direct first."""
    reached, frontier = [module], {module}
    while frontier:
        frontier = {name for name, imported in graph.items() if imported & frontier} - set(reached)
        reached += sorted(frontier)
    files = (f"{name.replace('.', '/')}.py" for name in reached if ".test_" in name)
    return [file for file in files if file.startswith(TESTS)]


def outcome(mutant: Mutant, tests: list[str]) -> str:
    """Run the tests with the mutant; return `killed`, `survived` or `timed out`."""
    code = mutant.file.read_text()
    command = [sys.executable, "-m", "pytest", "-qx", "-m", "not slow", "-p", "no:cacheprovider", *tests]
    mutant.file.write_text(mutant.source(code))
    try:
        result = subprocess.run(command, cwd=ROOT, timeout=SECONDS, capture_output=True, check=False)
    except subprocess.TimeoutExpired:
        return "timed out"
    finally:
        mutant.file.write_text(code)
    return "killed" if result.returncode else "survived"


def main() -> None:
    """Draw the sample, and print the outcome of each mutant."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    files = sorted(file for top in MUTATED for file in (ROOT / top).rglob("*.py"))
    sample = random.Random(options.seed).sample([mutant for file in files for mutant in mutants(file)], options.mutants)
    graph, outcomes = imports(), Counter[str]()
    for mutant in sample:
        result = outcome(mutant, tests_of(module_of(mutant.file), graph))
        outcomes[result] += 1
        position = f"{mutant.file.relative_to(ROOT)}:{mutant.node.lineno}"
        print(f"{result:9}  {position}  {ast.unparse(mutant.node)[:60]} → {mutant.text[:60]}", flush=True)
    print(", ".join(f"{count} {name}" for name, count in outcomes.items()))


if __name__ == "__main__":
    main()
