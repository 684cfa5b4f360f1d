"""The cases of part 2's exercises, but for the training step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch

from labutils.checks.case import Case, Inputs, call_case, gradient_of
from labutils.checks.guard import Guarded
from labutils.checks.values import Plain, scalar, tensor_values

GROUPS = ([[1, 0, 0, 1], [0, 0, 1, 0], [1, 1, 0, 1]], [[1, 0], [0, 1], [0, 0], [1, 1], [0, 1]])
EQUAL_GROUPS = [[1, 1, 1, 1], [0, 0, 0, 0], [1, 0, 1, 1]]
SQUARE = [[1, 0, 0], [1, 1, 0], [1, 0, 0]]
NEGATIVE = [[0.94, -0.06, 0.76, -0.24], [-0.06, -0.06, -0.24, 0.5]]
LARGE = [[300.0, -100.0, 50.0], [-7.0, 200.0, 40.0]]


def _rewards(rows: Sequence[Sequence[float]], dtype: torch.dtype = torch.float32) -> Inputs:
    return {"rewards": torch.tensor(rows, dtype=dtype)}


def _advantages(tolerance: float = 1e-5) -> list[Case]:
    """Cases for each of the four advantage functions."""
    tables: dict[str, Sequence[Sequence[float]]] = {
        "three groups of four": GROUPS[0],
        "five groups of two": GROUPS[1],
        "groups of equal rewards": EQUAL_GROUPS,
        "as many groups as responses in each": SQUARE,
        "a length cost, with negative rewards": NEGATIVE,
        "a single group": GROUPS[0][:1],
        "large rewards": LARGE,
    }
    return [call_case(name, tensor_values, partial(_rewards, rows), tolerance) for name, rows in tables.items()]


def _costs(correct: list[list[bool]], lengths: list[list[int]], *cost: float) -> Inputs:
    inputs: dict[str, Any] = {"correct": torch.tensor(correct), "lengths": torch.tensor(lengths)}
    return {**inputs, "cost": cost[0]} if cost else inputs


RIGHT, LENGTHS = [[True, False, True], [False, True, False]], [[3, 12, 6], [4, 3, 8]]
COSTS = [
    call_case("a cost of 0.02", tensor_values, partial(_costs, RIGHT, LENGTHS, 0.02)),
    call_case("no cost given", tensor_values, partial(_costs, RIGHT, LENGTHS)),
    call_case("a cost of 0.5 on long responses", tensor_values, partial(_costs, [[True], [False]], [[12], [3]], 0.5)),
]

MASK = [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 0, 0, 0, 0]]


def _mask(rows: Sequence[Sequence[int]], dtype: torch.dtype) -> Inputs:
    return {"mask": torch.tensor(rows, dtype=dtype)}


def _weights(**more: Any) -> list[Case]:
    """Cases for each of the three weight functions."""
    tables = {
        "a float mask of 3, 5 and 1 tokens": (MASK, torch.float32),
        "the same as a bool mask": (MASK, torch.bool),
        "as many responses as tokens": ([[1, 1, 1], [1, 0, 0], [1, 1, 0]], torch.float32),
        "a response with an empty mask": ([[1, 1, 0, 0], [0, 0, 0, 0]], torch.bool),
        "one response of 12 tokens' width": ([[1] * 7 + [0] * 5], torch.bool),
    }
    return [call_case(name, tensor_values, partial(_mask, rows, dtype), 1e-6) for name, (rows, dtype) in tables.items()]


CONSTANT = [
    call_case(
        "max_tokens given",
        tensor_values,
        lambda: {**_mask(MASK, torch.bool), "max_tokens": 5},
        1e-6,
    )
]

# policy_loss -----------------------------------------------------------------------------------------------------


def _policy(rows: int = 3) -> Inputs:
    log_probs = [[-1.0, -2.0, 0.0, 0.0], [-0.5, -0.25, -3.0, -1.5], [-4.0, 0.0, 0.0, 0.0]]
    weights = [[0.25, 0.5, 0.0, 0.0], [0.1, 0.2, 0.3, 0.4], [1.0, 0.0, 0.0, 0.0]]
    return {
        "log_probs": torch.tensor(log_probs[:rows], requires_grad=True),
        "advantages": torch.tensor([0.75, -0.5, 0.25][:rows]),
        "weights": torch.tensor(weights[:rows]),
    }


def _square_policy() -> Inputs:
    """As many responses as tokens, so that advantages along the wrong axis raise nothing."""
    return {
        "log_probs": torch.tensor([[-1.0, -2.0], [-0.5, -0.25]], requires_grad=True),
        "advantages": torch.tensor([0.75, -0.5]),
        "weights": torch.tensor([[0.5, 0.25], [0.5, 0.5]]),
    }


def _value(function: Guarded, inputs: Inputs) -> Plain:
    return tensor_values(function(*inputs.values()))


def _gradient(function: Guarded, inputs: Inputs) -> Plain:
    return gradient_of(function, function(*inputs.values()), inputs["log_probs"])


POLICY_LOSS = [
    Case("two responses of two tokens", _square_policy, _value),
    Case("ragged responses", _policy, _value),
    Case("the gradient at the log-probs", _policy, _gradient),
    Case("a single response", partial(_policy, 1), _value),
]

# kl_per_response -------------------------------------------------------------------------------------------------


def _divergence(dtype: torch.dtype, rows: int = 3) -> Inputs:
    policy = [[-1.0, -2.0, 0.0, 0.0], [-0.5, -0.25, -3.0, -1.5], [-4.0, 0.0, 0.0, 0.0]]
    reference = [[-2.0, -1.5, 0.0, 0.0], [-0.75, -1.25, -2.0, -4.0], [-1.0, 0.0, 0.0, 0.0]]
    mask = [[1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]]
    return {
        "policy_log_probs": torch.tensor(policy[:rows]),
        "reference_log_probs": torch.tensor(reference[:rows]),
        "mask": torch.tensor(mask[:rows], dtype=dtype),
    }


def _equal_policies() -> Inputs:
    inputs = _divergence(torch.bool)
    return {**inputs, "reference_log_probs": inputs["policy_log_probs"].clone()}


DIVERGENCES = [
    call_case("responses of 2, 4 and 1 tokens", scalar, partial(_divergence, torch.bool)),
    call_case("a float mask", scalar, partial(_divergence, torch.float32)),
    call_case("a single response", scalar, partial(_divergence, torch.float32, 1)),
    call_case("the policy itself as reference", scalar, _equal_policies),
]

CASES: Mapping[str, Sequence[Case]] = {
    "rewards_with_cost": COSTS,
    "reinforce_advantages": _advantages(),
    "rloo_advantages": _advantages(),
    "grpo_advantages": _advantages(tolerance=4e-3),
    "dr_grpo_advantages": _advantages(),
    "sum_weights": _weights(),
    "mean_weights": _weights(),
    "constant_weights": _weights() + CONSTANT,
    "policy_loss": POLICY_LOSS,
    "kl_per_response": DIVERGENCES,
}
