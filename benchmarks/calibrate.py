"""What correct runs' tables vary by: the bands in labutils/data/bands.json, and the page docs/calibration.md.

`make calibrate` takes about two hours on two cores; a stopped call goes on where it was. Results in the folder are
taken as they are: after a change of the task, the training or the evaluation, begin with an empty one.

python benchmarks/calibrate.py run       trains and evaluates, into results/calibration
python benchmarks/calibrate.py mistakes  the same with mistakes in the training
python benchmarks/calibrate.py write     writes the bands, the record and the page
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import starmap
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

import click
import lab16_llm_rl as solution
from calibration import EVALUATIONS, NOTEBOOKS, PRETRAINING, bands_of, page
from joblib import Parallel, cpu_count, delayed
from machine import machine
from tables import leaves, lookup, nested
from torch import Tensor
from tqdm import tqdm

from labutils import rollout
from labutils.checkpoints import load_checkpoint, read_json, write_json
from labutils.lab import PROFILES, RUN_SEEDS, Lab, shipped_model
from labutils.model import Transformer
from labutils.results import mean_of_seeds
from labutils.task import ARROW, Problems, response_mask
from labutils.tolerance import Table
from labutils.training import one_thread

HERE = Path(__file__).parent
RECORD = HERE / "calibration.json"
BANDS = HERE.parent / "labutils" / "data" / "bands.json"
PAGE = HERE.parent / "docs" / "calibration.md"


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
    missing = [(out / f"{key}.json", task) for key, task in tasks.items() if not (out / f"{key}.json").exists()]
    written = Parallel(cpu_count(), return_as="generator_unordered")(starmap(delayed(_write_result), missing))
    for _ in tqdm(written, desc=name, total=len(missing)):
        pass


def _write_result(path: Path, task: Callable[[], Table]) -> None:
    with one_thread():
        write_json(path, task())


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
    # Those of the experiments, under "any", are made from other runs.
    write_json(BANDS, read_json(BANDS) | {profile: bands_of(record[profile], profile) for profile in PROFILES})
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
    return nested({keys: [round(lookup(table, keys), 4) for table in tables] for keys in leaves(tables[0])})


def without_pass_at_k(table: Table) -> Table:
    """The table by length alone, as in part 1."""
    return {metric: row for metric, row in table.items() if metric != "pass_at_k"}


def single_run(curves: Table, seed: str) -> Table:
    """Part 2's table of one seed alone."""
    return mean_of_seeds({name: {seed: seeds[seed]} for name, seeds in curves.items()})


if __name__ == "__main__":
    main()
