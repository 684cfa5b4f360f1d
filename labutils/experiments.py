"""Runs of reinforcement learning whose settings differ: the starting model, the estimator, and what is added to it.

An experiment is a set of runs. A run is told by its settings alone: with the same functions, on the same machine, they
give the same numbers, since every run is computed on one thread from its own seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

import torch
from torch import Tensor

from labutils import rollout, training
from labutils.checkpoints import load_model
from labutils.errors import LabError
from labutils.lab import LARGEST_SEED, shipped_model
from labutils.model import ModelConfig, TemperedTransformer, Transformer
from labutils.repeating import REPEATING_CONFIG
from labutils.task import COLON, MAX_DIGITS, MIN_DIGITS, Problems, decode, encode_prompts, response_mask
from labutils.training import (
    Divergence,
    Estimator,
    History,
    LossFunction,
    PretrainingSettings,
    Regularization,
    ReinforcementSettings,
    Verifier,
)
from labutils.verifier import verify

SAMPLES = 8  # responses to each problem of an evaluation
PRETRAINING = {
    "scratch": PretrainingSettings(),
    # The lab's model, trained on: long enough for the rate of working to follow the data, and too short to unlearn it.
    "onward": PretrainingSettings(steps=1000, peak_rate=3e-4),
}
REPEATING_WORKED_RATE = 0.5  # with 0.1, worked answers to six digits are still guesses after 4,000 steps
SHIPPED_STARTS = {
    ("scratch", 0.1): "pretrained",
    ("onward", 0.1): "pretrained",
    ("scratch", 0.01): "scratch_1",
    ("scratch", 0.001): "scratch_01",
    ("onward", 0.01): "rare_1",
    ("onward", 0.001): "rare_01",
    ("repeating", REPEATING_WORKED_RATE): "repeating",
}
KL_PLACES = {"none": (), "k1-reward": (), "k1-loss": ("k1",), "k3-loss": ("k3",)}  # -> the divergence that it needs
LARGEST = 1000.0  # cost, strength, temperature


@dataclass(frozen=True)
class RunSettings:
    """All that a run depends on, but for the functions.

    pretraining: of the starting model: "scratch", 4,000 steps at `worked_rate`; "onward", the lab's model trained on
        at that rate, which works as well but as seldom as the data; "repeating", whose states may be repeated.
    worked_rate: share of worked answers in the pretraining data.
    estimator: "reinforce", "rloo", "grpo" or "dr_grpo". length_cost: reward subtracted per response token.
    entropy_bonus: times the mean entropy (nats), subtracted from the loss.
    temperature: of the policy while it trains; evaluations are at temperature 1.
    kl: where the divergence from the starting model is penalized: "none", "k1-reward", "k1-loss" or "k3-loss".
    kl_strength: times the divergence (nats per response).
    verifier: "answer", "form" or "anywhere".
    group_size, problems, step_size, steps: of training. evaluate_every: steps between evaluations.
    evaluation_problems: per number of digits. seed: of the training problems and all sampling.
    """

    pretraining: str = "scratch"
    worked_rate: float = 0.1
    estimator: str = "dr_grpo"
    length_cost: float = 0.0
    entropy_bonus: float = 0.0
    temperature: float = 1.0
    kl: str = "none"
    kl_strength: float = 0.0
    verifier: str = "answer"
    group_size: int = 8
    problems: int = 32
    step_size: float = 3e-4
    steps: int = 200
    evaluate_every: int = 25
    evaluation_problems: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        """Raises `LabError` for a value that makes no sense, naming it and what is allowed."""
        for name, kind in get_type_hints(type(self)).items():
            _require_kind(name, getattr(self, name), kind)
        _require_one_of("pretraining", self.pretraining, (*PRETRAINING, "repeating"))
        _require_one_of("kl", self.kl, KL_PLACES)
        _require_range("worked_rate", self.worked_rate, 0, 1)
        if self.pretraining == "repeating" and self.worked_rate != REPEATING_WORKED_RATE:
            allowed = f"allowed with pretraining 'repeating' is {REPEATING_WORKED_RATE:g}"
            raise LabError(f"worked_rate {self.worked_rate:g}; {allowed}")
        for name in ("length_cost", "entropy_bonus", "kl_strength"):
            _require_range(name, getattr(self, name), 0, LARGEST)
        for name in ("temperature", "step_size"):
            _require_range(name, getattr(self, name), 1e-9, LARGEST)
        for name in ("problems", "steps", "evaluate_every", "evaluation_problems"):
            _require_range(name, getattr(self, name), 1, 10**6)
        _require_range("group_size", self.group_size, 2, 1024)
        _require_range("seed", self.seed, 0, LARGEST_SEED)
        if (self.kl == "none") != (self.kl_strength == 0):
            raise LabError(
                f"kl {self.kl!r} with kl_strength {self.kl_strength:g}; 'none' goes with 0, the others do not"
            )


def _require_kind(name: str, value: Any, kind: type) -> None:
    allowed = (int, float) if kind is float else (kind,)
    if isinstance(value, bool) or not isinstance(value, allowed):
        raise LabError(f"{name} {value!r}; allowed is {'a number' if kind is float else f'of type {kind.__name__}'}")


def _require_one_of(name: str, value: str, allowed: Any) -> None:
    if value not in allowed:
        raise LabError(f"{name} {value!r}; allowed are {', '.join(allowed)}")


def _require_range(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise LabError(f"{name} {value:g}; allowed are {low:g} to {high:g}")


@dataclass(frozen=True)
class Exercises:
    """The students' functions that a run calls.

    step: `regularized_step`. estimators, verifiers, divergences: by the names in `RunSettings` and `KL_PLACES`.
    loss: `pretraining_loss`, for a starting model that does not come with the lab; None where there is none such.
    """

    step: Callable[..., dict[str, float]]
    estimators: Mapping[str, Estimator]
    verifiers: Mapping[str, Verifier]
    divergences: Mapping[str, Divergence]
    kl_per_response: Divergence
    loss: LossFunction | None = None

    @classmethod
    def of_module(cls, module: ModuleType) -> Exercises:
        """Those of a solution file. Raises `LabError` for one that lacks any."""
        places = {
            "step": "regularized_step",
            "estimators": "ESTIMATORS",
            "verifiers": "VERIFIERS",
            "divergences": "DIVERGENCES",
            "kl_per_response": "kl_per_response",
            "loss": "pretraining_loss",
        }
        for name in places.values():
            if not hasattr(module, name):
                raise LabError(f"{module.__name__} has no {name}; a run needs it")
        found = {name: getattr(module, place) for name, place in places.items()}
        # A run's length cost is a setting of its own.
        found["estimators"] = {name: one for name, one in found["estimators"].items() if one.length_cost == 0}
        return cls(**found)

    def require(self, settings: RunSettings) -> None:
        """Raise `LabError` where the settings name what there is not."""
        _require_one_of("estimator", settings.estimator, self.estimators)
        _require_one_of("verifier", settings.verifier, self.verifiers)
        for name in KL_PLACES[settings.kl]:
            _require_one_of("divergence", name, self.divergences)


def starting_model(settings: RunSettings, folder: Path) -> Transformer:
    """The model that the run starts from: one that comes with the lab, or one that was trained and left in the folder.

    Raises `LabError` where there is neither.
    """
    key = settings.pretraining, settings.worked_rate
    if key in SHIPPED_STARTS:
        return shipped_model(SHIPPED_STARTS[key], start_config(settings.pretraining))
    return load_model(start_path(settings, folder))[0]


def needs_start(settings: RunSettings, folder: Path) -> bool:
    """Whether the starting model must be trained first."""
    key = settings.pretraining, settings.worked_rate
    return key not in SHIPPED_STARTS and not start_path(settings, folder).exists()


def pretrained_at(pretraining: str, worked_rate: float, loss: LossFunction | None) -> Transformer:
    """A model pretrained with this share of worked answers: "scratch" a new one, "onward" the lab's.

    Raises `LabError` where there is no loss to train with.
    """
    if loss is None:
        raise LabError(f"no model of worked_rate {worked_rate:g} comes with the lab; training one needs a loss")
    settings = replace(PRETRAINING[pretraining], worked_rate=worked_rate)
    start = shipped_model("pretrained") if pretraining == "onward" else None
    return training.pretrain(loss, settings, progress=False, start=start).model


def start_config(pretraining: str) -> ModelConfig:
    """The architecture of the starting model."""
    return REPEATING_CONFIG if pretraining == "repeating" else ModelConfig()


def start_path(settings: RunSettings, folder: Path) -> Path:
    """Where a starting model that does not come with the lab is kept."""
    return folder / f"{settings.pretraining}-{settings.worked_rate:g}.safetensors"


@dataclass(frozen=True)
class Outcome:
    """What a run has come to.

    history: step -> what `measure` gives. samples: of the trained policy, two responses to one problem of each number
    of digits at temperature 1, each as its text with the prompt, whether it is right, and whether it was accepted.
    """

    history: History
    samples: list[tuple[str, bool, bool]]


def run(settings: RunSettings, exercises: Exercises, start: Transformer) -> Outcome:
    """Train from `start` on one thread."""
    exercises.require(settings)
    regularization = _regularization(settings, exercises, start)
    estimator = replace(
        exercises.estimators[settings.estimator], length_cost=settings.length_cost, group_size=settings.group_size
    )
    problems = training.evaluation_set(settings.evaluation_problems)

    def evaluate(policy: Transformer, generator: torch.Generator) -> dict[str, float]:
        assert isinstance(policy, TemperedTransformer)  # a copy of the policy below
        return measure(policy.at_temperature_1(), regularization, problems, exercises.kl_per_response, generator)

    step = partial(exercises.step, regularization=regularization)
    sizes = ReinforcementSettings(
        settings.steps, settings.problems, settings.step_size, settings.evaluate_every, settings.evaluation_problems,
        settings.seed,
    )  # fmt: skip
    policy = TemperedTransformer(start, settings.temperature)
    with training.one_thread():
        state = training.reinforce(policy, step, estimator, evaluate, sizes, None, {}, progress=False)
        return Outcome(state.history, _samples(state.model, regularization.verifier, settings.seed))


def _samples(policy: Transformer, verifier: Verifier, seed: int) -> list[tuple[str, bool, bool]]:
    assert isinstance(policy, TemperedTransformer)  # the one made by `run`
    problems = training.evaluation_set(1).repeat_interleave(2)
    prompts = encode_prompts(problems)
    generator = torch.Generator().manual_seed(seed)
    responses = rollout.generate(policy.at_temperature_1(), prompts, generator=generator)
    texts = map(decode, torch.cat([prompts, responses], 1))
    verdicts = (verify(problems, responses).tolist(), verifier(problems, responses).tolist())
    return list(zip(texts, *verdicts, strict=True))


def _regularization(settings: RunSettings, exercises: Exercises, start: Transformer) -> Regularization:
    strength, divergence = settings.kl_strength, next(iter(KL_PLACES[settings.kl]), "k3")
    return Regularization(
        start,
        exercises.verifiers[settings.verifier],
        exercises.divergences[divergence],
        reward_penalty=strength if settings.kl == "k1-reward" else 0.0,
        loss_penalty=strength if settings.kl.endswith("loss") else 0.0,
        entropy=settings.entropy_bonus,
    )


@torch.no_grad()
def measure(
    policy: Transformer,
    regularization: Regularization,
    problems: Problems,
    kl_per_response: Divergence,
    generator: torch.Generator,
) -> dict[str, float]:
    """What is recorded of a policy, from 8 responses to each problem at temperature 1.

    accuracy: share that the true verifier accepts; reward: that the run's verifier accepts. kl: from the reference
    (nats per response). silent: share of the problems whose eight verdicts are equal. length: mean, of all;
    length_right, length_wrong: of the accepted and the other responses, left out where there are none (tokens).
    writes_states: mean probability of starting with `:`, exact. accuracy_N, writes_states_N: of N digits only.
    """
    prompts, repeated = encode_prompts(problems), problems.repeat_interleave(SAMPLES)
    responses = rollout.generate(policy, prompts, SAMPLES, generator=generator)
    correct, mask = verify(repeated, responses), response_mask(responses)
    verdicts = regularization.verifier(repeated, responses).view(-1, SAMPLES)
    colon = rollout.response_log_probs(policy, prompts, prompts.new_full((len(prompts), 1), COLON))[:, 0].exp()
    all_prompts = prompts.repeat_interleave(SAMPLES, 0)
    own, others = (
        rollout.response_log_probs(model, all_prompts, responses) for model in (policy, regularization.reference)
    )
    found = {
        "accuracy": correct.double().mean(),
        "reward": verdicts.double().mean(),
        "kl": torch.as_tensor(kl_per_response(own, others, mask)),
        "silent": (verdicts == verdicts[:, :1]).all(1).double().mean(),
        "writes_states": colon.double().mean(),
    }
    for digits in range(MIN_DIGITS, MAX_DIGITS + 1):
        found[f"accuracy_{digits}"] = correct[repeated.lengths == digits].double().mean()
        found[f"writes_states_{digits}"] = colon[problems.lengths == digits].double().mean()
    return {name: float(value) for name, value in found.items()} | _lengths(mask.sum(1), correct)


def _lengths(lengths: Tensor, correct: Tensor) -> dict[str, float]:
    groups = {"length": lengths, "length_right": lengths[correct], "length_wrong": lengths[~correct]}
    return {name: float(values.double().mean()) for name, values in groups.items() if len(values)}
