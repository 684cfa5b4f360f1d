"""Variants of `kl_per_response`."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from known_mistakes import Bank

bank = Bank("kl_per_response")


@bank.mistake("the direction is reversed: reference less policy")
def reversed_direction(policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor) -> Tensor:
    return ((reference_log_probs - policy_log_probs) * mask).sum(1).mean()


@bank.mistake("the mean is over tokens, not over responses")
def per_token(policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor) -> Tensor:
    return ((policy_log_probs - reference_log_probs) * mask).sum() / mask.sum()


@bank.mistake("each response is averaged over its tokens instead of summed")
def own_mean(policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor) -> Tensor:
    log_ratio = (policy_log_probs - reference_log_probs) * mask
    return (log_ratio.sum(1) / mask.sum(1).clamp(min=1)).mean()


@bank.mistake("the mean is over the padded width and responses")
def padded_mean(policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor) -> Tensor:
    return ((policy_log_probs - reference_log_probs) * mask).mean()


@bank.mistake("the sum over all responses is returned, not their mean")
def summed(policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor) -> Tensor:
    return ((policy_log_probs - reference_log_probs) * mask).sum()


@bank.mistake("each log-ratio is weighted by the policy's probability, although the tokens are sampled from it already")
def weighted(policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor) -> Tensor:
    return (policy_log_probs.exp() * (policy_log_probs - reference_log_probs) * mask).sum(1).mean()


@bank.mistake("the absolute value of each log-ratio is taken")
def absolute(policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor) -> Tensor:
    return ((policy_log_probs - reference_log_probs).abs() * mask).sum(1).mean()


@bank.mistake("negative log-ratios are set to 0")
def not_negative(policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor) -> Tensor:
    return ((policy_log_probs - reference_log_probs).clamp(min=0) * mask).sum(1).mean()


@bank.mistake("responses with a negative sum are set to 0")
def responses_not_negative(policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor) -> Tensor:
    return ((policy_log_probs - reference_log_probs) * mask).sum(1).clamp(min=0).mean()


@bank.mistake("the estimator is k2, half the squared log-ratio, instead of the log-ratio")
def k2(policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor) -> Tensor:
    return ((policy_log_probs - reference_log_probs).square() / 2 * mask).sum(1).mean()


@bank.mistake("the estimator is k3, exp(-d) - 1 + d, instead of the log-ratio d")
def k3(policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor) -> Tensor:
    log_ratio = policy_log_probs - reference_log_probs
    return (((-log_ratio).exp() - 1 + log_ratio) * mask).sum(1).mean()


@bank.mistake("the ratio of the probabilities is taken, not its logarithm")
def ratio(policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor) -> Tensor:
    return ((policy_log_probs - reference_log_probs).exp() * mask).sum(1).mean()


@bank.mistake("the difference of the probabilities is taken, not of their logarithms")
def probabilities(policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor) -> Tensor:
    return ((policy_log_probs.exp() - reference_log_probs.exp()) * mask).sum(1).mean()


@bank.mistake("the logarithm of a log-probability is taken")
def logarithm_twice(policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor) -> Tensor:
    return ((policy_log_probs / reference_log_probs).log().nan_to_num() * mask).sum(1).mean()


@bank.mistake("the last token of each response is left out")
def end_left_out(policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor) -> Tensor:
    before_last = torch.arange(mask.shape[1]) < mask.sum(1, keepdim=True) - 1
    return ((policy_log_probs - reference_log_probs) * before_last).sum(1).mean()


@bank.mistake("only the first token of each response is counted")
def first_token(policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor) -> Tensor:
    return (policy_log_probs - reference_log_probs)[:, 0].mean()


@bank.mistake("the reference is left out: minus the policy's log-probability is summed")
def no_reference(policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor) -> Tensor:
    return -(policy_log_probs * mask).sum(1).mean()


@bank.mistake("one value per response is returned, not their mean")
def per_response(policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor) -> Tensor:
    return ((policy_log_probs - reference_log_probs) * mask).sum(1)


@bank.mistake("the sums run over the responses of each position, and the mean over positions")
def wrong_axis(policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor) -> Tensor:
    return ((policy_log_probs - reference_log_probs) * mask).sum(0).mean()


@bank.mistake("the unit is bits, not nats")
def bits(policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor) -> Tensor:
    return ((policy_log_probs - reference_log_probs) * mask).sum(1).mean() / math.log(2)


@bank.right("the difference of two masked sums")
def two_sums(policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor) -> Tensor:
    policy, reference = ((scores * mask).sum(1) for scores in (policy_log_probs, reference_log_probs))
    return (policy - reference).mean()


@bank.right("torch.where, summed over everything and divided by the number of responses")
def by_case(policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor) -> Tensor:
    log_ratio = torch.where(mask.bool(), policy_log_probs - reference_log_probs, 0.0)
    return log_ratio.sum() / len(mask)


@bank.right("a loop over responses and their tokens")
def loop(policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor) -> Tensor:
    total = 0.0
    for i, row in enumerate(mask.bool()):
        total += (policy_log_probs[i, row] - reference_log_probs[i, row]).sum().item()
    return torch.tensor(total / len(mask))


@bank.right("einsum in float64, without a gradient")
def with_einsum(policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor) -> Tensor:
    with torch.no_grad():
        log_ratio = (policy_log_probs - reference_log_probs).double()
        return torch.einsum("br,br->b", log_ratio, mask.double()).mean()


@bank.right("without the mask: log-probs are 0 after `<end>`")
def no_mask(policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor) -> Tensor:
    return (policy_log_probs - reference_log_probs).sum(1).mean()
