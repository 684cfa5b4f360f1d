"""Variants of `k3_loss`."""

from __future__ import annotations

import torch
from torch import Tensor

from known_mistakes import Bank

bank = Bank("k3_loss")


@bank.mistake("the direction is reversed: reference less policy")
def the_direction_is_reversed_reference_less(
    policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor
) -> Tensor:
    log_ratio = reference_log_probs - policy_log_probs
    return (((-log_ratio).exp() - 1 + log_ratio) * mask).sum(1).mean()


@bank.mistake("the estimator is k1, whose gradient is 0 on average")
def the_estimator_is_k1_whose_gradient_is_0(
    policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor
) -> Tensor:
    log_ratio = policy_log_probs - reference_log_probs
    return (log_ratio * mask).sum(1).mean()


@bank.mistake("the estimator is k2, half the squared log-ratio")
def the_estimator_is_k2_half_the_squared_log(
    policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor
) -> Tensor:
    log_ratio = policy_log_probs - reference_log_probs
    return (log_ratio.square() / 2 * mask).sum(1).mean()


@bank.mistake("the minus in the exponent is missing")
def the_minus_in_the_exponent_is_missing(policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor) -> Tensor:
    log_ratio = policy_log_probs - reference_log_probs
    return ((log_ratio.exp() - 1 + log_ratio) * mask).sum(1).mean()


@bank.mistake("the 1 is not subtracted")
def the_1_is_not_subtracted(policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor) -> Tensor:
    log_ratio = policy_log_probs - reference_log_probs
    return (((-log_ratio).exp() + log_ratio) * mask).sum(1).mean()


@bank.mistake("the log-ratio is not added")
def the_log_ratio_is_not_added(policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor) -> Tensor:
    log_ratio = policy_log_probs - reference_log_probs
    return (((-log_ratio).exp() - 1) * mask).sum(1).mean()


@bank.mistake("the log-ratio is subtracted, not added")
def the_log_ratio_is_subtracted_not_added(
    policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor
) -> Tensor:
    log_ratio = policy_log_probs - reference_log_probs
    return (((-log_ratio).exp() - 1 - log_ratio) * mask).sum(1).mean()


@bank.mistake("the mean is over tokens, not over responses")
def the_mean_is_over_tokens_not_over_respons(
    policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor
) -> Tensor:
    log_ratio = policy_log_probs - reference_log_probs
    return (((-log_ratio).exp() - 1 + log_ratio) * mask).sum() / mask.sum()


@bank.mistake("each response is averaged over its tokens instead of summed")
def each_response_is_averaged_over_its_token(
    policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor
) -> Tensor:
    log_ratio = policy_log_probs - reference_log_probs
    return ((((-log_ratio).exp() - 1 + log_ratio) * mask).sum(1) / mask.sum(1)).mean()


@bank.mistake("the mean is over the padded width and responses")
def the_mean_is_over_the_padded_width_and_re(
    policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor
) -> Tensor:
    log_ratio = policy_log_probs - reference_log_probs
    return (((-log_ratio).exp() - 1 + log_ratio) * mask).mean()


@bank.mistake("the sum over all responses is returned, not their mean")
def the_sum_over_all_responses_is_returned_n(
    policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor
) -> Tensor:
    log_ratio = policy_log_probs - reference_log_probs
    return (((-log_ratio).exp() - 1 + log_ratio) * mask).sum()


@bank.mistake("k3 is taken of the whole response, not of each token")
def k3_is_taken_of_the_whole_response_not_of(
    policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor
) -> Tensor:
    log_ratio = ((policy_log_probs - reference_log_probs) * mask).sum(1)
    return ((-log_ratio).exp() - 1 + log_ratio).mean()


@bank.mistake("no gradient flows back: the policy is detached")
def no_gradient_flows_back_the_policy_is_det(
    policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor
) -> Tensor:
    log_ratio = policy_log_probs.detach() - reference_log_probs
    return (((-log_ratio).exp() - 1 + log_ratio) * mask).sum(1).mean()


@bank.mistake("the exponential is detached, which changes the gradient")
def the_exponential_is_detached_which_change(
    policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor
) -> Tensor:
    log_ratio = policy_log_probs - reference_log_probs
    return (((-log_ratio).exp().detach() - 1 + log_ratio) * mask).sum(1).mean()


@bank.mistake("the sign is wrong: the loss is negative")
def the_sign_is_wrong_the_loss_is_negative(
    policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor
) -> Tensor:
    log_ratio = policy_log_probs - reference_log_probs
    return -(((-log_ratio).exp() - 1 + log_ratio) * mask).sum(1).mean()


@bank.right("expm1 and torch.where")
def expm1_and_torch_where(policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor) -> Tensor:
    log_ratio = policy_log_probs - reference_log_probs
    return torch.where(mask.bool(), torch.expm1(-log_ratio) + log_ratio, 0.0).sum(1).mean()


@bank.right("the ratio less its logarithm less 1")
def the_ratio_less_its_logarithm_less_1(policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor) -> Tensor:
    ratio = (reference_log_probs - policy_log_probs).exp()
    return ((ratio - ratio.log() - 1) * mask).sum() / len(mask)


@bank.right("a loop over responses")
def a_loop_over_responses(policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor) -> Tensor:
    total = policy_log_probs.new_zeros(())
    for own, other, kept in zip(policy_log_probs, reference_log_probs, mask.bool(), strict=True):
        gap = own[kept] - other[kept]
        total = total + (torch.exp(-gap) - 1 + gap).sum()
    return total / len(mask)


@bank.right("without the mask: k3 of log-probs that are 0 after `<end>` is 0")
def without_the_mask_k3_of_log_probs_that_ar(
    policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor
) -> Tensor:
    log_ratio = policy_log_probs - reference_log_probs
    return ((-log_ratio).exp() - 1 + log_ratio).sum(1).mean()
