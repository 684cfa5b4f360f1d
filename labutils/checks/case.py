"""A case: fixed inputs to a student's function, and how what comes back is read out as plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from labutils.checks.guard import Guarded
from labutils.checks.values import Finding, Plain, tensor_values

Inputs = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """One case of an exercise.

    name: what it looks at.
    inputs: makes the inputs anew, name -> value, so that a function that changes them spoils nothing. They are what a
        report prints.
    outcome: (guarded function, inputs) -> plain data; raises `Finding` for an outcome in words.
    tolerance: by which numbers may differ, absolute below 1 and relative above.
    exact: the right outcome where theory gives it; otherwise the reference solution's.
    """

    name: str
    inputs: Callable[[], Inputs]
    outcome: Callable[[Guarded, Inputs], Plain]
    tolerance: float = 1e-5
    exact: Plain = None


def same_or_not(first: Tensor, second: Tensor) -> str:
    """In words, whether two draws gave the same."""
    return "the same responses" if torch.equal(first, second) else "other responses"


def gradient_of(function: Guarded, loss: Any, source: Tensor) -> Plain:
    """The gradient of a scalar tensor at `source`. `Finding` when it is none, or when no gradient flows."""
    if isinstance(tensor_values(loss), list):
        raise Finding("a tensor of several numbers where a single one belongs")
    if not loss.requires_grad:
        raise Finding("no gradient flows back from the result")
    (gradient,) = function.run(lambda: torch.autograd.grad(loss, source, allow_unused=True))
    if gradient is None:
        raise Finding("no gradient flows back from the result")
    return tensor_values(gradient)


def call_case(name: str, read: Callable[[Any], Plain], inputs: Callable[[], Inputs], tolerance: float = 1e-5) -> Case:
    """A case whose outcome is what the function returns for its inputs, read out by `read`."""
    return Case(name, inputs, lambda function, given: read(function(*given.values())), tolerance)
