"""How much faster a sweep is with two workers than with one: `python benchmarks/sweep_scaling.py`, about 10 minutes.

The same eight runs by joblib processes and by the workers of a Dask scheduler on this machine, one and two of each, in
turn and twice, since times vary. What one worker needs, starting it included, is the baseline.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import click
import lab16_llm_rl as solution
from distributed import LocalCluster
from machine import machine

from labutils.checkpoints import write_json
from labutils.experiments import Exercises
from labutils.runs import local_processes
from labutils.sweep import Database, dask_cluster, grid, sweep

HERE = Path(__file__).parent
RUNS = grid({"estimator": ["rloo"], "steps": [100], "seed": range(8)})
TIMES = 2


@contextmanager
def dask(workers: int) -> Iterator[int]:
    """A cluster of so many workers, each a process of one thread."""
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
        dask_cluster(cluster.scheduler_address) as count,
    ):
        yield count


def seconds(backend: AbstractContextManager[int]) -> float:
    """What the runs take, with an empty file of results."""
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, backend as workers:
        sweep(RUNS, Exercises.of_module(solution), Database(Path(folder) / "runs.sqlite"), workers)
    return time.perf_counter() - begun


def measure() -> dict[str, Any]:
    """Backend -> workers -> the seconds of each time."""
    backends = {"joblib": local_processes, "dask": dask}
    found: dict[str, Any] = {name: {"1": [], "2": []} for name in backends}
    for _ in range(TIMES):
        for name, backend in backends.items():
            for workers in (1, 2):
                found[name][str(workers)].append(round(seconds(partial(backend, workers)()), 1))
    return found


@click.command()
@click.option("--out", type=click.Path(path_type=Path), default=HERE / "sweep_scaling.json", show_default=True)
def main(out: Path) -> None:
    """Measure, print, and keep the numbers."""
    found = measure()
    write_json(out, {"machine": machine(), "runs": len(RUNS), "steps": RUNS[0].steps, "seconds": found})
    for name, times in found.items():
        one, two = median(times["1"]), median(times["2"])
        click.echo(f"{name}: {one:.0f} s with one worker, {two:.0f} s with two; efficiency {one / two / 2:.2f}")


if __name__ == "__main__":
    main()
