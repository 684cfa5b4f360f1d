"""What correct runs' tables vary by: the bands in labutils/data/bands.json, and the page docs/calibration.md.

`make calibrate` takes about two hours on two cores; a stopped call goes on where it was.

python benchmarks/calibrate.py run       trains and evaluates, into results/calibration
python benchmarks/calibrate.py mistakes  the same with mistakes in the training
python benchmarks/calibrate.py write     writes the bands, the record and the page
"""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from string import Template
from types import FunctionType, SimpleNamespace
from typing import Any

import click
import lab16_llm_rl as solution
from joblib import cpu_count
from machine import machine
from scipy.stats import beta, t
from torch import Tensor
from tqdm import tqdm

from labutils import rollout
from labutils.checkpoints import load_checkpoint, read_json, write_json
from labutils.lab import PASS_KS, PROFILES, RUN_SEEDS, Lab, shipped_model
from labutils.model import Transformer
from labutils.results import mean_of_seeds
from labutils.runs import run_all
from labutils.task import ARROW, Problems, response_mask
from labutils.tolerance import deviations

HERE = Path(__file__).parent
RECORD = HERE / "calibration.json"
BANDS = HERE.parent / "labutils" / "data" / "bands.json"
PAGE = HERE.parent / "docs" / "calibration.md"

FALSE_ALARM = 0.01  # per notebook, shared by all numbers of its tables (Bonferroni)
# (for the bands, held out): pretraining seeds, notebooks of two RL seeds each, evaluations of the shipped model
PRETRAINING = {"full": (12, 4), "quick": (12, 12)}
NOTEBOOKS = {"full": (12, 8), "quick": (12, 12)}
EVALUATIONS = {"full": (24, 24), "quick": (48, 96)}
NOTEBOOK_PARTS = {"part 1": ("part1", "part1_shipped"), "part 2": ("part2",), "part 3": ("part3",)}
Table = Mapping[str, Any]
Keys = tuple[str, ...]


@click.group()
def main() -> None:
    """See the module's docstring."""


OUT = click.option("--out", type=click.Path(path_type=Path), default=Path("results/calibration"), show_default=True)
PROFILE = click.option("--profile", type=click.Choice(list(PROFILES)), required=True)


@main.command()
@PROFILE
@OUT
def run(profile: str, out: Path) -> None:
    """Train and evaluate with every seed; each result is a file, and one that is there is not made again."""
    out = out / profile
    tasks = {f"part1/seed{seed}": partial(pretrained_table, profile, seed) for seed in range(sum(PRETRAINING[profile]))}
    tasks |= {
        f"part1_shipped/seed{seed}": partial(shipped_table, profile, seed) for seed in range(sum(EVALUATIONS[profile]))
    }
    keep("one model at a time", tasks, out)
    for notebook in tqdm(range(sum(NOTEBOOKS[profile])), desc="notebooks"):
        folder = out / "notebooks" / f"{notebook}"
        if not (folder / "curves.json").exists():
            lab = notebook_lab(folder, profile, notebook)
            reinforce(lab)
    tasks = {
        f"part3/seed{seed}": partial(trained_table, out / "notebooks", profile, seed)
        for seed in range(len(RUN_SEEDS) * sum(NOTEBOOKS[profile]))
    }
    keep("policies", tasks, out)


def keep(name: str, tasks: Mapping[str, Callable[[], Table]], out: Path) -> None:
    """Run the tasks that have no result in `out` yet, one per core, and write each result as it comes."""
    missing = {key: partial(write_result, out / f"{key}.json", task) for key, task in tasks.items()}
    missing = {key: task for key, task in missing.items() if not (out / f"{key}.json").exists()}
    with tqdm(desc=name, total=len(missing)) as bar:
        for start in range(0, len(missing), 8):
            some = dict(list(missing.items())[start : start + 8])
            run_all(name, some, cpu_count())
            bar.update(len(some))


def write_result(path: Path, task: Callable[[], Table]) -> bool:
    """Write what the task gives."""
    write_json(path, task())
    return True


def pretrained_table(profile: str, seed: int) -> Table:
    """Part 1's table of a model pretrained from the seed."""
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab.open(Path(folder) / "run", profile, seed, jobs=1)
        return lab.evaluate_by_length(lab.pretrain(solution.pretraining_loss), solution.summarize)


