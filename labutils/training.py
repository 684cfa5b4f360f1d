"""The loops: pretraining, reinforcement learning and evaluation, around the functions that students write.

A loop shows its progress, saves its state as it goes, stops at the end of a step when interrupted, and goes on
from where it was when it is called again. Going on gives the same numbers as never having stopped.
"""

from __future__ import annotations

import contextlib
import copy
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from tqdm.auto import tqdm

from labutils import checkpoints, rollout
from labutils.errors import LabError
from labutils.model import ModelConfig, Transformer
from labutils.task import (
    MAX_DIGITS,
    MIN_DIGITS,
    Problems,
    encode_prompts,
    encode_responses,
    response_mask,
    sample_problems,
)
from labutils.verifier import verify

LossFunction = Callable[[Tensor, Tensor], Tensor]
Encoding = Callable[[Problems, Tensor], Tensor]
History = dict[int, dict[str, float]]  # step -> metrics
Summary = Callable[[Problems, Tensor], dict[str, float]]

EVALUATION_SEED = 2**31  # keeps the seeds of evaluations apart from training's; PyTorch uses 32 bits of a seed
EVALUATION_CHUNK = 1024  # responses generated at once, which bounds the memory


@dataclass(frozen=True)
class PretrainingSettings:
    """steps: optimizer steps. batch: problems per step. worked_rate: share of worked answers.
    peak_rate: highest learning rate of the one-cycle schedule, reached after `warmup` of the steps.
    seed: of the initialisation and the data.

    The warm-up is shorter than PyTorch's default of 0.3, with which some seeds have not learned the worked form
    after 4,000 steps.
    """

    steps: int = 4000
    batch: int = 256
    worked_rate: float = 0.1
    peak_rate: float = 1e-3
    warmup: float = 0.1
    seed: int = 0


@dataclass(frozen=True)
class Estimator:
    """One policy-gradient estimator, as the exercise functions make it up.

    advantages: rewards (N, G) -> advantages (N, G).
    weights: mask (B, R) -> weight of each response token (B, R).
    length_cost: reward subtracted per response token.
    group_size: responses sampled per problem, G.
    """

    advantages: Callable[[Tensor], Tensor]
    weights: Callable[[Tensor], Tensor]
    length_cost: float = 0.0
    group_size: int = 8


Verifier = Callable[[Problems, Tensor], Tensor]
Divergence = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Regularization:
    """What an experiment changes in the training step.

    reference: the model from which the policy's divergence counts.
    verifier: (problems, responses (B, R)) -> (B,) bool, which responses earn 1.
    reward_penalty: times each response's log-ratio, k1, subtracted from its reward.
    loss_penalty: times `divergence(policy_log_probs, reference_log_probs, mask)`, added to the loss.
    entropy: times the mean entropy (nats), subtracted from the loss.
    """

    reference: Transformer
    verifier: Verifier
    divergence: Divergence
    reward_penalty: float = 0.0
    loss_penalty: float = 0.0
    entropy: float = 0.0


StepFunction = Callable[[Transformer, torch.optim.Optimizer, Problems, Estimator, torch.Generator], dict[str, float]]


@dataclass(frozen=True)
class ReinforcementSettings:
    """steps: gradient steps. problems: per step. step_size: Adam's. evaluate_every: steps between evaluations.
    evaluation_problems: per number of digits. seed: of the training problems and all sampling."""

    steps: int = 200
    problems: int = 32
    step_size: float = 3e-4
    evaluate_every: int = 25
    evaluation_problems: int = 50
    seed: int = 0


@dataclass
class TrainingState:
    """All that a loop needs to go on: what changes with every step, and `about`, which tells runs apart.

    history: step -> metrics, as recorded so far.
    """

    model: Transformer
    optimizer: torch.optim.Optimizer
    generator: torch.Generator
    about: dict[str, Any]
    step: int = 0
    history: History = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Write everything to `path`, atomically."""
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        for index, parameter in enumerate(self._parameters()):
            for key, value in self.optimizer.state[parameter].items():
                tensors[f"optimizer.{index}.{key}"] = value
        tensors["generator"] = self.generator.get_state()
        about = {**self.about, "step": self.step, "history": self.history}
        checkpoints.save_checkpoint(path, tensors, about)

    def restore(self, path: Path) -> None:
        """Go on from `path` if it is there; a damaged file is reported by name, set aside and not used.

        Raises `LabError` when the file belongs to a run with other settings.
        """
        if not path.exists():
            return
        try:
            tensors, about = checkpoints.load_checkpoint(path)
        except checkpoints.DamagedFile as error:
            aside = path.with_suffix(".damaged")
            path.replace(aside)
            warnings.warn(f"{error}; not used, set aside as {aside.name}", stacklevel=2)
            return
        step, history = about.pop("step", None), about.pop("history", None)
        if step is None or history is None:
            raise LabError(f"{path} holds no state of a run; remove it")
        _require_same_settings(path, about, self.about)
        self._fill(tensors, path)
        self.step, self.history = step, {int(key): value for key, value in history.items()}

    def _fill(self, tensors: dict[str, Tensor], path: Path) -> None:
        prefix = "model."
        model = {name[len(prefix) :]: value for name, value in tensors.items() if name.startswith(prefix)}
        checkpoints.fill_parameters(self.model, model, path)
        parameters = self._parameters()
        for name, value in tensors.items():
            if name.startswith("optimizer."):
                _, index, key = name.split(".")
                self.optimizer.state[parameters[int(index)]][key] = value
        self.generator.set_state(tensors["generator"])

    def _parameters(self) -> list[Tensor]:
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]


def _require_same_settings(path: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    for key in sorted(found.keys() | wanted.keys()):
        if found.get(key) != wanted.get(key):
            raise LabError(
                f"{path} is of a run with {key} {found.get(key)!r}, not {wanted.get(key)!r}; "
                "choose another folder or remove the file"
            )


def new_model(seed: int, config: ModelConfig = ModelConfig()) -> Transformer:
    """A model initialised from `seed`, without touching PyTorch's global random state."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Transformer(config)


