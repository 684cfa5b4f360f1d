"""The verifier: the only source of reward. It reads the end of a response and nothing else."""

from __future__ import annotations

import torch
from torch import Tensor

from labutils.errors import LabError
from labutils.task import ARROW, END, Problems


def verify(problems: Problems, responses: Tensor) -> Tensor:
    """(B,) bool: the response ends with `> a <end>` and `a` is the answer, whatever came before.

    responses: (B, R) int64. The first `<end>` ends a response, and a response without one is wrong.
    Raises `LabError` when there is not one response per problem.
    """
    if responses.dim() != 2 or len(responses) != len(problems):
        raise LabError(
            f"responses of shape {tuple(responses.shape)}; allowed is ({len(problems)}, R), one row a problem"
        )
    ended = responses == END
    end = ended.int().argmax(1)  # 0 also where there is no <end>: either way nothing can stand before it
    row = torch.arange(len(responses))
    answer, arrow = responses[row, (end - 1).clamp(min=0)], responses[row, (end - 2).clamp(min=0)]
    return (end >= 2) & (arrow == ARROW) & (answer == problems.answers)
