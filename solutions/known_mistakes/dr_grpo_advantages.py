"""Variants of `dr_grpo_advantages`."""

from __future__ import annotations

import torch
from torch import Tensor

from known_mistakes import Bank

bank = Bank("dr_grpo_advantages")


@bank.mistake("the advantages are divided by the group's standard deviation")
def normalised(rewards: Tensor) -> Tensor:
    return (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)


@bank.mistake("the advantages are divided by the whole batch's standard deviation")
def batch_deviation(rewards: Tensor) -> Tensor:
    return (rewards - rewards.mean(1, keepdim=True)) / (rewards.std() + 1e-4)


@bank.mistake("the baseline leaves out the response's own reward")
def leave_one_out(rewards: Tensor) -> Tensor:
    others = rewards.sum(1, keepdim=True) - rewards
    return rewards - others / (rewards.shape[1] - 1)


@bank.mistake("the baseline is the mean of the whole batch, not of the group")
def batch_mean(rewards: Tensor) -> Tensor:
    return rewards - rewards.mean()


@bank.mistake("the mean is taken over the problems, for each column apart")
def column_mean(rewards: Tensor) -> Tensor:
    return rewards - rewards.mean(0)


@bank.mistake("keepdim is missing: the groups' means lie along the wrong axis")
def no_keepdim(rewards: Tensor) -> Tensor:
    return rewards - rewards.mean(1)


@bank.mistake("there is no baseline")
def no_baseline(rewards: Tensor) -> Tensor:
    return rewards.clone()


@bank.mistake("the sign is flipped: mean less reward")
def flipped(rewards: Tensor) -> Tensor:
    return rewards.mean(1, keepdim=True) - rewards


@bank.mistake("the baseline is the group's sum, not its mean")
def sum_baseline(rewards: Tensor) -> Tensor:
    return rewards - rewards.sum(1, keepdim=True)


@bank.mistake("the baseline is the group's median, not its mean")
def median(rewards: Tensor) -> Tensor:
    return rewards - rewards.median(1, keepdim=True).values


@bank.mistake("the baseline is the group's best reward, not its mean")
def best(rewards: Tensor) -> Tensor:
    return rewards - rewards.amax(1, keepdim=True)


@bank.mistake("the sum is divided by 8 whatever the group size")
def eight(rewards: Tensor) -> Tensor:
    return rewards - rewards.sum(1, keepdim=True) / 8


@bank.mistake("the advantages are divided by the group size")
def divided_by_group_size(rewards: Tensor) -> Tensor:
    return (rewards - rewards.mean(1, keepdim=True)) / rewards.shape[1]


@bank.mistake("the baseline is returned, not the reward less the baseline")
def baseline_only(rewards: Tensor) -> Tensor:
    return rewards.mean(1, keepdim=True).expand_as(rewards)


@bank.mistake("the result is flat: (N * G,) instead of (N, G)")
def flat(rewards: Tensor) -> Tensor:
    return (rewards - rewards.mean(1, keepdim=True)).flatten()


@bank.mistake("the rewards passed in are changed")
def in_place(rewards: Tensor) -> Tensor:
    rewards -= rewards.mean(1, keepdim=True)
    return rewards


@bank.right("a loop over problems")
def loop(rewards: Tensor) -> Tensor:
    rows = []
    for row in rewards.tolist():
        mean = sum(row) / len(row)
        rows.append([reward - mean for reward in row])
    return torch.tensor(rows)


@bank.right("(G - 1) / G times the leave-one-out advantage")
def scaled_leave_one_out(rewards: Tensor) -> Tensor:
    size = rewards.shape[1]
    others = (rewards.sum(1, keepdim=True) - rewards) / (size - 1)
    return (size - 1) / size * (rewards - others)


@bank.right("transposed, so that the means broadcast without keepdim")
def transposed(rewards: Tensor) -> Tensor:
    return (rewards.T - rewards.mean(1)).T


@bank.right("one group at a time")
def group_by_group(rewards: Tensor) -> Tensor:
    return torch.stack([group - group.mean() for group in rewards])


@bank.right("a centring matrix in float64")
def centring_matrix(rewards: Tensor) -> Tensor:
    size = rewards.shape[1]
    centre = torch.eye(size, dtype=torch.float64) - 1 / size
    return torch.einsum("ng,gh->nh", rewards.double(), centre)