def pretrain(
    loss: LossFunction,
    settings: PretrainingSettings,
    path: Path | None = None,
    about: dict[str, Any] | None = None,
    watch: Callable[[History], None] | None = None,
    progress: bool = True,
    start: Transformer | None = None,
    encode: Encoding = encode_responses,
) -> TrainingState:
    """Train a model with the next-token loss on random problems; returns the state after the last step.

    Its history holds the loss of a batch (nats per token), every 50 steps.
    loss: (log-probs (B, R), responses (B, R)) -> scalar, the mean over all response tokens.
    path: where the state is kept, every 250 steps, when interrupted and at the end; None keeps nothing.
    about: what else tells this run apart from others. watch: called with the history as it grows.
    progress: whether to show a progress bar. start: the model whose copy is trained, a new one by default.
    encode: (problems, which are worked (B,)) -> the responses (B, R) to imitate.
    """
    model = copy.deepcopy(start) if start is not None else new_model(settings.seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.peak_rate, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, settings.peak_rate, settings.steps, pct_start=settings.warmup
    )
    generator = torch.Generator().manual_seed(settings.seed)
    state = TrainingState(model, optimizer, generator, {**(about or {}), **asdict(settings)})
    if path is not None:
        state.restore(path)
    if state.step:
        _forward_schedule(schedule, state.step)

    def take_step() -> dict[str, float]:
        problems = sample_problems(settings.batch, generator)
        worked = torch.rand(settings.batch, generator=generator) < settings.worked_rate
        responses = encode(problems, worked)
        log_probs = rollout.response_log_probs(model, encode_prompts(problems), responses)
        value = loss(log_probs, responses)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        schedule.step()
        return {"loss": value.item()}

    Loop("pretraining", settings.steps, 50, 250, path, progress, watch).run(state, take_step)
    return state


