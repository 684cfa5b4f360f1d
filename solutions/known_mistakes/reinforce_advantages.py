"""Variants of `reinforce_advantages`."""

from __future__ import annotations

import torch
from torch import Tensor

from known_mistakes import Bank

bank = Bank("reinforce_advantages")


@bank.mistake("the baseline is the mean of each group, not of the whole batch")
def group_mean(rewards: Tensor) -> Tensor:
    return rewards - rewards.mean(1, keepdim=True)


@bank.mistake("the mean is taken over the problems, for each column apart")
def column_mean(rewards: Tensor) -> Tensor:
    return rewards - rewards.mean(0)


@bank.mistake("there is no baseline")
def no_baseline(rewards: Tensor) -> Tensor:
    return rewards.clone()


@bank.mistake("the baseline is the sum of the rewards, not their mean")
def sum_baseline(rewards: Tensor) -> Tensor:
    return rewards - rewards.sum()


@bank.mistake("the sign is flipped: baseline less reward")
def flipped(rewards: Tensor) -> Tensor:
    return rewards.mean() - rewards


@bank.mistake("the baseline leaves out the response's own reward")
def leave_one_out(rewards: Tensor) -> Tensor:
    return rewards - (rewards.sum() - rewards) / (rewards.numel() - 1)


@bank.mistake("the baseline leaves out the response's own group")
def other_groups(rewards: Tensor) -> Tensor:
    problems, group = rewards.shape
    others = rewards.sum() - rewards.sum(1, keepdim=True)
    return rewards - others / (max(problems - 1, 1) * group)


@bank.mistake("the advantages are divided by the standard deviation")
def normalised(rewards: Tensor) -> Tensor:
    return (rewards - rewards.mean()) / (rewards.std() + 1e-4)


@bank.mistake("the baseline is the median, not the mean")
def median(rewards: Tensor) -> Tensor:
    return rewards - rewards.median()


@bank.mistake("the baseline is the highest reward, not the mean")
def highest(rewards: Tensor) -> Tensor:
    return rewards - rewards.max()


@bank.mistake("the baseline is returned, not the reward less the baseline")
def baseline_only(rewards: Tensor) -> Tensor:
    return rewards.mean().expand_as(rewards)


@bank.mistake("the sum is divided by the number of problems, not of responses")
def divided_by_problems(rewards: Tensor) -> Tensor:
    return rewards - rewards.sum() / len(rewards)


@bank.mistake("the result is flat: (N * G,) instead of (N, G)")
def flat(rewards: Tensor) -> Tensor:
    return rewards.flatten() - rewards.mean()


@bank.mistake("the rewards passed in are changed")
def in_place(rewards: Tensor) -> Tensor:
    rewards -= rewards.mean()
    return rewards


@bank.mistake("the baseline is rounded to a whole number")
def rounded(rewards: Tensor) -> Tensor:
    return rewards - rewards.sum() // rewards.numel()


@bank.right("a loop over all rewards")
def loop(rewards: Tensor) -> Tensor:
    rows = rewards.tolist()
    every = [reward for row in rows for reward in row]
    baseline = sum(every) / len(every)
    return torch.tensor([[reward - baseline for reward in row] for row in rows])


@bank.right("the mean of the groups' means, in float64")
def mean_of_means(rewards: Tensor) -> Tensor:
    rewards = rewards.double()
    return rewards - rewards.mean(1).mean()


@bank.right("sum over number, subtracted from a copy")
def copied(rewards: Tensor) -> Tensor:
    advantages = rewards.clone()
    advantages -= rewards.sum() / rewards.numel()
    return advantages


@bank.right("a projection matrix on the flat rewards")
def projection(rewards: Tensor) -> Tensor:
    flat = rewards.flatten()
    centre = torch.eye(len(flat), dtype=flat.dtype) - 1 / len(flat)
    return (centre @ flat).view_as(rewards)


@bank.right("numpy")
def with_numpy(rewards: Tensor) -> Tensor:
    array = rewards.numpy().astype("float64")
    return torch.from_numpy(array - array.mean())
