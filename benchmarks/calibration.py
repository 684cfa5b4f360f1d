"""From the numbers of many seeds to bands, to the rate at which correct notebooks leave them, and to the page.

A record of a profile holds, for each part, a table whose every entry is the list of its values, a seed each: the seeds
for the bands first, the held-out ones after them. `mistakes` holds part 2's table of each wrong training.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta
from scipy.stats import t as student
from tables import leaves, lookup, nested

from labutils.lab import PASS_KS, PROFILES, RUN_SEEDS
from labutils.results import Keys
from labutils.tolerance import Table, deviations

TEMPLATE = Path(__file__).with_name("calibration.md.template")
FALSE_ALARM = 0.01  # per notebook, shared by all numbers of its tables (Bonferroni)
EXCURSIONS = 2  # times as far as any run has strayed
SETTLED = 75  # steps after which the policies vary about the same values
SHUFFLES = 50
CONFIDENCE = 0.95  # of the upper ends of rates
# (for the bands, held out): pretraining seeds, notebooks of two RL seeds each, evaluations of the shipped model
PRETRAINING = {"full": (12, 4), "quick": (12, 12)}
NOTEBOOKS = {"full": (24, 8), "quick": (24, 24)}
EVALUATIONS = {"full": (24, 40), "quick": (48, 96)}
NOTEBOOK_PARTS = {"part 1": ("part1", "part1_shipped"), "part 2": ("part2",), "part 3": ("part3",)}


def bands_of(record: Table, profile: str) -> dict[str, Any]:
    """The bands of the record's parts, nested like their tables, from the seeds for the bands: [low, high, mean]."""
    found = {}
    for parts in NOTEBOOK_PARTS.values():
        together = sum(len(leaves(record.get(part, {}))) for part in parts)
        for part in set(parts) & set(record):
            seeds = seeds_for_bands(part, profile)
            values = {keys: lookup(record[part], keys)[:seeds] for keys in leaves(record[part])}
            farthest = _excursions(part, values)
            for keys, runs in values.items():
                strayed = EXCURSIONS * farthest.get(kind(part, keys), 0.0) / _averaged(part)
                smallest = _smallest(part, keys, profile)
                found[(part, *keys)] = band(keys, runs, smallest, _averaged(part), together, strayed)
    return nested(found)


def kind(part: str, keys: Keys) -> Keys:
    """What numbers are called that training moves alike; empty where only sampling moves them, as of one model."""
    if part == "part1" and keys[0] == "accuracy":
        return keys[0], "2 digits" if keys[-1] == "2" else "more"
    if part == "part2":
        return keys[-1], str(min(int(keys[-2]), SETTLED))
    if part == "part3" and keys[0] != "pretrained":
        return ("accuracy" if "pass_at_k" in keys else keys[1],)
    return ()


def _excursions(part: str, values: Mapping[Keys, list[float]]) -> dict[Keys, float]:
    """Kind -> how far any run has strayed from the mean of a number of that kind."""
    farthest: dict[Keys, float] = {}
    for keys, runs in values.items():
        if name := kind(part, keys):
            mean = math.fsum(runs) / len(runs)
            farthest[name] = max(farthest.get(name, 0.0), *(abs(value - mean) for value in runs))
    return farthest


def _averaged(part: str) -> int:
    """How many seeds a notebook shows the mean of."""
    return len(RUN_SEEDS) if part == "part2" else 1


def seeds_for_bands(part: str, profile: str) -> int:
    """How many seeds, the first ones, the bands come from."""
    if part.startswith("part1"):
        return {"part1": PRETRAINING, "part1_shipped": EVALUATIONS}[part][profile][0]
    return NOTEBOOKS[profile][0] * len(RUN_SEEDS)


def _smallest(part: str, keys: Keys, profile: str) -> float:
    """The smallest change of a number: one response of a rate, one problem of pass@k, 0.001 nats of KL."""
    sizes = PROFILES[profile]
    if part == "part2":
        return 0.001 if keys[-1] == "kl" else 1 / (7 * sizes.reinforcement.evaluation_problems)
    if "pass_at_k" in keys:
        return 1 / sizes.pass_problems if keys[-1] != "1" else 1 / sizes.pass_problems / max(PASS_KS)
    return 1 / sizes.samples_per_length


def band(
    keys: Keys, values: list[float], smallest: float, averaged: int, entries: int, strayed: float = 0.0
) -> list[float]:
    """[low, high, mean]: where a new value, a mean of `averaged` runs, lies but for FALSE_ALARM / entries of the time.

    values: one a run. smallest: the change of one response, as a rate. strayed: how far the band reaches at least.
    A rate near 0 or 1 varies more towards the middle than towards the edge; its band is the wider, on each side, of
    the interval for the rate itself and of that for asin(sqrt(rate)), on which scale a rate of n responses has a
    standard error of at least 1 / (2 sqrt(n)) whatever it is (Bartlett, 1936). A mean length is a rate of worked
    responses in disguise.
    """
    reach = _quantile(1 - FALSE_ALARM / entries / 2, len(values) - 1) * math.sqrt(1 / averaged + 1 / len(values))
    mean = math.fsum(values) / len(values)
    if "kl" in keys:
        low, high = _interval(np.array(values), smallest, reach)
    else:
        # A direct response has 3 tokens, a worked one as many as digits and 4.
        start, scale = (3.0, int(keys[-1]) + 1.0) if "length" in keys else (0.0, 1.0)
        rates = (np.array(values) - start) / scale
        angles = _interval(np.arcsin(np.sqrt(rates.clip(0, 1))), math.sqrt(smallest) / 2, reach)
        bent, plain = np.sin(np.clip(angles, 0, math.pi / 2)) ** 2, _interval(rates, smallest, reach)
        low, high = start + scale * min(bent[0], plain[0]), start + scale * max(bent[1], plain[1])
    low, high = min(low, mean - strayed), max(high, mean + strayed)
    if not {"length", "kl"} & set(keys):
        low, high = max(low, 0.0), min(high, 1.0)
    return [round(float(value), 6) for value in (low, high, mean)]


