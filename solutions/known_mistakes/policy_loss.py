"""Variants of `policy_loss`."""

from __future__ import annotations

import torch
from torch import Tensor

from known_mistakes import Bank

bank = Bank("policy_loss")


@bank.mistake("the sign is flipped: minimising it lowers the expected reward")
def flipped(log_probs: Tensor, advantages: Tensor, weights: Tensor) -> Tensor:
    return (weights * advantages.detach()[:, None] * log_probs).sum()


@bank.mistake("probabilities stand where log-probabilities belong")
def probabilities(log_probs: Tensor, advantages: Tensor, weights: Tensor) -> Tensor:
    return -(weights * advantages.detach()[:, None] * log_probs.exp()).sum()


@bank.mistake("the log-probabilities are detached: no gradient reaches the policy")
def no_gradient(log_probs: Tensor, advantages: Tensor, weights: Tensor) -> Tensor:
    return -(weights * advantages.detach()[:, None] * log_probs.detach()).sum()


@bank.mistake("the mean over all entries is taken instead of the sum")
def mean(log_probs: Tensor, advantages: Tensor, weights: Tensor) -> Tensor:
    return -(weights * advantages.detach()[:, None] * log_probs).mean()


@bank.mistake("the sum is divided by the number of responses once more")
def mean_over_responses(log_probs: Tensor, advantages: Tensor, weights: Tensor) -> Tensor:
    return -(weights * advantages.detach()[:, None] * log_probs).sum(1).mean()


@bank.mistake("the sum is divided by the sum of the weights")
def weighted_mean(log_probs: Tensor, advantages: Tensor, weights: Tensor) -> Tensor:
    return -(weights * advantages.detach()[:, None] * log_probs).sum() / weights.sum()


@bank.mistake("the weights are ignored")
def no_weights(log_probs: Tensor, advantages: Tensor, weights: Tensor) -> Tensor:
    return -(advantages.detach()[:, None] * log_probs).sum()


@bank.mistake("the weights only select tokens, their values are ignored")
def weights_as_mask(log_probs: Tensor, advantages: Tensor, weights: Tensor) -> Tensor:
    return -(advantages.detach()[:, None] * log_probs * (weights > 0)).sum() / len(log_probs)


@bank.mistake("the weights are applied twice")
def weights_twice(log_probs: Tensor, advantages: Tensor, weights: Tensor) -> Tensor:
    return -(weights * weights * advantages.detach()[:, None] * log_probs).sum()


@bank.mistake("the advantages are ignored")
def no_advantages(log_probs: Tensor, advantages: Tensor, weights: Tensor) -> Tensor:
    return -(weights * log_probs).sum()


@bank.mistake("the advantages lie along the tokens, not along the responses")
def along_tokens(log_probs: Tensor, advantages: Tensor, weights: Tensor) -> Tensor:
    return -(weights * advantages.detach() * log_probs).sum()


@bank.mistake("log-probs and weights of a response are summed before they are multiplied")
def summed_first(log_probs: Tensor, advantages: Tensor, weights: Tensor) -> Tensor:
    return -(weights.sum(1) * advantages.detach() * log_probs.sum(1)).sum()


@bank.mistake("responses with a negative advantage are left out")
def negative_ignored(log_probs: Tensor, advantages: Tensor, weights: Tensor) -> Tensor:
    return -(weights * advantages.detach().clamp(min=0)[:, None] * log_probs).sum()


@bank.mistake("the sign of the advantages is lost")
def absolute(log_probs: Tensor, advantages: Tensor, weights: Tensor) -> Tensor:
    return -(weights * advantages.detach().abs()[:, None] * log_probs).sum()


@bank.mistake("the advantages are centred and scaled once more")
def normalised_again(log_probs: Tensor, advantages: Tensor, weights: Tensor) -> Tensor:
    advantages = advantages.detach()
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-4)
    return -(weights * advantages[:, None] * log_probs).sum()


@bank.mistake("the loss is built from probability ratios, which are all 1: right gradient, wrong value")
def ratios(log_probs: Tensor, advantages: Tensor, weights: Tensor) -> Tensor:
    ratio = (log_probs - log_probs.detach()).exp()
    return -(weights * advantages.detach()[:, None] * ratio).sum()


@bank.mistake("one loss per response is returned, not their sum")
def per_response(log_probs: Tensor, advantages: Tensor, weights: Tensor) -> Tensor:
    return -(weights * advantages.detach()[:, None] * log_probs).sum(1)


@bank.mistake("the loss is a plain number, from which no gradient flows")
def plain_number(log_probs: Tensor, advantages: Tensor, weights: Tensor) -> float:
    return -(weights * advantages.detach()[:, None] * log_probs).sum().item()


@bank.mistake("the last token of every response is left out")
def last_left_out(log_probs: Tensor, advantages: Tensor, weights: Tensor) -> Tensor:
    followed = torch.zeros_like(weights)
    followed[:, :-1] = (weights[:, 1:] > 0).to(weights.dtype)
    return -(followed * weights * advantages.detach()[:, None] * log_probs).sum()


@bank.right("not detached: the advantages are constants")
def not_detached(log_probs: Tensor, advantages: Tensor, weights: Tensor) -> Tensor:
    return -(weights * advantages[:, None] * log_probs).sum()


@bank.right("einsum")
def with_einsum(log_probs: Tensor, advantages: Tensor, weights: Tensor) -> Tensor:
    advantages = advantages.detach().to(log_probs.dtype)
    return -torch.einsum("br,b,br->", weights.to(log_probs.dtype), advantages, log_probs)


@bank.right("summed over tokens, then over responses")
def by_response(log_probs: Tensor, advantages: Tensor, weights: Tensor) -> Tensor:
    scores = (weights * log_probs).sum(dim=-1)
    return (-advantages.detach() * scores).sum()


@bank.right("a loop over responses")
def loop(log_probs: Tensor, advantages: Tensor, weights: Tensor) -> Tensor:
    loss = torch.zeros(())
    for i in range(len(log_probs)):
        loss = loss - advantages[i].item() * torch.dot(weights[i].to(log_probs.dtype), log_probs[i])
    return loss


@bank.right("advantages repeated over the tokens, in float64")
def expanded(log_probs: Tensor, advantages: Tensor, weights: Tensor) -> Tensor:
    with torch.no_grad():
        factor = weights.double() * advantages.double().unsqueeze(1).expand_as(log_probs)
    return (factor * -log_probs.double()).sum()


@bank.right("the scalar product of flat tensors")
def flat(log_probs: Tensor, advantages: Tensor, weights: Tensor) -> Tensor:
    factor = (advantages.detach().reshape(-1, 1) * weights).flatten()
    return torch.sum(-factor * log_probs.flatten())
