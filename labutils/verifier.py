"""The verifier: the only source of reward. It reads the end of a response and nothing else."""

from __future__ import annotations

import torch
from torch import Tensor

from labutils.errors import LabError
from labutils.task import ARROW, END, Problems


def verify(problems: Problems, responses: Tensor) -> Tensor:
    """(B,) bool: the response ends with `> a <end>` and `a` is the answer, whatever came before.

    responses: (B, R) int64. The first `<end>` ends a response, and a response without one is wrong.
    Raises `LabError` for anything else than one response of whole tokens per problem.
    """
    shape = tuple(responses.shape)
    if len(shape) != 2 or shape[0] != len(problems) or shape[1] == 0:
        raise LabError(f"responses of shape {shape}; allowed is ({len(problems)}, R), one row a problem, R at least 1")
    if responses.dtype != torch.int64:
        raise LabError(f"responses of dtype {responses.dtype}; allowed is torch.int64")
    ended = responses == END
    end = ended.int().argmax(1)  # 0 also where there is no <end>: either way nothing can stand before it
    row = torch.arange(len(responses))
    answer, arrow = responses[row, (end - 1).clamp(min=0)], responses[row, (end - 2).clamp(min=0)]
    return (end >= 2) & (arrow == ARROW) & (answer == problems.answers)
