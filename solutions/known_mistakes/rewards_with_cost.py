"""Variants of `rewards_with_cost`."""

from __future__ import annotations

import torch
from torch import Tensor

from known_mistakes import Bank
from labutils.task import RESPONSE_TOKENS

bank = Bank("rewards_with_cost")


@bank.mistake("the cost is added instead of subtracted")
def added(correct: Tensor, lengths: Tensor, cost: float = 0.0) -> Tensor:
    return correct.float() + cost * lengths


@bank.mistake("the cost is ignored")
def ignored(correct: Tensor, lengths: Tensor, cost: float = 0.0) -> Tensor:
    return correct.float()


@bank.mistake("the cost is subtracted once per response, not once per token")
def per_response(correct: Tensor, lengths: Tensor, cost: float = 0.0) -> Tensor:
    return correct.float() - cost


@bank.mistake("only correct responses pay for their tokens")
def only_correct(correct: Tensor, lengths: Tensor, cost: float = 0.0) -> Tensor:
    return correct.float() * (1 - cost * lengths)


@bank.mistake("only wrong responses pay for their tokens")
def only_wrong(correct: Tensor, lengths: Tensor, cost: float = 0.0) -> Tensor:
    return torch.where(correct, 1.0, -cost * lengths)


@bank.mistake("a wrong response gets -1 instead of 0")
def minus_one(correct: Tensor, lengths: Tensor, cost: float = 0.0) -> Tensor:
    return 2 * correct.float() - 1 - cost * lengths


@bank.mistake("right and wrong are swapped")
def swapped(correct: Tensor, lengths: Tensor, cost: float = 0.0) -> Tensor:
    return (~correct).float() - cost * lengths


@bank.mistake("every response pays for 12 tokens, whatever its length")
def full_width(correct: Tensor, lengths: Tensor, cost: float = 0.0) -> Tensor:
    return correct.float() - cost * RESPONSE_TOKENS * torch.ones_like(lengths)


@bank.mistake("every response pays for the mean length, not for its own")
def mean_length(correct: Tensor, lengths: Tensor, cost: float = 0.0) -> Tensor:
    return correct.float() - cost * lengths.float().mean()


@bank.mistake("every response pays for its group's mean length, not for its own")
def group_length(correct: Tensor, lengths: Tensor, cost: float = 0.0) -> Tensor:
    return correct.float() - cost * lengths.float().mean(1, keepdim=True)


@bank.mistake("`<end>` is free: one token less is charged")
def end_is_free(correct: Tensor, lengths: Tensor, cost: float = 0.0) -> Tensor:
    return correct.float() - cost * (lengths - 1)


@bank.mistake("rewards below 0 are raised to 0")
def not_negative(correct: Tensor, lengths: Tensor, cost: float = 0.0) -> Tensor:
    return (correct.float() - cost * lengths).clamp(min=0)


@bank.mistake("the cost is fixed at 0.02")
def fixed_cost(correct: Tensor, lengths: Tensor, cost: float = 0.0) -> Tensor:
    return correct.float() - 0.02 * lengths


@bank.mistake("the cost is a share of 12 tokens: it is divided by 12")
def share_of_width(correct: Tensor, lengths: Tensor, cost: float = 0.0) -> Tensor:
    return correct.float() - cost * lengths / RESPONSE_TOKENS


@bank.mistake("every token multiplies the reward by 1 - cost, instead of a subtraction")
def discounted(correct: Tensor, lengths: Tensor, cost: float = 0.0) -> Tensor:
    return correct.float() * (1 - cost) ** lengths


@bank.mistake("the rewards are whole numbers, which loses the cost")
def whole_numbers(correct: Tensor, lengths: Tensor, cost: float = 0.0) -> Tensor:
    return correct.long() - (cost * lengths).long()


@bank.mistake("the reward of a response is multiplied by its length")
def multiplied(correct: Tensor, lengths: Tensor, cost: float = 0.0) -> Tensor:
    return (correct.float() - cost) * lengths


@bank.mistake("the result is flat: (N * G,) instead of (N, G)")
def flat(correct: Tensor, lengths: Tensor, cost: float = 0.0) -> Tensor:
    return (correct.float() - cost * lengths).flatten()


@bank.mistake("the result is transposed: (G, N) instead of (N, G)")
def transposed(correct: Tensor, lengths: Tensor, cost: float = 0.0) -> Tensor:
    return (correct.float() - cost * lengths).T


@bank.right("a loop over problems and responses")
def loop(correct: Tensor, lengths: Tensor, cost: float = 0.0) -> Tensor:
    rewards = torch.zeros(correct.shape)
    for n in range(correct.shape[0]):
        for g in range(correct.shape[1]):
            rewards[n, g] = float(correct[n, g]) - cost * int(lengths[n, g])
    return rewards


@bank.right("torch.where over right and wrong")
def by_case(correct: Tensor, lengths: Tensor, cost: float = 0.0) -> Tensor:
    paid = cost * lengths.float()
    return torch.where(correct, 1 - paid, -paid)


@bank.right("lists of numbers, turned into a tensor")
def lists(correct: Tensor, lengths: Tensor, cost: float = 0.0) -> Tensor:
    rows = zip(correct.tolist(), lengths.tolist(), strict=True)
    return torch.tensor([[right - cost * n for right, n in zip(*row, strict=True)] for row in rows])


@bank.right("float64")
def double_precision(correct: Tensor, lengths: Tensor, cost: float = 0.0) -> Tensor:
    return correct.double() - cost * lengths.double()


@bank.right("the cost subtracted from a float copy in place")
def subtracted_in_place(correct: Tensor, lengths: Tensor, cost: float = 0.0) -> Tensor:
    rewards = correct.to(torch.float32)
    rewards -= cost * lengths
    return rewards
