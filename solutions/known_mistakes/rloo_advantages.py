"""Variants of `rloo_advantages`."""

from __future__ import annotations

import torch
from torch import Tensor

from known_mistakes import Bank

bank = Bank("rloo_advantages")


@bank.mistake("the baseline contains the response's own reward")
def own_reward(rewards: Tensor) -> Tensor:
    return rewards - rewards.mean(1, keepdim=True)


@bank.right("group size over group size less one, times the centred reward")
def rescaled(rewards: Tensor) -> Tensor:
    size = rewards.shape[1]
    return size / (size - 1) * (rewards - rewards.mean(1, keepdim=True))


@bank.right("a loop over problems and responses")
def loop(rewards: Tensor) -> Tensor:
    rows = []
    for row in rewards.tolist():
        rows.append([reward - (sum(row) - reward) / (len(row) - 1) for reward in row])
    return torch.tensor(rows)
