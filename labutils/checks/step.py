"""The cases of `policy_gradient_step` and `regularized_step`: any way of sampling and scoring passes.

The estimator is a spy: its functions note the rewards and the mask that they receive, and return fixed advantages and
weights. The optimizer is one, too: it notes the gradient of every step. The scripted model's responses are certain, so
that with it the whole step is; gradients are read at the biases of tokens that no response has, where they are tiny,
but free of rounding. What must be random is looked at with a bigram model.

Among n = 256 independent responses a frequency is off by more than 0.2 with probability at most
2 exp(-2 n 0.2^2) = 2.6e-9 (Hoeffding), and lengths of 5 and 6, of probability 0.09, never come with probability
0.91^256 = 3.3e-11. In every one of 8 groups of 6 all lengths are equal with probability 5e-10, and two batches of 48
lengths are equal with one below 1e-14. The script is left with a probability below 4e-10 per token and unused token,
3e-7 in a whole check. Together a right step fails with a probability below 1e-6.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch import Generator, Tensor

from labutils import rollout
from labutils.checks.case import Case, Inputs, same_or_not
from labutils.checks.guard import Guarded
from labutils.checks.models import UNUSED, bigram_model, scripted_model, scripted_problems
from labutils.checks.values import Finding, Plain, named_numbers, plain, require_tensor
from labutils.model import Transformer
from labutils.task import ARROW, COLON, END, EQUALS, PAD, Problems, encode_prompts
from labutils.training import Estimator, Regularization

# Eight rare tokens weigh much more at a high temperature than one likely token does.
RARE = (0, 1, 2, 4, 7, 8, 9, COLON)
LANGUAGE = {
    EQUALS: {ARROW: 0.7, **dict.fromkeys(RARE, 0.3 / len(RARE))},
    **{token: {ARROW: 1.0} for token in RARE},
    ARROW: {3: 0.91, PAD: 0.09},
    PAD: {5: 1.0},
    5: {6: 1.0},
    3: {END: 1.0},
    6: {END: 1.0},
}
FREQUENCIES = {"length 3": 0.7 * 0.91, "length 4": 0.3 * 0.91, "longer ones": "came"}
EXPECTED = {**FREQUENCIES, "lengths paid for": "those sampled", "verdicts": "right"}
# Two first tokens, equally likely, and nothing else is left open: whichever is drawn, the loss is the same.
COIN = {EQUALS: {COLON: 0.5, PAD: 0.5}, COLON: {ARROW: 1.0}, PAD: {ARROW: 1.0}, ARROW: {8: 1.0}, 8: {END: 1.0}}
HUGE = 2.0**40  # of advantages: no gradient is short enough to escape clipping; a power of two rounds nothing
SCALE = 1e10  # of gradients, which are as small as the probabilities that they come from


@cache
def warm_up() -> None:
    """Let the engine be compiled and PyTorch load what optimizers need: the seconds are not the student's."""
    with torch.random.fork_rng(devices=[]):
        prompts = encode_prompts(scripted_problems())
        model = scripted_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        optimizer.zero_grad()
        rollout.response_log_probs(model, prompts, rollout.generate(model, prompts)).sum().backward()
        optimizer.step()


