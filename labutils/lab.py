"""One run of the lab: its sizes, its folder, and what the three parts do with the students' functions.

DIR/tables.json     every table of the run
DIR/figures/        the figures, PNG and SVG
DIR/checkpoints/    the pretrained model and the Dr. GRPO policies
DIR/state/          what a stopped run goes on from
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import joblib
import torch
from matplotlib.figure import Figure
from torch import Tensor

from labutils import plots, results, training
from labutils.checkpoints import load_model, read_json, save_model, write_json
from labutils.errors import LabError
from labutils.model import Transformer
from labutils.runs import run_all
from labutils.task import sample_problems
from labutils.training import (
    Estimator,
    PretrainingSettings,
    ReinforcementSettings,
    StepFunction,
    Summary,
)

RUN_SEEDS = (0, 1)  # part 2 runs every estimator from each
KEPT_POLICIES = ("dr_grpo", "dr_grpo_cost")  # of the first seed: what part 3 evaluates
LARGEST_SEED = 2**16 - 1  # so that the seeds of evaluations, derived from it, fit into PyTorch's 32 bits
MOST_JOBS = 256  # far more threads than that bring the interpreter down
PASS_LENGTHS, PASS_KS = (4, 6, 8), (1, 8, 64)


@dataclass(frozen=True)
class Profile:
    """The sizes of a run.

    samples_per_length: responses per number of digits in an evaluation.
    pass_problems: problems per number of digits for pass@k, with 64 samples each.
    unfinished_pretraining: part 1's model is not trained far enough to be built on, so that parts 2 and 3 start from
        the checkpoint that comes with the lab.
    """

    pretraining: PretrainingSettings = PretrainingSettings()
    reinforcement: ReinforcementSettings = ReinforcementSettings()
    samples_per_length: int = 200
    pass_problems: int = 100
    unfinished_pretraining: bool = False


PROFILES = {
    "full": Profile(),
    "quick": Profile(
        PretrainingSettings(steps=400),
        ReinforcementSettings(steps=50, evaluation_problems=25),
        samples_per_length=100,
        pass_problems=20,
        unfinished_pretraining=True,
    ),
}


@dataclass(frozen=True)
class Lab:
    """One run of the lab, made by `Lab.open`."""

    out: Path
    profile: str
    seed: int
    parts: tuple[int, ...]
    jobs: int
    sizes: Profile = field(repr=False)

    @classmethod
    def open(
        cls,
        out: Path | None = None,
        profile: str = "full",
        seed: int = 0,
        parts: tuple[int, ...] = (1, 2, 3),
        jobs: int | None = None,
        code: Path | None = None,
    ) -> Lab:
        """Check the arguments, prepare the folder, and set PyTorch's threads to `jobs`.

        out: the run's folder; None stands for results/PROFILE. jobs: processes and threads; None stands for all cores.
        code: the file with the exercise functions; a folder belongs to one version of it.
        Raises `LabError` for an unknown profile or part, a folder that cannot be written, or one that holds a run
        with other settings.
        """
        if profile not in PROFILES:
            raise LabError(f"profile {profile!r}; allowed are {', '.join(PROFILES)}")
        if wrong := [part for part in parts if part not in (1, 2, 3)]:
            raise LabError(f"part {wrong[0]!r}; allowed are 1, 2, 3")
        if not 0 <= seed <= LARGEST_SEED:
            raise LabError(f"seed {seed}; allowed are 0 to {LARGEST_SEED}")
        jobs = joblib.cpu_count() if jobs is None else jobs
        if not 1 <= jobs <= MOST_JOBS:
            raise LabError(f"jobs {jobs}; allowed are 1 to {MOST_JOBS}")
        torch.set_num_threads(jobs)
        out = Path("results", profile) if out is None else out
        digest = hashlib.sha256(code.read_bytes()).hexdigest()[:16] if code else "notebook"
        _claim_folder(out, {"profile": profile, "seed": seed, "code": digest})
        sizes = PROFILES[profile]
        sizes = replace(sizes, pretraining=replace(sizes.pretraining, seed=seed))
        return cls(out, profile, seed, parts, jobs, sizes)

    def pretrain(self, loss: training.LossFunction) -> Transformer:
        """Part 1's model, trained or read from the folder where an earlier call finished it."""
        settings = self.sizes.pretraining
        state = training.pretrain(loss, settings, self._state("pretraining"))
        save_model(self._checkpoint("pretrained"), state.model, state.about)
        return state.model

    def reinforce(
        self,
        estimators: Mapping[str, Estimator],
        step_function: StepFunction,
        summarize: Summary,
        kl_per_response: Callable[[Tensor, Tensor, Tensor], Tensor],
    ) -> dict[str, dict[int, dict[int, dict[str, float]]]]:
        """Part 2's runs: estimator -> seed -> step -> metrics, all on one evaluation set.

        Each estimator runs from each of the two seeds. The Dr. GRPO policies of the first are kept for part 3.
        """
        start = self.model("pretrained")
        fingerprint = _fingerprint(start)
        problems = training.evaluation_set(self.sizes.reinforcement.evaluation_problems)

        def evaluate(policy: Transformer, generator: torch.Generator) -> dict[str, float]:
            return training.evaluate_policy(policy, start, problems, summarize, kl_per_response, generator)

        tasks = {}
        for seed in RUN_SEEDS:
            settings = replace(self.sizes.reinforcement, seed=len(RUN_SEEDS) * self.seed + seed)
            for name, estimator in estimators.items():
                run = f"{name}-seed{seed}"
                about = {"estimator": name, "start": fingerprint, "length_cost": estimator.length_cost,
                         "group_size": estimator.group_size}  # fmt: skip
                arguments = (start, step_function, estimator, evaluate, settings, self._state(run), about)
                tasks[run] = partial(training.reinforce, *arguments, progress=False)
        states = run_all("reinforcement learning", tasks, self.jobs)
        for name in set(KEPT_POLICIES) & set(estimators):
            state = states[f"{name}-seed{RUN_SEEDS[0]}"]
            save_model(self._checkpoint(name), state.model, state.about)
        return {name: {seed: states[f"{name}-seed{seed}"].history for seed in RUN_SEEDS} for name in estimators}

    def model(self, name: str) -> Transformer:
        """The model "pretrained", "dr_grpo" or "dr_grpo_cost": this run's own, or the lab's where part 1 has not run.

        The quick profile's parts 2 and 3 start from the lab's pretrained model in any case.
        Says in one line when it is the lab's. Raises `LabError` where part 1 has run but not the part that makes it.
        """
        model, reason = self._find(name)
        if reason:
            print(f"{name}: {reason}; using the checkpoint that comes with the lab")
        return model

    def _find(self, name: str) -> tuple[Transformer, str]:
        """The model, and why it is the lab's; no reason where it is this run's own."""
        path = self._checkpoint(name)
        if name == "pretrained" and self.sizes.unfinished_pretraining:
            steps = self.sizes.pretraining.steps
            return shipped_model(name), f"the {self.profile} profile trains it for {steps} steps only"
        if path.exists():
            model, about = load_model(path)
            if name != "pretrained" and about.get("start") != _fingerprint(self._find("pretrained")[0]):
                raise LabError(f"{path} was trained from another pretrained model; choose another folder")
            return model, ""
        if self._checkpoint("pretrained").exists():
            raise LabError(f"{path} does not exist; run part 2 first")
        return shipped_model(name), f"part {1 if name == 'pretrained' else 2} has not run in {self.out}"

    def evaluate_by_length(self, model: Transformer, summarize: Summary) -> dict[str, Any]:
        """Metric -> number of digits -> value, from responses to random problems at temperature 1."""
        return training.evaluate_by_length(model, summarize, self.sizes.samples_per_length, self.seed)

    def pass_at_k(self, model: Transformer, estimate: Callable[[int, int, int], float]) -> dict[str, dict[str, float]]:
        """Number of digits -> k -> mean of `estimate(n, c, k)` over problems, from n = 64 samples each."""
        generator, problem_generator = training.evaluation_generators(self.seed)
        samples, table = max(PASS_KS), {}
        for length in PASS_LENGTHS:
            problems = sample_problems(self.sizes.pass_problems, problem_generator, length)
            counts = training.count_correct(model, problems, samples, generator)
            table[str(length)] = {str(k): sum(estimate(samples, c, k) for c in counts) / len(counts) for k in PASS_KS}
        return table

    def report(self, part: str, table: Mapping[str, Any]) -> None:
        """Print a part's table beside the expected values, add it to tables.json, and draw its figures.

        Raises `LabError` for a number that is not finite.
        """
        results.require_finite(part, table)
        if part == "part2":
            self._save_figure("part2_learning_curves", plots.learning_curves(table), plots.LEARNING_CURVES_ALT)
            table = results.mean_of_seeds(table)
        if part == "part3":
            self._save_figure("part3_by_length", plots.by_length(table), plots.BY_LENGTH_ALT)
            self._save_figure("part3_pass_at_k", plots.pass_at_k(table), plots.PASS_AT_K_ALT)
        path = self.out / "tables.json"
        write_json(path, dict(sorted({**_read_table(path), part: table}.items())))
        expected = results.expected_tables(self.profile)
        print(results.table_text(part, table, expected and expected[part]) + "\n")

    def _save_figure(self, name: str, figure: Figure, alt: str) -> None:
        plots.save(figure, self.out / "figures" / name, alt)

    def _checkpoint(self, name: str) -> Path:
        return self.out / "checkpoints" / f"{name}.safetensors"

    def _state(self, name: str) -> Path:
        return self.out / "state" / f"{name}.safetensors"


