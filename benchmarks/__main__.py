"""``python -m benchmarks [--full] [--check]``: slime_store beside the alternatives, in one run, with ratios.

Systems take turns in one process, durable against durable, so that a busy machine slows them alike; figures are
medians. Peak memory is measured in child processes. A PostgreSQL server is started for the run where one is installed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import budgets, growth, report
from benchmarks.chart import chart
from benchmarks.measure import Figures, measure, tell
from benchmarks.memory import measure_memory
from benchmarks.services import postgres_url
from benchmarks.systems import SYSTEMS, Place
from benchmarks.workloads import WORKLOADS


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and return the exit code."""
    options = _options(arguments)
    found: dict[str, Figures] = {}
    result = {"machine": report.machine(), "size": options.size, "workloads": found}
    if options.read:
        result = json.loads(options.read.read_text())
        found, options.size = result["workloads"], result["size"]
    print(_head(result))
    for name in found:
        print(_tables(name, found[name], options))
    if not options.read:
        with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as directory, postgres_url() as url:
            for name in options.workloads:
                found[name] = _workload(name, options, Path(directory), url)
                tell("")
                print(_tables(name, found[name], options), flush=True)
    lines = []
    if options.check:
        lines = [*budgets.lines(found, options.size), *budgets.start_lines(), *growth.budget_lines(options.size)]
        print("\n" + report.render([budgets.TITLES, *(line.row() for line in lines)], markdown=options.markdown))
        result["budgets"] = [line.row() for line in lines]
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    if options.chart and found:
        name = next(iter(found))
        options.chart.write_text(chart(WORKLOADS[name].describe(options.size), found[name]))
    return int(options.strict and any(line.met is False for line in lines))


def _options(arguments: list[str] | None) -> Any:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--full", dest="size", action="store_const", const="full", default="quick", help="real sizes")
    parser.add_argument("--tiny", dest="size", action="store_const", const="tiny", help="sizes for tests")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS), metavar="W")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), metavar="NAME")
    parser.add_argument("--repeat", type=int, help="turns of each system that count")
    parser.add_argument(
        "--memory",
        action=argparse.BooleanOptionalAction,
        help="peak memory too; by default of the full sizes, and of W3 in any size",
    )
    parser.add_argument("--check", action="store_true", help="print each budget and whether it is met")
    parser.add_argument("--strict", action="store_true", help="with --check: exit code 1 when one is not met")
    parser.add_argument("--markdown", action="store_true", help="print tables for a document")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    parser.add_argument("--read", type=Path, metavar="FILE", help="measure nothing, show the figures of a former run")
    parser.add_argument("--chart", type=Path, metavar="FILE", help="draw the first workload's figures as SVG")
    return parser.parse_args(arguments)


def _workload(name: str, options: Any, directory: Path, url: str | None) -> Figures:
    workload = WORKLOADS[name]
    own = directory / name
    own.mkdir()
    place = Place(own, None if url is None else f"{url}&schema={name.lower()}")
    figures = measure(workload, options.size, place, options.systems, options.repeat)
    if options.memory or (options.memory is None and (options.size == "full" or name == "W3")):
        tell(f"{name}, memory")
        for system, peaks in measure_memory(workload, options.size, place, list(figures)).items():
            figures[system]["memory"] = peaks
    return figures


def _head(result: dict[str, Any]) -> str:
    machine = result["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    about = (
        f"Python {machine['python']} on {machine['system']}, {machine['processors']} processors, load average "
        f"{machine['load_average']} at the start; SQLite {machine['sqlite']}, {packages}. Size: {result['size']}."
    )
    return "\n\n".join([about, report.NOTES, report.MEMORY_NOTES])


def _tables(name: str, figures: Figures, options: Any) -> str:
    about = WORKLOADS[name].describe(options.size)
    tables = [report.time_table(figures), report.processor_table(figures), report.memory_table(figures)]
    shown = [report.render(rows, markdown=options.markdown) for rows in tables if rows]
    return "\n\n".join(["", f"### {about}" if options.markdown else about, *shown])


if __name__ == "__main__":
    raise SystemExit(main())
