"""The floor: the matrix products of a step's linear layers, and nothing else, at the shapes that the lab uses.

These are the multiply-adds that remain when no prefix is computed twice. Attention's own products, a hundredth of
them, are left out.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

Shape = tuple[int, int, int, bool]  # rows, inputs, outputs, and whether gradients follow


def linear_shapes(model: nn.Module, step: Callable[[], object]) -> list[Shape]:
    """The shapes of every call of a linear layer of `model` while `step` runs."""
    shapes: list[Shape] = []

    def record(module: nn.Module, inputs: tuple[Tensor, ...], _: Tensor) -> None:
        weight = module.weight
        assert isinstance(weight, Tensor)
        shapes.append((len(inputs[0]), weight.shape[1], weight.shape[0], torch.is_grad_enabled()))

    hooks = [m.register_forward_hook(record) for m in model.modules() if isinstance(m, nn.Linear)]
    step()
    for hook in hooks:
        hook.remove()
    return shapes


def products(shapes: list[Shape]) -> Callable[[], None]:
    """A function that does those products into memory that is already there, the gradients' two more included."""
    calls: list[tuple[Tensor, Tensor, Tensor]] = []
    for rows, inputs, outputs, backward in shapes:
        x, weight, y = torch.randn(rows, inputs), torch.randn(inputs, outputs), torch.randn(rows, outputs)
        calls.append((x, weight, torch.empty(rows, outputs)))
        if backward:
            calls.append((y, weight.T, torch.empty(rows, inputs)))
            calls.append((x.T, y, torch.empty(inputs, outputs)))

    def run() -> None:
        for left, right, out in calls:
            torch.mm(left, right, out=out)

    return run
