"""Variants of `grpo_advantages`."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from known_mistakes import Bank

bank = Bank("grpo_advantages")


@bank.mistake("nothing is added to the standard deviation: a group of equal rewards gives NaN")
def no_epsilon(rewards: Tensor) -> Tensor:
    return (rewards - rewards.mean(1, keepdim=True)) / rewards.std(1, keepdim=True)


@bank.mistake("the number added to the standard deviation is too large")
def large_epsilon(rewards: Tensor) -> Tensor:
    return (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 0.1)


@bank.mistake("mean and standard deviation are the whole batch's, not the group's")
def batch_statistics(rewards: Tensor) -> Tensor:
    return (rewards - rewards.mean()) / (rewards.std() + 1e-4)


@bank.mistake("the standard deviation is the whole batch's, not the group's")
def batch_deviation(rewards: Tensor) -> Tensor:
    return (rewards - rewards.mean(1, keepdim=True)) / (rewards.std() + 1e-4)


@bank.mistake("the mean is the whole batch's, not the group's")
def batch_mean(rewards: Tensor) -> Tensor:
    return (rewards - rewards.mean()) / (rewards.std(1, keepdim=True) + 1e-4)


@bank.mistake("mean and standard deviation are taken over the problems, for each column apart")
def column_statistics(rewards: Tensor) -> Tensor:
    deviation = rewards.std(0, correction=0) + 1e-4
    return (rewards - rewards.mean(0)) / deviation


@bank.mistake("the advantages are not divided by the standard deviation")
def not_divided(rewards: Tensor) -> Tensor:
    return rewards - rewards.mean(1, keepdim=True)


@bank.mistake("the advantages are divided by the variance, not by its square root")
def variance(rewards: Tensor) -> Tensor:
    return (rewards - rewards.mean(1, keepdim=True)) / (rewards.var(1, keepdim=True) + 1e-4)


@bank.mistake("the advantages are multiplied by the standard deviation")
def multiplied(rewards: Tensor) -> Tensor:
    return (rewards - rewards.mean(1, keepdim=True)) * (rewards.std(1, keepdim=True) + 1e-4)


@bank.mistake("the group's mean is not subtracted")
def not_centred(rewards: Tensor) -> Tensor:
    return rewards / (rewards.std(1, keepdim=True) + 1e-4)


@bank.mistake("the baseline leaves out the response's own reward")
def leave_one_out(rewards: Tensor) -> Tensor:
    others = (rewards.sum(1, keepdim=True) - rewards) / (rewards.shape[1] - 1)
    return (rewards - others) / (rewards.std(1, keepdim=True) + 1e-4)


@bank.mistake("the sign is flipped: mean less reward")
def flipped(rewards: Tensor) -> Tensor:
    return (rewards.mean(1, keepdim=True) - rewards) / (rewards.std(1, keepdim=True) + 1e-4)


@bank.mistake("the mean absolute deviation stands in for the standard deviation")
def absolute_deviation(rewards: Tensor) -> Tensor:
    centred = rewards - rewards.mean(1, keepdim=True)
    return centred / (centred.abs().mean(1, keepdim=True) + 1e-4)


@bank.mistake("the advantages are divided by the root of the sum of squares, not of their mean")
def unit_norm(rewards: Tensor) -> Tensor:
    centred = rewards - rewards.mean(1, keepdim=True)
    return centred / (centred.norm(dim=1, keepdim=True) + 1e-4)


@bank.mistake("the advantages are divided by the group's range, not by its standard deviation")
def divided_by_range(rewards: Tensor) -> Tensor:
    spread = rewards.amax(1, keepdim=True) - rewards.amin(1, keepdim=True)
    return (rewards - rewards.mean(1, keepdim=True)) / (spread + 1e-4)


@bank.mistake("the advantages are cut off at -1 and 1")
def clipped(rewards: Tensor) -> Tensor:
    advantages = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)
    return advantages.clamp(-1, 1)


@bank.mistake("keepdim is missing: the groups' means and deviations lie along the wrong axis")
def no_keepdim(rewards: Tensor) -> Tensor:
    return (rewards - rewards.mean(1)) / (rewards.std(1) + 1e-4)


@bank.mistake("the division comes before the subtraction: brackets are missing")
def no_brackets(rewards: Tensor) -> Tensor:
    return rewards - rewards.mean(1, keepdim=True) / (rewards.std(1, keepdim=True) + 1e-4)


@bank.mistake("the rewards passed in are changed")
def in_place(rewards: Tensor) -> Tensor:
    deviation = rewards.std(1, keepdim=True) + 1e-4
    rewards -= rewards.mean(1, keepdim=True)
    rewards /= deviation
    return rewards


@bank.right("without Bessel's correction, 1e-6 added")
def no_bessel(rewards: Tensor) -> Tensor:
    deviation = rewards.std(1, keepdim=True, correction=0)
    return (rewards - rewards.mean(1, keepdim=True)) / (deviation + 1e-6)


@bank.right("Bessel's correction, 1e-3 added")
def with_bessel(rewards: Tensor) -> Tensor:
    deviation = rewards.std(1, keepdim=True)
    return (rewards - rewards.mean(1, keepdim=True)) / (deviation + 1e-3)


@bank.right("root of the mean square of the centred rewards, in float64")
def mean_square(rewards: Tensor) -> Tensor:
    centred = rewards.double() - rewards.double().mean(1, keepdim=True)
    return centred / (centred.square().mean(1, keepdim=True).sqrt() + 1e-4)


@bank.right("a loop over problems, without Bessel's correction")
def loop(rewards: Tensor) -> Tensor:
    rows = []
    for row in rewards.tolist():
        mean = sum(row) / len(row)
        deviation = math.sqrt(sum((reward - mean) ** 2 for reward in row) / len(row))
        rows.append([(reward - mean) / (deviation + 1e-5) for reward in row])
    return torch.tensor(rows)


@bank.right("torch.std_mean, one group at a time, 1e-6 added")
def group_by_group(rewards: Tensor) -> Tensor:
    groups = []
    for group in rewards:
        deviation, mean = torch.std_mean(group)
        groups.append((group - mean) / (deviation + 1e-6))
    return torch.stack(groups)


@bank.right("0 set explicitly for a group of equal rewards")
def zero_by_case(rewards: Tensor) -> Tensor:
    deviation = rewards.std(1, keepdim=True)
    normalised = (rewards - rewards.mean(1, keepdim=True)) / (deviation + 1e-6)
    return torch.where(deviation < 1e-6, 0.0, normalised)