class SpyOptimizer(torch.optim.SGD):
    """Notes the gradient that each step finds at the output bias, and what all have in common; changes nothing.

    finite: whether all were finite. zero: how many parameters had none, or one of zeros, in the last step.
    """

    def __init__(self, policy: Transformer):
        super().__init__(policy.parameters(), lr=0.0)
        self.bias = policy.head.bias
        self.gradients: list[Any] = []
        self.finite = True
        self.zero = 0

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Note the gradient."""
        if closure is not None:
            closure()
        gradients = [parameter.grad for group in self.param_groups for parameter in group["params"]]
        self.finite &= all(gradient is None or bool(gradient.isfinite().all()) for gradient in gradients)
        self.zero = sum(gradient is None or not bool(gradient.any()) for gradient in gradients)
        self.gradients.append(_noted(self.bias.grad))
        if self.bias.grad is not None:
            self.bias.grad.zero_()  # by which a second step with the same gradient can be told from one with a new one


class SpyEstimator:
    """Notes what an estimator receives; returns irregular numbers, 0 among them, and weights by position."""

    def __init__(self, group_size: int, length_cost: float, advantage_scale: float):
        self.advantage_scale = advantage_scale
        self.rewards: list[Any] = []
        self.masks: list[Any] = []
        self.estimator = Estimator(self._advantages, self._weights, length_cost, group_size)

    def _advantages(self, rewards: Tensor) -> Tensor:
        self.rewards.append(_noted(rewards))
        index = torch.arange(rewards.numel()).view(rewards.shape)
        return (index * 37 % 23 - 8) / 16.0 * self.advantage_scale

    def _weights(self, mask: Tensor) -> Tensor:
        self.masks.append(_noted(mask))
        return mask * (1 + torch.arange(mask.shape[1])) / mask.numel()


class Watched:
    """One call of a student's function with spies, and what they noted."""

    def __init__(self, function: Guarded, inputs: Inputs, policy: Transformer, generator: Generator | None = None):
        self.optimizer = SpyOptimizer(policy)
        for parameter in policy.parameters():
            parameter.grad = torch.full_like(parameter, 7 / SCALE)  # of an earlier step
        self.spy = SpyEstimator(inputs["group_size"], inputs["length_cost"], inputs["advantage_scale"])
        generator = generator or function.generator()
        arguments = [policy, self.optimizer, inputs["problems"], self.spy.estimator, generator]
        if "reward_penalty" in inputs:
            arguments.append(_regularization(inputs))
        before = [parameter.detach().clone() for parameter in policy.parameters()]
        self.result = function(*arguments, may_change=(0, 1, 4))
        if not all(map(torch.equal, before, policy.parameters())):
            raise Finding("changed the policy's parameters itself, where only optimizer.step should")
        if any(group["lr"] != 0 for group in self.optimizer.param_groups):
            raise Finding("changed the optimizer's step size")

    def rewards(self) -> Tensor:
        """What the advantages were computed from. `Finding` unless all of them were computed at once."""
        return _only(self.spy.rewards, "estimator.advantages")

    def mask(self) -> Tensor:
        """What the weights were computed from."""
        return _only(self.spy.masks, "estimator.weights")

    def gradient(self) -> Tensor:
        """What the only optimizer step found."""
        noted = [None if gradient is None else require_tensor(gradient) for gradient in self.optimizer.gradients]
        if len(noted) > 1 and noted[1] is not None and not noted[1].any():
            raise Finding(f"{len(noted)} calls of optimizer.step without a new gradient")
        if len(noted) != 1:
            raise Finding(f"{len(noted)} calls of optimizer.step where one belongs")
        if noted[0] is None:
            raise Finding("optimizer.step found no gradient")
        if not self.optimizer.finite:
            raise Finding("a gradient with NaN or infinity in it")
        return noted[0]


def _noted(received: Any) -> Any:
    """A copy of an ordinary tensor; anything else as it is, to be refused when it is read."""
    return Tensor.detach(received).clone() if type(received) is Tensor else received


def _only(received: Sequence[Any], by: str) -> Tensor:
    """What every call received; more than one call with the same does no harm."""
    if not received:
        raise Finding(f"{by} is never called")
    tensors = [require_tensor(item) for item in received]
    if not all(torch.equal(tensors[0], other) for other in tensors[1:]):
        raise Finding(f"{by} is called several times where it needs the whole batch at once")
    return tensors[0]


def _script(*rows: int, group_size: int = 3, length_cost: float = 0.0, advantage_scale: float = 1.0) -> Inputs:
    return {
        "problems": scripted_problems()[torch.tensor(rows)],
        "group_size": group_size,
        "length_cost": length_cost,
        "advantage_scale": advantage_scale,
    }