def shipped_table(profile: str, seed: int) -> Table:
    """The pretrained model's part of part 3, the shipped model evaluated with the seed; without pass@k, of part 1."""
    return by_length_and_pass_at_k(shipped_model("pretrained"), profile, seed)


def by_length_and_pass_at_k(model: Transformer, profile: str, seed: int, pass_at_k: bool = True) -> dict[str, Any]:
    """A model's part of part 3."""
    lab = Lab(Path(), profile, seed, (3,), 1, PROFILES[profile])
    table = lab.evaluate_by_length(model, solution.summarize)
    return table | ({"pass_at_k": lab.pass_at_k(model, solution.pass_at_k)} if pass_at_k else {})


def notebook_lab(folder: Path, profile: str, seed: int) -> Lab:
    """A lab like the notebooks', which start from the shipped model, with another seed."""
    return replace(Lab.open(folder, profile, seed), shipped_start=True)


def reinforce(lab: Lab, **changes: Any) -> None:
    """Part 2's runs; their curves go to curves.json in the lab's folder."""
    functions: dict[str, Any] = {
        "estimators": solution.ESTIMATORS, "step_function": solution.policy_gradient_step,
        "summarize": solution.summarize, "kl_per_response": solution.kl_per_response,
    } | changes  # fmt: skip
    write_json(lab.out / "curves.json", lab.reinforce(**functions))


def trained_table(notebooks: Path, profile: str, seed: int) -> Table:
    """Part 3's table with the policies of RL seed `seed`, evaluated with that seed."""
    folder = notebooks / f"{seed // len(RUN_SEEDS)}" / "state"
    table = {}
    for name in ("dr_grpo", "dr_grpo_cost"):
        (path,) = folder.glob(f"{name}-seed{seed % len(RUN_SEEDS)}-*.safetensors")
        tensors = {key.removeprefix("model."): value for key, value in load_checkpoint(path)[0].items()
                   if key.startswith("model.")}  # fmt: skip
        policy = Transformer()
        policy.load_state_dict(tensors)
        table[name] = by_length_and_pass_at_k(policy, profile, seed, pass_at_k=name == "dr_grpo")
    return table


@main.command()
@PROFILE
@OUT
def mistakes(profile: str, out: Path) -> None:
    """Part 2 with mistakes in the training that no self-check of a single function could see."""
    for name, change in TRAINING_MISTAKES.items():
        folder = out / profile / "mistakes" / name.replace(" ", "_")
        if not (folder / "curves.json").exists():
            lab = notebook_lab(folder, profile, seed=0)
            lab, changes = change(lab)
            reinforce(lab, **changes)


Change = Callable[[Lab], tuple[Lab, dict[str, Any]]]


def _cost(cost: float) -> Change:
    estimators = dict(solution.ESTIMATORS)
    estimators["dr_grpo_cost"] = replace(estimators["dr_grpo_cost"], length_cost=cost)
    return lambda lab: (lab, {"estimators": estimators})


def _everywhere(**changes: Any) -> Change:
    estimators = {name: replace(estimator, **changes) for name, estimator in solution.ESTIMATORS.items()}
    return lambda lab: (lab, {"estimators": estimators})


def _settings(**changes: Any) -> Change:
    return lambda lab: (
        replace(lab, sizes=replace(lab.sizes, reinforcement=replace(lab.sizes.reinforcement, **changes))), {}
    )  # fmt: skip


def _step_with(**names: Any) -> Change:
    """The training step with other things under some of its global names."""
    step = solution.policy_gradient_step
    changed = FunctionType(step.__code__, {**vars(solution), **names}, step.__name__)
    return lambda lab: (lab, {"step_function": changed})


def _sampled_at(temperature: float) -> Change:
    generate = partial(rollout.generate, temperature=temperature)
    names = SimpleNamespace(generate=generate, response_log_probs=rollout.response_log_probs)
    return _step_with(rollout=names)


def _answer_anywhere(problems: Problems, responses: Tensor) -> Tensor:
    inside = response_mask(responses)
    return ((responses == problems.answers[:, None]) & inside).any(1)


def _form_only(problems: Problems, responses: Tensor) -> Tensor:
    return ((responses == ARROW) & response_mask(responses)).any(1)