def _interval(values: NDArray[np.float64], smallest: float, reach: float) -> tuple[float, float]:
    """Mean minus and plus `reach` standard deviations, which are `smallest` at least."""
    mean, deviation = float(values.mean()), max(float(values.std(ddof=1)), smallest)
    return mean - reach * deviation, mean + reach * deviation


@cache
def _quantile(probability: float, freedom: int) -> float:
    return float(student.ppf(probability, freedom))


def held_out_alarms(record: Table, profile: str, parts: Sequence[str]) -> tuple[int, int]:
    """(failed, all) notebooks of held-out seeds: those with any number outside its band."""
    bands = bands_of({part: record[part] for part in parts}, profile)
    first = {part: seeds_for_bands(part, profile) // _averaged(part) for part in parts}
    count = min(_notebooks(record[part], part) - first[part] for part in parts)
    failed = sum(
        any(deviations(notebook_table(record[part], part, first[part] + number), bands[part]) for part in parts)
        for number in range(count)
    )
    return failed, count


def shuffled_alarms(record: Table, profile: str, parts: Sequence[str]) -> tuple[int, int]:
    """The same, summed over random choices of as many seeds for the bands; these overlap, so no error is claimed."""
    generator, failed, total = random.Random(0), 0, 0
    for _ in range(SHUFFLES):
        mixed = {part: _shuffled(record[part], part, generator) for part in parts}
        wrong, count = held_out_alarms(mixed, profile, parts)
        failed, total = failed + wrong, total + count
    return failed, total


def _shuffled(table: Table, part: str, generator: random.Random) -> dict[str, Any]:
    """The table with its notebooks in another order, their seeds together."""
    size, order = _averaged(part), list(range(_notebooks(table, part)))
    generator.shuffle(order)
    seeds = [size * number + seed for number in order for seed in range(size)]
    return nested({keys: [lookup(table, keys)[seed] for seed in seeds] for keys in leaves(table)})


def _notebooks(table: Table, part: str) -> int:
    return len(lookup(table, leaves(table)[0])) // _averaged(part)


def notebook_table(table: Table, part: str, number: int) -> dict[str, Any]:
    """What the notebook of that number shows: of part 2 the mean of two seeds that no other notebook has."""
    size = _averaged(part)
    return nested({keys: sum(lookup(table, keys)[number * size :][:size]) / size for keys in leaves(table)})


def page(record: Table) -> str:
    """docs/calibration.md."""
    template = Template(TEMPLATE.read_text(encoding="utf-8"))
    alarms = [_alarms_line(record[profile], profile, name) for profile in PROFILES for name in NOTEBOOK_PARTS]
    caught = [line for profile in PROFILES for line in _mistake_lines(record[profile], profile)]
    return template.substitute(
        machine=record["machine"],
        seeds=_seeds_text(),
        shuffles=SHUFFLES,
        alarms="\n".join(alarms),
        caught="\n".join(caught),
    )


def _alarms_line(record: Table, profile: str, name: str) -> str:
    parts = NOTEBOOK_PARTS[name]
    failed, count = held_out_alarms(record, profile, parts)
    numbers = sum(len(leaves(record[part])) for part in parts)
    others, total = shuffled_alarms(record, profile, parts)
    return (
        f"| {profile} | {name} | {numbers} | {failed} of {count} | {100 * upper_end(failed, count):.0f} % "
        f"| {others} of {total}, {100 * others / total:.1f} % |"
    )


def upper_end(failed: int, count: int) -> float:
    """Of the one-sided interval for a rate (Clopper and Pearson, 1934)."""
    return 1.0 if failed == count else float(beta.ppf(CONFIDENCE, failed + 1, count - failed))


def _mistake_lines(record: Table, profile: str) -> list[str]:
    bands, lines = bands_of(record, profile)["part2"], []
    for name, table in record["mistakes"].items():
        outside = deviations(nested({keys: lookup(table, keys)[0] for keys in leaves(table)}), bands)
        first = str(outside[0]) if outside else "none: not caught"
        lines.append(f"| {profile} | {name} | {len(outside)} of {len(leaves(table))} | {first} |")
    return lines


def _seeds_text() -> str:
    """How many seeds there were, as a table."""
    lines = ["| profile | what | seeds for the bands | held out |", "|---|---|---|---|"]
    for profile in PROFILES:
        bands_from, rest = (len(RUN_SEEDS) * count for count in NOTEBOOKS[profile])
        lines += [
            "| {} | pretraining (part1) | {} | {} |".format(profile, *PRETRAINING[profile]),
            "| {} | evaluations of the lab's model (part1_shipped) | {} | {} |".format(profile, *EVALUATIONS[profile]),
            f"| {profile} | runs of each estimator from the lab's model (part2, part3) | {bands_from} | {rest} |",
        ]
    return "\n".join(lines)