def _seen_rewards(function: Guarded, inputs: Inputs) -> Plain:
    rewards = Watched(function, inputs, scripted_model()).rewards()
    return plain(rewards.double().tolist())


def _seen_mask(function: Guarded, inputs: Inputs) -> Plain:
    return plain(Watched(function, inputs, scripted_model()).mask().double().tolist())


def _seen_gradient(function: Guarded, inputs: Inputs) -> Plain:
    watched = Watched(function, inputs, scripted_model())
    gradient = watched.gradient().double()
    if gradient.any() and watched.optimizer.zero:
        raise Finding(
            f"{watched.optimizer.zero} of {len(list(scripted_model().parameters()))} parameters without a gradient"
        )
    return plain((gradient[list(UNUSED)] * SCALE / inputs["advantage_scale"]).tolist())


def _coin_gradient(function: Guarded, inputs: Inputs) -> Plain:
    gradient = Watched(function, inputs, bigram_model(COIN, layers=1)).gradient()
    return plain(gradient[0].item() * 1e13)


def _returned(function: Guarded, inputs: Inputs) -> Plain:
    result = Watched(function, inputs, bigram_model(COIN, layers=1)).result
    return named_numbers(result, ("reward", "loss"))


def _lengths(function: Guarded, inputs: Inputs, generator: Generator) -> Tensor:
    """The lengths of all responses; `Finding` unless there is one mask row for each."""
    mask = Watched(function, inputs, bigram_model(LANGUAGE, layers=1), generator).mask()
    rows = len(inputs["problems"]) * inputs["group_size"]
    if mask.ndim != 2 or len(mask) != rows:
        raise Finding(f"a mask of shape {tuple(mask.shape)} where {rows} rows belong")
    return mask.sum(1).long()


def _frequencies(function: Guarded, inputs: Inputs) -> Plain:
    """Frequencies of lengths; and in words, whether rewards are those of the responses that are weighted."""
    watched = Watched(function, inputs, bigram_model(LANGUAGE, layers=1))
    lengths, rewards = watched.mask().sum(1).long(), watched.rewards().flatten()
    if rewards.shape != lengths.shape:
        raise Finding("another number of rewards than of responses")
    cost = inputs["length_cost"]
    paid = (-rewards / cost).remainder(1 / cost).round().long()
    answers = inputs["problems"].answers.repeat_interleave(inputs["group_size"])
    right = (answers == 3) & (paid <= 4) if len(answers) == len(paid) else paid < 0
    found = {f"length {n}": (lengths == n).double().mean().item() for n in (3, 4)}
    return {
        **found,
        "longer ones": "came" if bool((lengths > 4).any()) else "never came",
        "lengths paid for": "those sampled" if torch.equal(paid.sort().values, lengths.sort().values) else "others",
        "verdicts": "right" if torch.equal(right, rewards + paid * cost > 0.5) else "wrong",
    }


def _variety(function: Guarded, inputs: Inputs) -> Plain:
    """In words: what is equal within groups and between them, and what the generator decides."""
    generator = function.generator()
    first, second = _lengths(function, inputs, generator), _lengths(function, inputs, generator)
    again, other = (_lengths(function, inputs, function.generator(more)) for more in (0, 1))
    groups = first.view(-1, inputs["group_size"])
    return {
        "in a group": "all the same" if bool((groups == groups[:, :1]).all()) else "different lengths",
        "in the batch": "all the same" if bool((first == first[0]).all()) else "different lengths",
        "with the same seed again": same_or_not(first, again),
        "going on with the same generator": same_or_not(first, second),
        "with another seed": same_or_not(first, other),
    }