TRAINING_MISTAKES: dict[str, Change] = {
    "length cost 0.2": _cost(0.2),
    "length cost -0.02": _cost(-0.02),
    "length cost 0.002": _cost(0.002),
    "greedy sampling": _sampled_at(0.01),
    "sampled at temperature 0.5, scored at 1": _sampled_at(0.5),
    "one problem a step": _settings(problems=1),
    "two responses a problem": _everywhere(group_size=2),
    "verifier that looks anywhere": _step_with(verify=_answer_anywhere),
    "verifier that looks at the form": _step_with(verify=_form_only),
    "step size ten times smaller": _settings(step_size=3e-5),
    "step size ten times larger": _settings(step_size=3e-3),
}


@main.command()
@OUT
def write(out: Path) -> None:
    """Write the record of all runs, the bands, and the page."""
    profiles = {profile: collected(profile, out) for profile in PROFILES}
    write_json(RECORD, {"machine": machine(), **profiles}, indent=None)
    record = read_json(RECORD)
    write_json(BANDS, {profile: bands_of(record[profile], profile) for profile in PROFILES})
    PAGE.write_text(page(record), encoding="utf-8")


def collected(profile: str, out: Path) -> dict[str, Any]:
    """Every result of `run` and `mistakes`: tables whose every entry is the list of its values, a seed each.

    The seeds for the bands come first, the held-out ones after them.
    """
    folder = out / profile

    def tables(part: str, count: int) -> list[Table]:
        return [read_json(folder / part / f"seed{seed}.json") for seed in range(count)]

    policies = tables("part3", len(RUN_SEEDS) * sum(NOTEBOOKS[profile]))
    shipped = tables("part1_shipped", sum(EVALUATIONS[profile]))
    curves = [read_json(folder / "notebooks" / f"{n}" / "curves.json") for n in range(sum(NOTEBOOKS[profile]))]
    wrong = {
        name: read_json(folder / "mistakes" / name.replace(" ", "_") / "curves.json") for name in TRAINING_MISTAKES
    }
    return {
        "part1": stacked(tables("part1", sum(PRETRAINING[profile]))),
        "part1_shipped": stacked([without_pass_at_k(table) for table in shipped]),
        "part2": stacked([single_run(curve, seed) for curve in curves for seed in map(str, RUN_SEEDS)]),
        "part3": stacked([{"pretrained": before, **after} for before, after in zip(shipped, policies, strict=False)]),
        "mistakes": {name: stacked([mean_of_seeds(curve)]) for name, curve in wrong.items()},
    }


def stacked(tables: list[Table]) -> dict[str, Any]:
    """One table whose entries are the lists of the tables' values, to 4 decimals."""
    found: dict[str, Any] = {}
    for keys in leaves(tables[0]):
        nest(found, keys, [round(lookup(table, keys), 4) for table in tables])
    return found


def seeds_for_bands(part: str, profile: str) -> int:
    """How many seeds, the first ones, the bands come from."""
    counts = {"part1": PRETRAINING, "part1_shipped": EVALUATIONS}.get(part, NOTEBOOKS)[profile]
    return counts[0] * (1 if part.startswith("part1") else len(RUN_SEEDS))


def bands_of(record: Table, profile: str) -> dict[str, Any]:
    """The bands of every part, nested like its table."""
    found: dict[str, Any] = {}
    for parts in NOTEBOOK_PARTS.values():
        together = sum(len(leaves(record[part])) for part in parts)
        for part in parts:
            for keys in leaves(record[part]):
                values = lookup(record[part], keys)[: seeds_for_bands(part, profile)]
                averaged = len(RUN_SEEDS) if part == "part2" else 1
                step = resolution(part, keys, profile)
                nest(found, (part, *keys), band(keys, values, step, averaged, together))
    return found


def held_out(record: Table, part: str, profile: str) -> list[dict[str, Any]]:
    """The tables that held-out seeds give: of part 2, each the mean of two seeds that no other table has."""
    first, size = seeds_for_bands(part, profile), len(RUN_SEEDS) if part == "part2" else 1
    count = len(lookup(record[part], leaves(record[part])[0]))
    tables: list[dict[str, Any]] = []
    for start in range(first, count - size + 1, size):
        table: dict[str, Any] = {}
        for keys in leaves(record[part]):
            nest(table, keys, statistics.mean(lookup(record[part], keys)[start : start + size]))
        tables.append(table)
    return tables


