"""The command `lab16`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import click
import cloudpickle

from labutils.errors import LabError
from labutils.lab import LARGEST_SEED, MOST_JOBS, PROFILES, Lab


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
@click.option(
    "--solution", type=click.Path(path_type=Path), default=Path("solutions/lab16_llm_rl.py"),
    show_default=True, help="The file with the exercise functions; it is run.",
)  # fmt: skip
def run(part: str, profile: str, seed: int, out: Path | None, jobs: int | None, solution: Path) -> None:
    """Run the lab: train, evaluate, print the tables beside the expected values, draw the figures."""
    parts = (1, 2, 3) if part == "all" else (int(part),)
    module = _load(solution)
    lab = Lab.open(out, profile, seed, parts, jobs)
    module.main(lab)
    click.echo(f"tables, figures and checkpoints are in {lab.out}")


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
