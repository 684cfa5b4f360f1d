"""One run of the lab: its sizes, its folder, and what the three parts do with the students' functions.

DIR/tables.json     every table of the run
DIR/figures/        the figures, PNG and SVG
DIR/checkpoints/    the pretrained model and the Dr. GRPO policies
DIR/state/          what a stopped run goes on from
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import joblib
import torch
from torch import Tensor

from labutils import plots, results, training
from labutils.checkpoints import load_model, read_json, save_model, write_json
from labutils.errors import LabError
from labutils.fingerprints import code_fingerprint, model_fingerprint
from labutils.model import ModelConfig, Transformer
from labutils.results import TableView
from labutils.runs import followed, run_all
from labutils.task import sample_problems
from labutils.tolerance import bands, notebook_profile
from labutils.training import (
    Estimator,
    History,
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
    """One run of the lab, made by `Lab.open` or `Lab.for_notebook`.

    shipped_start: parts 2 and 3 start from the lab's pretrained model, whether part 1 has run or not.
    """

    out: Path
    profile: str
    seed: int
    parts: tuple[int, ...]
    jobs: int
    sizes: Profile = field(repr=False)
    shipped_start: bool = False

    @classmethod
    def open(
        cls,
        out: Path | None = None,
        profile: str = "full",
        seed: int = 0,
        parts: tuple[int, ...] = (1, 2, 3),
        jobs: int | None = None,
    ) -> Lab:
        """Check the arguments, prepare the folder, and set PyTorch's threads to `jobs`.

        out: the run's folder; None stands for results/PROFILE. jobs: processes and threads; None stands for all cores.
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
        _claim_folder(out, {"profile": profile, "seed": seed})
        sizes = PROFILES[profile]
        sizes = replace(sizes, pretraining=replace(sizes.pretraining, seed=seed))
        return cls(out, profile, seed, parts, jobs, sizes, sizes.unfinished_pretraining)

    @classmethod
    def for_notebook(cls) -> Lab:
        """The run of the notebooks, in results/PROFILE beside them; LAB16_PROFILE names the profile, "full" if unset.

        Each notebook stands on its own: parts 2 and 3 start from the pretrained model that comes with the lab, which
        is the same for everyone.
        """
        return replace(cls.open(profile=notebook_profile()), shipped_start=True)

    def pretrain(self, loss: training.LossFunction) -> Transformer:
        """Part 1's model, trained or read from the folder where an earlier call with the same code finished it.

        In a notebook the loss is drawn as it falls.
        """
        settings, live, about = self.sizes.pretraining, plots.LivePicture(), {"code": code_fingerprint(loss)}

        def watch(history: History) -> None:
            live.draw(lambda: plots.pretraining_curve(history, settings.steps))

        path = self._state("pretraining", about, settings)
        state = training.pretrain(loss, settings, path, about, watch)
        watch(state.history)
        self._keep_only([path])
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

        Each estimator runs from each of the two seeds. The Dr. GRPO policies of the first are kept for part 3. A run
        that an earlier call finished is not repeated; one that has changed in anything, its functions, its cost or its
        starting model, is trained anew and takes its place. In a notebook the curves are drawn as they grow.
        """
        start = self.model("pretrained")
        problems = training.evaluation_set(self.sizes.reinforcement.evaluation_problems)

        def evaluate(policy: Transformer, generator: torch.Generator) -> dict[str, float]:
            return training.evaluate_policy(policy, start, problems, summarize, kl_per_response, generator)

        tasks, paths = {}, {}
        for seed in RUN_SEEDS:
            settings = replace(self.sizes.reinforcement, seed=len(RUN_SEEDS) * self.seed + seed)
            for name, estimator in estimators.items():
                code = (step_function, estimator.advantages, estimator.weights, summarize, kl_per_response)
                about = {"estimator": name, "start": model_fingerprint(start), "code": code_fingerprint(*code),
                         "length_cost": estimator.length_cost, "group_size": estimator.group_size}  # fmt: skip
                run = name, seed
                paths[run] = self._state(f"{name}-seed{seed}", about, settings)
                arguments = (start, step_function, estimator, evaluate, settings, paths[run], about)
                tasks[run] = partial(training.reinforce, *arguments, progress=False)
        with self._followed(paths):
            states = run_all("reinforcement learning", tasks, self.jobs)
        self._keep_only(paths.values())
        for name in set(KEPT_POLICIES) & set(estimators):
            state = states[name, RUN_SEEDS[0]]
            save_model(self._checkpoint(name), state.model, state.about)
        return {name: {seed: states[name, seed].history for seed in RUN_SEEDS} for name in estimators}

    def _followed(self, paths: Mapping[tuple[str, int], Path]) -> AbstractContextManager[None]:
        """A progress bar over all runs, and their curves as they grow."""
        live, steps = plots.LivePicture(), self.sizes.reinforcement.steps

        def watch(histories: dict[Path, History]) -> None:
            curves: dict[str, dict[int, History]] = {}
            for (name, seed), path in paths.items():
                if path in histories:
                    curves.setdefault(name, {})[seed] = histories[path]
            live.draw(lambda: plots.learning_curves(curves, steps))

        return followed("reinforcement learning", paths.values(), steps, watch)

    def model(self, name: str) -> Transformer:
        """The model "pretrained", "dr_grpo" or "dr_grpo_cost": this run's own, or the lab's where it has none.

        Says in one line when it is the lab's. Raises `LabError` where part 1 has run but not the part that makes it.
        """
        model, reason = self._find(name)
        if reason:
            print(f"{name}: {reason}; using the checkpoint that comes with the lab")
        return model

    def _find(self, name: str) -> tuple[Transformer, str]:
        """The model, and why it is the lab's; no reason where it is this run's own."""
        path = self._checkpoint(name)
        if name == "pretrained" and self.shipped_start:
            steps = self.sizes.pretraining.steps
            short = f"the {self.profile} profile trains it for {steps} steps only"
            return shipped_model(name), short if self.sizes.unfinished_pretraining else "everyone starts from the same"
        if path.exists():
            model, about = load_model(path)
            if name != "pretrained" and about.get("start") != model_fingerprint(self._find("pretrained")[0]):
                raise LabError(f"{path} was trained from another pretrained model; choose another folder")
            return model, ""
        if self._checkpoint("pretrained").exists() and not self.shipped_start:
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

    def report(self, part: str, table: Mapping[str, Any]) -> TableView:
        """A part's table beside the expected values; it is added to tables.json, and its figures are drawn.

        Expected is the course's number; in a notebook, whose model is not the course's, the mean of correct runs.
        Raises `LabError` for a number that is not finite.
        """
        results.require_finite(part, table)
        if part == "part2":
            self._save_picture("part2_learning_curves", plots.learning_curves(table))
            table = results.mean_of_seeds(table)
        if part == "part3":
            self._save_picture("part3_by_length", plots.by_length(table))
            self._save_picture("part3_pass_at_k", plots.pass_at_k(table))
        path = self.out / "tables.json"
        write_json(path, dict(sorted({**_read_table(path), part: table}.items())))
        if self.shipped_start:
            return results.notebook_view(part, self.profile, table)
        # The bands of parts 2 and 3 are those of runs from the lab's model.
        found = bands(self.profile, part) if part == "part1" else None
        return TableView(part, self.profile, table, results.course_tables().get(part), found)

    def _save_picture(self, name: str, picture: plots.Picture) -> None:
        plots.save(picture, self.out / "figures" / name)

    def _checkpoint(self, name: str) -> Path:
        return self.out / "checkpoints" / f"{name}.safetensors"

    def _state(self, name: str, about: dict[str, Any], settings: PretrainingSettings | ReinforcementSettings) -> Path:
        """Where the state of a run is kept: every change of what it depends on is another file."""
        return self.out / "state" / f"{name}-{code_fingerprint(about, asdict(settings))}.safetensors"

    def _keep_only(self, paths: Iterable[Path]) -> None:
        """Remove the states of earlier runs of the same names, now that these have ended."""
        for path in paths:
            for other in path.parent.glob(f"{path.name.rpartition('-')[0]}-*"):
                if other != path:
                    other.unlink()


def shipped_model(name: str, config: ModelConfig = ModelConfig()) -> Transformer:
    """A model that comes with the lab, by its file's name in labutils/data."""
    with as_file(files("labutils").joinpath("data", f"{name}.safetensors")) as path:
        return load_model(path, config)[0]


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
    if any((out / name).exists() for name in ("state", "checkpoints", "tables.json")):
        _require_same_run(out, settings)
    _read_table(out / "tables.json")
    write_json(path, settings)


def _require_same_run(out: Path, settings: dict[str, Any]) -> None:
    found = _read_table(out / "settings.json")
    for key, value in settings.items():
        if found.get(key) != value:
            raise LabError(f"{out} holds a run with {key} {found.get(key)!r}, not {value!r}; choose another folder")


def _read_table(path: Path) -> dict[str, Any]:
    """The JSON object in the file, empty where there is no file. Raises `LabError` for anything else."""
    table = read_json(path) if path.exists() else {}
    if not isinstance(table, dict):
        raise LabError(f"{path} is damaged: not a JSON object; remove it or choose another folder")
    return table
