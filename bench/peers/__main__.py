"""`python -m bench.peers`: run every contender, print the comparison, and write it to `bench/RESULTS.md`."""

import json
import os
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from bench import document
from bench.environment import leave, open_stack
from bench.peers import stream_report
from bench.peers.contender import Setup
from bench.peers.contenders import CONTENDERS, STREAMED
from bench.peers.driver import measure_contender, measure_resume
from bench.peers.figures import PLAIN, TUNED, Resume, Run
from bench.peers.llm import Pace, serve_model
from bench.peers.report import Report, as_json, make_report, markdown
from bench.peers.servers import plain_temporal
from bench.peers.stream_driver import measure_streams


def compare(
    names: list[str], *, lengths: list[int], repeat: int | None, resume: list[int], plain: list[int], limit: float
) -> Report:
    """Start the servers, measure all contenders, stop the servers."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    runs: list[Run] = []
    resumes: list[Resume] = []
    with open_stack() as (stack, home), serve_model() as model:
        logs = home / "logs"
        setup = Setup(stack.model_dump(mode="json"), str(home), model.url, limit, str(logs / "temporal.log"))
        for name in names:
            runs += measure_contender(
                name, setup, model, server=TUNED, lengths=lengths, repeat=repeat, progress=_report
            )
        if plain:
            with plain_temporal(log := logs / "plain-temporal.log") as address:
                untuned = replace(setup, stack={**setup.stack, "temporal_address": address}, temporal_log=str(log))
                for name in [name for name in names if CONTENDERS[name].temporal]:
                    runs += measure_contender(
                        name, untuned, model, server=PLAIN, lengths=plain, repeat=1, progress=_report
                    )
        dead = {run.contender: run.steps for run in runs if run.died and run.server == TUNED}
        for steps in resume:
            for name in [name for name in names if steps < dead.get(name, steps + 1)]:
                if steps > (CONTENDERS[name].longest or steps):
                    continue
                resumes.append(measure_resume(name, setup, model, steps=steps, progress=_report))
    return make_report(runs, resumes, lengths=lengths, limit=limit, load=load)


def compare_streams(names: list[str], *, steps: int, pace: Pace, limit: float) -> str:
    """Start the servers, measure the contenders that stream, stop the servers; return the section."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    with open_stack() as (stack, home), serve_model(pace) as model:
        log = str(home / "logs" / "temporal.log")
        setup = Setup(stack.model_dump(mode="json"), str(home), model.url, limit, log)
        results = [measure_streams(name, setup, model, pace, steps=steps, progress=_report) for name in names]
    return stream_report.markdown(results, steps=steps, pace=pace, limit=limit, load=load)


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _numbers(text: str, option: str) -> list[int]:
    try:
        numbers = sorted({int(part) for part in text.split(",") if part})
    except ValueError:
        numbers = [0]
    if any(number < 1 for number in numbers):
        raise typer.BadParameter(f"{text!r} is not a list of positive numbers such as 10,100", param_hint=option)
    return numbers


def main(
    steps: Annotated[
        str, typer.Option(help="Lengths of the runs in steps, separated by commas.")
    ] = "10,50,100,200,1000",
    only: Annotated[str, typer.Option(help=f"Contenders, separated by commas, of: {','.join(CONTENDERS)}.")] = ",".join(
        CONTENDERS
    ),
    repeat: Annotated[int | None, typer.Option(min=1, help="Runs of each length. Default: more short ones.")] = None,
    resume: Annotated[str, typer.Option(help="Lengths of the runs whose worker is killed; empty for none.")] = "100",
    plain: Annotated[str, typer.Option(help="Lengths on an untuned Temporal server; empty for none.")] = "50",
    streaming: Annotated[bool, typer.Option("--streaming", help="Measure streams alone.")] = False,
    stream_steps: Annotated[int, typer.Option(min=4, help="With --streaming: steps of a run.")] = 20,
    time_limit: Annotated[float, typer.Option(help="Seconds after which a run is aborted.")] = 120,
    write: Annotated[bool, typer.Option("--write/--no-write", help="Write the section to bench/RESULTS.md.")] = True,
    json_file: Annotated[Path | None, typer.Option("--json", help="A file for the figures of each run.")] = None,
) -> None:
    """Compare Holdfast with its alternatives, on separate embedded servers.

    Takes about fifteen minutes on two cores. The exit code does not depend on the figures.
    """
    names = [name for name in CONTENDERS if name in only.split(",")]
    lengths = _numbers(steps, "--steps")
    if not names or not lengths:
        raise typer.BadParameter("nothing to compare", param_hint="--only" if lengths else "--steps")
    code = 0
    try:
        if streaming:
            streamed = [name for name in names if name in STREAMED]
            section = compare_streams(streamed, steps=stream_steps, pace=Pace(50, 0.02), limit=time_limit)
            print(section)
            if write:
                document.write("peer-streams", section)
            leave()
        report = compare(
            names,
            lengths=lengths,
            repeat=repeat,
            resume=_numbers(resume, "--resume"),
            plain=_numbers(plain, "--plain"),
            limit=time_limit,
        )
        section = markdown(report)
        print(section)
        if json_file:
            json_file.write_text(json.dumps(as_json(report), indent=1) + "\n", encoding="utf-8")
        if write:
            document.write("peers", section)
    except KeyboardInterrupt:
        code = 130
    except Exception:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # temporalio can crash the interpreter at exit, which would change the exit code


if __name__ == "__main__":
    typer.run(main)
