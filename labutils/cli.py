"""The command `lab16`."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import cloudpickle
import joblib

from labutils import sweep_report
from labutils.errors import LabError
from labutils.experiments import Exercises, RunSettings
from labutils.lab import LARGEST_SEED, MOST_JOBS, PROFILES, Lab
from labutils.runs import local_processes
from labutils.sweep import Database, dask_cluster, grid
from labutils.sweep import sweep as sweep_runs

SOLUTION = click.option(
    "--solution", type=click.Path(path_type=Path), default=Path("solutions/lab16_llm_rl.py"),
    show_default=True, help="The file with the exercise functions; it is run.",
)  # fmt: skip


@click.group()
def commands() -> None:
    """Lab 16: reinforcement learning for a small language model."""


@commands.command()
@click.option("--part", type=click.Choice(["1", "2", "3", "all"]), default="all", show_default=True)
@click.option("--profile", type=click.Choice(list(PROFILES)), default="full", show_default=True)
@click.option("--seed", type=click.IntRange(0, LARGEST_SEED), default=0, show_default=True)
@click.option(
    "--out", type=click.Path(path_type=Path),
    help="Folder for tables, figures and checkpoints, results/PROFILE by default; a stopped run goes on from it.",
)  # fmt: skip
@click.option("--jobs", type=click.IntRange(1, MOST_JOBS), help="Processes and threads at once; all cores by default.")
@SOLUTION
def run(part: str, profile: str, seed: int, out: Path | None, jobs: int | None, solution: Path) -> None:
    """Run the lab: train, evaluate, print the tables beside the expected values, draw the figures."""
    parts = (1, 2, 3) if part == "all" else (int(part),)
    module = _load(solution)
    lab = Lab.open(out, profile, seed, parts, jobs)
    module.main(lab)
    click.echo(f"tables, figures and checkpoints are in {lab.out}")


class Values(click.ParamType[list[Any]]):
    """One value or several, separated by commas; of whole numbers also a range, 0-7."""

    name = "values"

    def __init__(self, kind: Callable[[str], Any]):
        self.kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[Any]:
        """The values; click shows what is wrong with one that is none."""
        found: list[Any] = []
        for text in str(value).split(","):
            first, dash, last = text.strip().partition("-")
            try:
                if self.kind is int and dash and first:
                    found += range(int(first), int(last) + 1)
                else:
                    found.append(self.kind(text.strip()))
            except ValueError:
                self.fail(f"{text.strip()!r} is no {'whole ' if self.kind is int else ''}number", param, ctx)
        return found or self.fail(f"{value!r} holds no value", param, ctx)


def _grid_option(setting: str, kind: Callable[[str], Any], text: str) -> Callable[[Any], Any]:
    """An option for a setting of `RunSettings`, whose default is that one's."""
    default = getattr(RunSettings(), setting)
    return click.option(
        f"--{setting.replace('_', '-')}", setting, type=Values(kind), default=str(default), show_default=True, help=text
    )


def _penalty(text: str) -> tuple[str, float]:
    """`k3-loss:0.1` as what `RunSettings` calls `kl` and `kl_strength`."""
    place, _, strength = text.partition(":")
    return place, float(strength or 0)


@commands.command()
@click.option("--out", type=click.Path(path_type=Path), default=Path("sweep.sqlite"), show_default=True,
              help="The file of results; a stopped sweep goes on from it.")  # fmt: skip
@_grid_option("pretraining", str, "Starting model: scratch, onward or repeating.")
@_grid_option("worked_rate", float, "Share of worked answers in its data, 0 to 1.")
@_grid_option("estimator", str, "reinforce, rloo, grpo or dr_grpo.")
@_grid_option("length_cost", float, "Reward subtracted per response token.")
@_grid_option("entropy_bonus", float, "Times the mean entropy, subtracted from the loss.")
@_grid_option("temperature", float, "Of the policy while it trains.")
@click.option("--kl", type=Values(_penalty), default="none", show_default=True,
              help="none, or PLACE:STRENGTH with the place k1-reward, k1-loss or k3-loss.")  # fmt: skip
@_grid_option("verifier", str, "answer, form or anywhere.")
@_grid_option("steps", int, "Gradient steps.")
@_grid_option("evaluate_every", int, "Steps between evaluations.")
@_grid_option("seed", int, "Of training problems and sampling; 0-7 stands for eight.")
@click.option("--jobs", type=click.IntRange(1, MOST_JOBS), help="Processes at once; all cores by default.")
@click.option("--scheduler", metavar="tcp://HOST:PORT", help="Compute on the workers of this Dask scheduler.")
@click.option("--report", is_flag=True, help="Compute nothing; print and plot what the file holds.")
@SOLUTION
def sweep(
    out: Path, jobs: int | None, scheduler: str | None, report: bool, solution: Path, kl: list[Any], **choices: Any
) -> None:
    """Run a grid of experiments. Every option of a setting takes one value or several, separated by commas."""
    if report:
        click.echo(sweep_report.write(Database(_existing(out))))
        return
    places = [{"kl": place, "kl_strength": strength} for place, strength in kl]
    runs = [settings for place in places for settings in grid({**choices, **{k: [v] for k, v in place.items()}})]
    exercises = Exercises.of_module(_load(solution))
    for settings in runs:
        exercises.require(settings)
    cluster = dask_cluster(scheduler) if scheduler else local_processes(jobs or joblib.cpu_count())
    with cluster as workers:
        sweep_runs(runs, exercises, Database(out), workers)
    click.echo(f"{len(runs)} runs are in {out}; lab16 sweep --report --out {out} shows them")


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise LabError(f"there is no file {path}; name the file of results by --out")
    return path


def _load(path: Path) -> ModuleType:
    """The module in the file. Its functions reach the worker processes by value: they cannot import it by name."""
    if not path.is_file():
        raise LabError(f"there is no file {path}; name the file with the exercise functions by --solution")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise LabError(f"{path} is not a Python file; --solution needs one")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    cloudpickle.register_pickle_by_value(module)
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise LabError(f"{path}, line {error.lineno}: {error.msg}") from error
    if not hasattr(module, "main"):
        raise LabError(f"{path} has no function main(lab)")
    return module


def main() -> None:
    """Run the command. A mistake in the input ends with one line and exit code 2, an interruption with 130."""
    try:
        commands.main(standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except click.ClickException as error:
        sys.exit(_complain(error.format_message()))
    except LabError as error:
        sys.exit(_complain(str(error)))
    except OSError as error:  # a full disk, a file where a folder should be
        sys.exit(_complain(f"{error.filename or 'writing'}: {error.strerror or error}"))
    except click.Abort as stop:  # click's form of KeyboardInterrupt, whose message says how far it came
        click.echo(f"lab16: {str(stop.__cause__ or '') or 'stopped'}; the same command goes on from there", err=True)
        sys.exit(130)


def _complain(message: str) -> int:
    click.echo(f"lab16: {' '.join(message.split())}", err=True)
    return 2
