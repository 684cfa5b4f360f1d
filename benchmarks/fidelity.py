"""How the lab's tables vary with the pretraining seed, and which seed's checkpoints are shipped.

python benchmarks/fidelity.py run       runs the lab once per seed, keeps the tables in fidelity.json
python benchmarks/fidelity.py ship      copies the median seed's checkpoints to labutils/data
python benchmarks/fidelity.py report    lists the course's numbers that lie outside what the seeds span
"""

from __future__ import annotations

import math
import shutil
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import joblib
from machine import machine
from tables import leaves, lookup
from tqdm import tqdm

from labutils.checkpoints import read_json, write_json
from labutils.results import course_tables

HERE = Path(__file__).parent
RECORD = HERE / "fidelity.json"
DATA = HERE.parent / "labutils" / "data"
PICTURE = HERE.parent / "docs" / "part2_learning_curves.png"  # of the shipped seed, in the README
SHIPPED = ("pretrained", "dr_grpo", "dr_grpo_cost")
SIGMAS = 3.0  # sampling error allowed on either side: 1 in 370 for a number at the edge of the range
RULE = "the median by accuracy after RL, which is part 2's mean over the five estimators at the last step"


@click.group()
def main() -> None:
    """See the module's docstring."""


@main.command()
@click.option("--seeds", type=click.IntRange(1), default=7, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=Path("results/fidelity"), show_default=True)
def run(seeds: int, out: Path) -> None:
    """Run the lab for seeds 0, 1, ..., one per core at a time; a stopped call goes on where it was."""

    def run_seed(seed: int) -> Any:
        folder = out / f"seed{seed}"
        out.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "labutils", "run", "--jobs", "1"]
        with open(out / f"seed{seed}.log", "w") as log:
            subprocess.run([*command, "--seed", str(seed), "--out", str(folder)], check=True, stdout=log, stderr=log)
        return read_json(folder / "tables.json")

    with ThreadPoolExecutor(joblib.cpu_count()) as pool:
        tables = list(tqdm(pool.map(run_seed, range(seeds)), total=seeds, desc="seeds"))
    made = "benchmarks/fidelity.py run: one `lab16 run --jobs 1 --seed SEED` per seed, full profile"
    write_json(RECORD, {"made": made, "machine": machine(), "seeds": dict(enumerate(tables))})


@main.command()
@click.option("--out", type=click.Path(path_type=Path), default=Path("results/fidelity"), show_default=True)
def ship(out: Path) -> None:
    """Copy the checkpoints of the seed that the rule names, and write the text file beside them."""
    record = read_json(RECORD)
    chosen = median_seed(record)
    for name in SHIPPED:
        shutil.copyfile(out / f"seed{chosen}" / "checkpoints" / f"{name}.safetensors", DATA / f"{name}.safetensors")
    shutil.copyfile(out / f"seed{chosen}" / "figures" / PICTURE.name, PICTURE)
    (DATA / "CHECKPOINTS.txt").write_text(checkpoints_text(record, chosen), encoding="utf-8")
    click.echo(f"shipped seed {chosen}")


@main.command()
def report() -> None:
    """List the course's numbers that no seed explains, widened by sampling error."""
    seeds = read_json(RECORD)["seeds"]
    for kept in (seeds, {seed: tables for seed, tables in seeds.items() if not unusual(tables)}):
        odd = outside(kept)
        click.echo(
            "\n".join([*odd, f"{len(odd)} of the course's numbers outside the range of seeds {', '.join(kept)}"])
        )


def outside(seeds: dict[str, Any]) -> list[str]:
    """The course's numbers, a line each, that lie outside what the seeds span, widened by sampling error."""
    lines = []
    course = course_tables()
    for path in leaves(course):
        expected, values = lookup(course, path), [lookup(tables, path) for tables in seeds.values()]
        low, high = (allowed(path, values, side) for side in (-1, 1))
        if not low <= expected <= high:
            lines.append(f"{' '.join(path)}: {expected} outside {low:.3f} to {high:.3f}")
    return lines


def median_seed(record: dict[str, Any]) -> str:
    """The seed that the rule names; the lower one of two in the middle."""
    seeds = record["seeds"]
    ranked = sorted(seeds, key=lambda seed: (accuracy_after_rl(seeds[seed]), int(seed)))
    return str(ranked[(len(ranked) - 1) // 2])


def checkpoints_text(record: dict[str, Any], chosen: str) -> str:
    """What stands beside the shipped checkpoints: how they were made, by which rule chosen, every seed's numbers."""
    lines = [
        "The pretrained model and the two Dr. GRPO policies of RL seed 0: float32, safetensors,",
        f"made by `lab16 run --jobs 1 --seed {chosen}` (full profile) on {record['machine']}.",
        "",
        "Which pretraining seed is shipped:",
        f"{RULE}.",
        f"Of {len(record['seeds'])} seeds that is seed {chosen}. The accuracies of all, from benchmarks/fidelity.json:",
        "",
        "seed  after RL  pretrained, by number of digits",
        "                   2     3     4     5     6     7     8",
    ]
    for seed, tables in record["seeds"].items():
        row = "  ".join(f"{value:.2f}" for value in tables["part1"]["accuracy"].values())
        lines.append(f"{seed:>4}  {accuracy_after_rl(tables):8.3f}  {row}")
    lines += ["", "The others are what experiments start from; solutions/starting_models.py says how they were made."]
    return "\n".join(lines) + "\n"


def unusual(tables: dict[str, Any]) -> bool:
    """Whether direct answers to three digits were learned too, which widens the range of every table."""
    return float(tables["part1"]["accuracy"]["3"]) > 0.9


def accuracy_after_rl(tables: dict[str, Any]) -> float:
    """The mean over the estimators of the accuracy at the last step."""
    return statistics.mean(list(run.values())[-1]["accuracy"] for run in tables["part2"].values())


def allowed(path: tuple[str, ...], values: list[float], side: int) -> float:
    """The seeds' lowest (side -1) or highest (side 1) value, moved outwards by sampling and rounding errors."""
    value = max(values) if side > 0 else min(values)
    rounding = 0.05 if path[-1] == "kl" else 0.0005 if "pass_at_k" in path else 0.005
    return value + side * (SIGMAS * sampling_error(path, value) + rounding)


def sampling_error(path: tuple[str, ...], value: float) -> float:
    """Standard error of one number of the course, from the responses behind it.

    A rate has p (1 - p) / n, with n = 200 responses by length and 2 x 350 in part 2; of pass@k this is an upper bound
    with n = 100 problems. A length is 3 plus (digits + 1) times a rate. A divergence: 1.5 nats a response.
    """
    if path[0] == "part2":
        return 1.5 / math.sqrt(700) if path[-1] == "kl" else _rate_error(value, 700)
    if "pass_at_k" in path:
        return _rate_error(value, 100)
    digits = int(path[-1])
    if "length" in path:
        return (digits + 1) * _rate_error((value - 3) / (digits + 1), 200)
    return _rate_error(value, 200)


def _rate_error(rate: float, count: int) -> float:
    # One success and one failure more keep the error of a rate near 0 or 1 above 0.
    rate = (min(max(rate, 0), 1) * count + 1) / (count + 2)
    return math.sqrt(rate * (1 - rate) / count)


if __name__ == "__main__":
    main()