def shipped_model(name: str) -> Transformer:
    """A model that comes with the lab: "pretrained", "dr_grpo" or "dr_grpo_cost"."""
    with as_file(files("labutils").joinpath("data", f"{name}.safetensors")) as path:
        return load_model(path)[0]


def _claim_folder(out: Path, settings: dict[str, Any]) -> None:
    """Make the folder, or go on with it if it holds a run with these settings."""
    if out.exists() and not out.is_dir():
        raise LabError(f"cannot write to {out}: it is a file; choose another folder")
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise LabError(f"cannot write to {out}: {error.strerror}; choose another folder") from error
    path = out / "settings.json"
    if not path.exists() and any(out.iterdir()):
        raise LabError(f"{out} holds other files; choose an empty folder or a new one")
    if path.exists() and (out / "state").exists():
        _require_same_run(out, settings)
    _read_table(out / "tables.json")
    write_json(path, settings)


def _require_same_run(out: Path, settings: dict[str, Any]) -> None:
    found = _read_table(out / "settings.json")
    for key, value in settings.items():
        if key == "code" and found.get(key) != value:
            raise LabError(
                f"the file with the exercises has changed since the run in {out} began; choose or empty the folder"
            )
        if found.get(key) != value:
            raise LabError(f"{out} holds a run with {key} {found.get(key)!r}, not {value!r}; choose another folder")


def _read_table(path: Path) -> dict[str, Any]:
    """The JSON object in the file, empty where there is no file. Raises `LabError` for anything else."""
    table = read_json(path) if path.exists() else {}
    if not isinstance(table, dict):
        raise LabError(f"{path} is damaged: not a JSON object; remove it or choose another folder")
    return table


def _fingerprint(model: Transformer) -> str:
    digest = hashlib.sha256()
    for value in model.state_dict().values():
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()[:16]
