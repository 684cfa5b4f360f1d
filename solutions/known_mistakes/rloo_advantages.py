"""Variants of `rloo_advantages`."""

from __future__ import annotations

import torch
from torch import Tensor

from known_mistakes import Bank

bank = Bank("rloo_advantages")


@bank.mistake("the baseline contains the response's own reward")
def own_reward(rewards: Tensor) -> Tensor:
    return rewards - rewards.mean(1, keepdim=True)


@bank.mistake("the others' sum is divided by the group size, not by the group size less one")
def divided_by_group_size(rewards: Tensor) -> Tensor:
    others = rewards.sum(1, keepdim=True) - rewards
    return rewards - others / rewards.shape[1]


@bank.mistake("the sum of all rewards, the own one included, is divided by the group size less one")
def own_reward_in_the_sum(rewards: Tensor) -> Tensor:
    return rewards - rewards.sum(1, keepdim=True) / (rewards.shape[1] - 1)


@bank.mistake("the baseline is the others' mean over the whole batch, not over the group")
def whole_batch(rewards: Tensor) -> Tensor:
    return rewards - (rewards.sum() - rewards) / (rewards.numel() - 1)


@bank.mistake("the others are the other problems' responses in the same column")
def columns(rewards: Tensor) -> Tensor:
    others = rewards.sum(0, keepdim=True) - rewards
    return rewards - others / max(len(rewards) - 1, 1)


@bank.mistake("keepdim is missing: the groups' sums lie along the wrong axis")
def no_keepdim(rewards: Tensor) -> Tensor:
    return rewards - (rewards.sum(1) - rewards) / (rewards.shape[1] - 1)


@bank.mistake("there is no baseline")
def no_baseline(rewards: Tensor) -> Tensor:
    return rewards.clone()


@bank.mistake("the sign is flipped: baseline less reward")
def flipped(rewards: Tensor) -> Tensor:
    return (rewards.sum(1, keepdim=True) - rewards) / (rewards.shape[1] - 1) - rewards


@bank.mistake("the baseline is the others' sum, not their mean")
def sum_of_others(rewards: Tensor) -> Tensor:
    return rewards - (rewards.sum(1, keepdim=True) - rewards)


@bank.mistake("the baseline is returned, not the reward less the baseline")
def baseline_only(rewards: Tensor) -> Tensor:
    return (rewards.sum(1, keepdim=True) - rewards) / (rewards.shape[1] - 1)


@bank.mistake("the group size is fixed at 8")
def eight(rewards: Tensor) -> Tensor:
    return rewards - (rewards.sum(1, keepdim=True) - rewards) / 7


@bank.mistake("the factor is upside down: (G - 1) / G instead of G / (G - 1)")
def inverted_factor(rewards: Tensor) -> Tensor:
    size = rewards.shape[1]
    return (size - 1) / size * (rewards - rewards.mean(1, keepdim=True))


@bank.mistake("the number of problems is taken for the group size")
def problems_for_group(rewards: Tensor) -> Tensor:
    others = rewards.sum(1, keepdim=True) - rewards
    return rewards - others / max(len(rewards) - 1, 1)


@bank.mistake("the advantages are divided by the group's standard deviation")
def normalised(rewards: Tensor) -> Tensor:
    others = rewards.sum(1, keepdim=True) - rewards
    return (rewards - others / (rewards.shape[1] - 1)) / (rewards.std(1, keepdim=True) + 1e-4)


@bank.mistake("the baseline is the best of the other rewards, not their mean")
def best_other(rewards: Tensor) -> Tensor:
    own = torch.eye(rewards.shape[1], dtype=torch.bool)
    others = rewards[:, None, :].expand(-1, len(own), -1).masked_fill(own, -torch.inf)
    return rewards - others.max(2).values


@bank.mistake("the baseline is rounded down to a whole number")
def rounded(rewards: Tensor) -> Tensor:
    others = rewards.sum(1, keepdim=True) - rewards
    return rewards - others // (rewards.shape[1] - 1)


@bank.mistake("the result is flat: (N * G,) instead of (N, G)")
def flat(rewards: Tensor) -> Tensor:
    others = rewards.sum(1, keepdim=True) - rewards
    return (rewards - others / (rewards.shape[1] - 1)).flatten()


@bank.mistake("the rewards passed in are changed")
def in_place(rewards: Tensor) -> Tensor:
    others = rewards.sum(1, keepdim=True) - rewards
    rewards -= others / (rewards.shape[1] - 1)
    return rewards


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


@bank.right("einsum with a matrix of leave-one-out weights")
def leave_one_out_matrix(rewards: Tensor) -> Tensor:
    size = rewards.shape[1]
    others = (1 - torch.eye(size, dtype=torch.float64)) / (size - 1)
    return rewards.double() - torch.einsum("ng,hg->nh", rewards.double(), others)


@bank.right("each column left out in turn")
def column_by_column(rewards: Tensor) -> Tensor:
    advantages = torch.empty_like(rewards)
    for i in range(rewards.shape[1]):
        others = torch.cat([rewards[:, :i], rewards[:, i + 1 :]], 1)
        advantages[:, i] = rewards[:, i] - others.mean(1)
    return advantages


@bank.right("the mean of the differences to the others")
def pairwise(rewards: Tensor) -> Tensor:
    differences = rewards[:, :, None] - rewards[:, None, :]
    return differences.sum(2) / (rewards.shape[1] - 1)