def _forward_schedule(schedule: torch.optim.lr_scheduler.LRScheduler, step: int) -> None:
    """Set the schedule to `step`. A one-cycle schedule is a closed form of the step: there is no state to keep."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns of a schedule's step before any optimizer step
        schedule.last_epoch = step - 1
        schedule.step()


def reinforce(
    start: Transformer,
    step_function: StepFunction,
    estimator: Estimator,
    evaluate: Callable[[Transformer, torch.Generator], dict[str, float]],
    settings: ReinforcementSettings,
    path: Path | None,
    about: dict[str, Any],
    progress: bool = True,
) -> TrainingState:
    """Train a copy of `start` with reinforcement learning; returns the state, with the evaluations as its history.

    step_function: the exercise `policy_gradient_step`.
    evaluate: (policy, generator) -> metrics, called every `evaluate_every` steps, before the first step too.
    path: where the state is kept, at every evaluation, when interrupted and at the end; None keeps nothing.
    about: what else tells this run apart from others, such as the estimator's name.
    progress: whether to show a progress bar.
    """
    policy = copy.deepcopy(start)
    optimizer = torch.optim.Adam(policy.parameters(), lr=settings.step_size, fused=True)
    generator = torch.Generator().manual_seed(settings.seed)
    state = TrainingState(policy, optimizer, generator, {**about, **asdict(settings)})
    if path is not None:
        state.restore(path)

    def take_step() -> dict[str, float]:
        problems = sample_problems(settings.problems, generator)
        return step_function(policy, optimizer, problems, estimator, generator)

    def observe() -> dict[str, float]:
        # A generator of its own, so that evaluating does not change what training samples.
        own = torch.Generator().manual_seed(EVALUATION_SEED + 2**13 * settings.seed + state.step)
        return evaluate(policy, own)

    every = settings.evaluate_every
    Loop("reinforcement learning", settings.steps, every, every, path, progress).run(state, take_step, observe)
    return state


@dataclass(frozen=True)
class Loop:
    """Steps with a progress bar, recorded every `record_every` steps, saved every `save_every`, a multiple of it.

    Both happen at the end too, and a step at which the loop is interrupted is saved.
    path: where the state is saved; None keeps nothing. watch: called with the history after every record.
    """

    name: str
    steps: int
    record_every: int
    save_every: int
    path: Path | None
    progress: bool = True
    watch: Callable[[History], None] | None = None

    def run(
        self,
        state: TrainingState,
        take_step: Callable[[], dict[str, float]],
        observe: Callable[[], dict[str, float]] | None = None,
    ) -> None:
        """Take the steps that `state` lacks. Recorded is what `observe` gives, else what the step gives.

        An interruption (Ctrl-C, or the notebook's stop button) takes effect after the step under way: the state
        is saved and `KeyboardInterrupt` raised.
        """
        bar = tqdm(desc=self.name, total=self.steps, initial=state.step, disable=not self.progress)
        with bar, delayed_interrupt() as interrupted:
            if observe is not None and not state.history:
                self._record(state, observe())
            while state.step < self.steps:
                metrics = take_step()
                state.step += 1
                bar.update()
                if self._is_due(state, self.record_every):
                    self._record(state, observe() if observe is not None else metrics)
                    bar.set_postfix({key: f"{value:.3g}" for key, value in metrics.items()})
                if self._is_due(state, self.save_every) or interrupted():
                    self._save(state)
                if interrupted():
                    raise KeyboardInterrupt(f"{self.name} stopped after step {state.step}")

    def _record(self, state: TrainingState, metrics: dict[str, float]) -> None:
        state.history[state.step] = metrics
        if self.watch is not None:
            self.watch(state.history)

    def _is_due(self, state: TrainingState, every: int) -> bool:
        return state.step % every == 0 or state.step == self.steps

    def _save(self, state: TrainingState) -> None:
        if self.path is not None:
            state.save(self.path)


@contextlib.contextmanager
def delayed_interrupt() -> Iterator[Callable[[], bool]]:
    """Inside the block the first interruption only makes the yielded function return True; a second one interrupts.

    Only the main thread receives signals; elsewhere the block changes nothing.
    """
    received = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield received.is_set
        return

    def receive(number: int, frame: FrameType | None) -> None:
        if received.is_set():  # the step under way does not end, or not soon enough
            signal.default_int_handler(number, frame)
        received.set()

    before = signal.signal(signal.SIGINT, receive)
    try:
        yield received.is_set
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Inside the block PyTorch uses one thread: what is parallel is something larger than one operation."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def evaluation_set(per_length: int) -> Problems:
    """The fixed evaluation set of part 2: the same number of problems of every length."""
    generator = torch.Generator().manual_seed(EVALUATION_SEED)
    lengths = range(MIN_DIGITS, MAX_DIGITS + 1)
    return Problems.join([sample_problems(per_length, generator, length) for length in lengths])


def evaluation_generators(seed: int) -> tuple[torch.Generator, torch.Generator]:
    """One for sampling responses and one for problems, so that every model meets the same problems."""
    seeds = EVALUATION_SEED + 2 * seed, EVALUATION_SEED + 2 * seed + 1
    return torch.Generator().manual_seed(seeds[0]), torch.Generator().manual_seed(seeds[1])


def evaluate_by_length(model: Transformer, summarize: Summary, samples: int, seed: int) -> dict[str, dict[str, float]]:
    """Metric -> number of digits (as text) -> value, from `samples` random problems of each length."""
    table: dict[str, dict[str, float]] = {}
    generator, problem_generator = evaluation_generators(seed)
    for length in range(MIN_DIGITS, MAX_DIGITS + 1):
        problems = sample_problems(samples, problem_generator, length)
        responses = rollout.generate(model, encode_prompts(problems), generator=generator)
        for metric, value in summarize(problems, responses).items():
            table.setdefault(metric, {})[str(length)] = value
    return table


def count_correct(model: Transformer, problems: Problems, samples: int, generator: torch.Generator) -> list[int]:
    """How many of `samples` responses to each problem, sampled at temperature 1, the verifier accepts."""
    counts: list[int] = []
    together = max(1, EVALUATION_CHUNK // samples)
    for start in range(0, len(problems), together):
        chunk = problems[start : start + together]
        responses = rollout.generate(model, encode_prompts(chunk), samples, generator=generator)
        correct = verify(chunk.repeat_interleave(samples), responses)
        counts += correct.view(len(chunk), samples).sum(1).tolist()
    return counts


def evaluate_policy(
    policy: Transformer,
    reference: Transformer,
    problems: Problems,
    summarize: Summary,
    kl_per_response: Callable[[Tensor, Tensor, Tensor], Tensor],
    generator: torch.Generator,
) -> dict[str, float]:
    """`summarize` of one sampled response to each problem, and under `kl` its divergence from the reference (nats)."""
    prompts = encode_prompts(problems)
    responses = rollout.generate(policy, prompts, generator=generator)
    with torch.no_grad():
        own = rollout.response_log_probs(policy, prompts, responses)
        others = rollout.response_log_probs(reference, prompts, responses)
        divergence = kl_per_response(own, others, response_mask(responses))
    return {**summarize(problems, responses), "kl": float(divergence)}