def _crowd(problems: int, group_size: int) -> Inputs:
    rows = [[0, 3], [2, 5]] * (problems // 2)
    sizes = {"group_size": group_size, "length_cost": 1 / 1024, "advantage_scale": 1.0}
    return {"problems": Problems.from_digits(rows), **sizes}


# regularized_step: a verifier, a reference and a divergence that no part of the lab has, so that each must be asked.


def _arrow_is_second(problems: Problems, responses: Tensor) -> Tensor:
    return responses[:, 1] == ARROW


def _squared_gap(policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor) -> Tensor:
    return ((policy_log_probs - 2 * reference_log_probs) * mask).square().sum(1).mean()


def _regularization(inputs: Inputs) -> Regularization:
    strengths = {name: inputs[name] for name in ("reward_penalty", "loss_penalty", "entropy")}
    return Regularization(scripted_model(sharpness=0.15), _arrow_is_second, _squared_gap, **strengths)


def _regularized(reward_penalty: float = 0.0, loss_penalty: float = 0.0, entropy: float = 0.0, **sizes: Any) -> Inputs:
    strengths = {"reward_penalty": reward_penalty, "loss_penalty": loss_penalty, "entropy": entropy}
    return {**_script(*range(6), **sizes), **strengths}


def _script_returned(function: Guarded, inputs: Inputs) -> Plain:
    return named_numbers(Watched(function, inputs, scripted_model()).result, ("reward", "loss"))


CASES: Mapping[str, Sequence[Case]] = {
    "regularized_step": [
        Case(
            "the rewards, with the verifier of the regularization",
            partial(_regularized, length_cost=0.03125),
            _seen_rewards,
        ),
        Case(
            "the rewards with a penalty of 0.5",
            partial(_regularized, 0.5, 0.25, length_cost=0.03125),
            _seen_rewards,
            1e-4,
        ),
        Case("the mask that the estimator gets", _regularized, _seen_mask),
        Case("the gradient with nothing added", _regularized, _seen_gradient, 1e-3),
        Case("the gradient, with huge advantages", partial(_regularized, advantage_scale=HUGE), _seen_gradient, 1e-3),
        Case("the gradient with a loss penalty of 2", partial(_regularized, 0.0, 2.0), _seen_gradient, 1e-3),
        Case("the gradient with an entropy bonus of 2", partial(_regularized, 0.0, 0.0, 2.0), _seen_gradient, 1e-3),
        Case("reward and loss, with a reward penalty", partial(_regularized, 0.5), _script_returned, 1e-4),
        Case("reward and loss, with a loss penalty of 2", partial(_regularized, 0.0, 2.0), _script_returned, 1e-4),
        Case("reward and loss, with an entropy bonus of 2", partial(_regularized, 0.0, 0.0, 2.0), _returned, 1e-4),
    ],
    "policy_gradient_step": [
        Case("the rewards that the estimator gets", partial(_script, *range(6), length_cost=0.03125), _seen_rewards),
        Case("the rewards without a cost, equal prompts apart", partial(_script, 0, 0, 3, group_size=2), _seen_rewards),
        Case("the mask that the estimator gets", partial(_script, *range(6)), _seen_mask),
        Case("reward and loss that are returned", partial(_script, *range(6), length_cost=0.03125), _returned),
        Case("the gradient of the step", partial(_script, *range(6)), _seen_gradient, tolerance=1e-3),
        Case("the gradient, of groups of five", partial(_script, 5, 1, group_size=5), _seen_gradient, tolerance=1e-3),
        Case(
            "the gradient, with huge advantages",
            partial(_script, *range(6), advantage_scale=HUGE),
            _seen_gradient,
            1e-3,
        ),
        Case("the gradient where two tokens are likely", partial(_script, *range(6)), _coin_gradient, tolerance=1e-3),
        Case("the frequency of lengths", partial(_crowd, 16, 16), _frequencies, 0.2, EXPECTED),
        Case("what is drawn", partial(_crowd, 8, 6), _variety),
    ],
}
