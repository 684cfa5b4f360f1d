"""A worked form of variable length, for the question whether responses drift in length.

Every state may stand several times in a row: `: 4 4 9 8 8 8 > 8 <end>` answers 4 7 1 as well as `: 4 9 8 > 8 <end>`.
A response has up to 24 tokens, and the model that writes them 33 positions.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from labutils.model import ModelConfig
from labutils.task import ARROW, COLON, END, PAD, PROMPT_TOKENS, Problems

MOST_TOKENS = 24
REPEAT_RATE = 0.25  # the chance that a state which has been written is written again
REPEATING_CONFIG = replace(ModelConfig(), positions=PROMPT_TOKENS + MOST_TOKENS)


def encode_repeating(problems: Problems, worked: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """(B, 24) int64 correct responses, padded after `<end>`; each state of a worked one is repeated at random.

    worked: (B,) bool, which responses show their steps. After each writing of a state another follows with
    probability 1/4, so that a state stands 4/3 times on average, as far as 24 tokens suffice.
    """
    chances = torch.rand(len(problems), MOST_TOKENS, generator=generator) < REPEAT_RATE
    rows = []
    for states, length, works, again in zip(
        problems.states.tolist(), problems.lengths.tolist(), worked.tolist(), chances.tolist(), strict=True
    ):
        steps = _repeated(states[-length:], again) if works else []
        row = [*([COLON] if works else []), *steps, ARROW, states[-1], END]
        rows.append(row + [PAD] * (MOST_TOKENS - len(row)))
    return torch.tensor(rows)


def _repeated(states: list[int], again: list[bool]) -> list[int]:
    """The states with repeats, one chance for each token written, while 24 tokens suffice for what must follow."""
    written: list[int] = []
    spare = MOST_TOKENS - len(states) - 4  # `:`, `>`, the answer and `<end>`
    for state in states:
        written.append(state)
        while spare > 0 and again[len(written)]:
            written.append(state)
            spare -= 1
    return written