def false_alarms(record: Table, bands: Table, parts: Sequence[str], profile: str) -> tuple[int, int]:
    """(failed, all) notebooks of held-out seeds: those with any number outside its band."""
    notebooks = list(zip(*(held_out(record, part, profile) for part in parts), strict=False))
    failed = [
        tables for tables in notebooks if any(deviations(t, bands[part]) for part, t in zip(parts, tables, strict=True))
    ]
    return len(failed), len(notebooks)


def without_pass_at_k(table: Table) -> Table:
    """The table by length alone, as in part 1."""
    return {metric: row for metric, row in table.items() if metric != "pass_at_k"}


def single_run(curves: Table, seed: str) -> Table:
    """Part 2's table of one seed alone."""
    return mean_of_seeds({name: {seed: seeds[seed]} for name, seeds in curves.items()})


def band(keys: Keys, values: list[float], resolution: float, averaged: int, entries: int) -> list[float]:
    """[low, high, mean]: where a new value, a mean of `averaged` runs, lies but for FALSE_ALARM / entries of the time.

    A prediction interval with Student's t for `values`, one a run. Their standard deviation is taken as one step of
    the scale at least (`resolution`), since values that are all equal show none.
    """
    count, mean = len(values), statistics.mean(values)
    spread = max(statistics.stdev(values), resolution) * math.sqrt(1 / averaged + 1 / count)
    reach = float(t.ppf(1 - FALSE_ALARM / entries / 2, count - 1)) * spread
    low, high = mean - reach, mean + reach
    if "length" not in keys and "kl" not in keys:
        low, high = max(low, 0.0), min(high, 1.0)
    return [round(low, 6), round(high, 6), round(mean, 6)]


def resolution(part: str, keys: Keys, profile: str) -> float:
    """The change of one response: of a rate, of a mean length in tokens, of KL 0.001 nats, of pass@k of one problem."""
    sizes = PROFILES[profile]
    if part == "part2":
        return 0.001 if keys[-1] == "kl" else 1 / (7 * sizes.reinforcement.evaluation_problems)
    if "pass_at_k" in keys:
        return 1 / sizes.pass_problems if keys[-1] != "1" else 1 / sizes.pass_problems / max(PASS_KS)
    return (int(keys[-1]) + 1 if "length" in keys else 1) / sizes.samples_per_length


def leaves(table: Any, keys: Keys = ()) -> list[Keys]:
    """The keys of every number of a table."""
    if not isinstance(table, Mapping):
        return [keys]
    return [leaf for key, value in table.items() for leaf in leaves(value, (*keys, key))]


def lookup(table: Any, keys: Keys) -> Any:
    """What stands at the keys."""
    for key in keys:
        table = table[key]
    return table


def nest(table: dict[str, Any], keys: Keys, value: Any) -> None:
    """Put the value at the keys."""
    for key in keys[:-1]:
        table = table.setdefault(key, {})
    table[keys[-1]] = value


def page(record: Table) -> str:
    """docs/calibration.md."""
    bands = {profile: bands_of(record[profile], profile) for profile in PROFILES}
    alarms, caught = [], []
    for profile in PROFILES:
        for name, parts in NOTEBOOK_PARTS.items():
            failed, count = false_alarms(record[profile], bands[profile], parts, profile)
            limit = float(beta.ppf(0.95, failed + 1, count - failed))  # Clopper and Pearson, 1934
            numbers = sum(len(leaves(record[profile][part])) for part in parts)
            alarms.append(f"| {profile} | {name} | {numbers} | {failed} of {count} | {100 * limit:.0f} % |")
        entries = len(leaves(record[profile]["part2"]))
        for name, table in record[profile]["mistakes"].items():
            wrong: dict[str, Any] = {}
            for keys in leaves(table):
                nest(wrong, keys, lookup(table, keys)[0])
            outside = deviations(wrong, bands[profile]["part2"])
            first = str(outside[0]) if outside else "none: not caught"
            caught.append(f"| {profile} | {name} | {len(outside)} of {entries} | {first} |")
    template = Template((HERE / "calibration.md.template").read_text(encoding="utf-8"))
    return template.substitute(
        machine=record["machine"], seeds=seeds_text(), alarms="\n".join(alarms), caught="\n".join(caught)
    )


def seeds_text() -> str:
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


if __name__ == "__main__":
    main()
