"""Variants of `k1_penalized_rewards`."""

from __future__ import annotations

import torch
from torch import Tensor

from known_mistakes import Bank

bank = Bank("k1_penalized_rewards")


@bank.mistake("the penalty is added: a bonus for moving away")
def the_penalty_is_added_a_bonus_for_moving(
    rewards: Tensor, policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor, strength: float
) -> Tensor:
    return rewards + strength * ((policy_log_probs - reference_log_probs) * mask).sum(1).detach()


@bank.mistake("each response is averaged over its tokens instead of summed")
def each_response_is_averaged_over_its_token(
    rewards: Tensor, policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor, strength: float
) -> Tensor:
    return rewards - strength * (((policy_log_probs - reference_log_probs) * mask).sum(1) / mask.sum(1)).detach()


@bank.mistake("the mean over all responses is subtracted from each")
def the_mean_over_all_responses_is_subtracte(
    rewards: Tensor, policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor, strength: float
) -> Tensor:
    return rewards - strength * ((policy_log_probs - reference_log_probs) * mask).sum(1).mean().detach()


@bank.mistake("the sum over all responses is subtracted from each")
def the_sum_over_all_responses_is_subtracted(
    rewards: Tensor, policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor, strength: float
) -> Tensor:
    return rewards - strength * ((policy_log_probs - reference_log_probs) * mask).sum().detach()


@bank.mistake("the penalty carries a gradient")
def the_penalty_carries_a_gradient(
    rewards: Tensor, policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor, strength: float
) -> Tensor:
    return rewards - strength * ((policy_log_probs - reference_log_probs) * mask).sum(1)


@bank.mistake("the strength is left out")
def the_strength_is_left_out(
    rewards: Tensor, policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor, strength: float
) -> Tensor:
    return rewards - ((policy_log_probs - reference_log_probs) * mask).sum(1).detach()


@bank.mistake("the absolute value of each log-ratio is taken")
def the_absolute_value_of_each_log_ratio_is(
    rewards: Tensor, policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor, strength: float
) -> Tensor:
    return rewards - strength * ((policy_log_probs - reference_log_probs) * mask).abs().sum(1).detach()


@bank.mistake("negative sums are set to 0")
def negative_sums_are_set_to_0(
    rewards: Tensor, policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor, strength: float
) -> Tensor:
    return rewards - strength * ((policy_log_probs - reference_log_probs) * mask).sum(1).clamp(min=0).detach()


@bank.mistake("the penalty is k3, not the log-ratio")
def the_penalty_is_k3_not_the_log_ratio(
    rewards: Tensor, policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor, strength: float
) -> Tensor:
    ratio = ((policy_log_probs - reference_log_probs) * mask).detach()
    return rewards - strength * ((-ratio).exp() - 1 + ratio).sum(1)


@bank.mistake("the penalty is k2, half the squared log-ratio")
def the_penalty_is_k2_half_the_squared_log_r(
    rewards: Tensor, policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor, strength: float
) -> Tensor:
    return rewards - strength * ((policy_log_probs - reference_log_probs) * mask).detach().square().sum(1) / 2


@bank.mistake("the reference is left out")
def the_reference_is_left_out(
    rewards: Tensor, policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor, strength: float
) -> Tensor:
    return rewards - strength * (policy_log_probs * mask).sum(1).detach()


@bank.mistake("only the first token is penalized")
def only_the_first_token_is_penalized(
    rewards: Tensor, policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor, strength: float
) -> Tensor:
    return rewards - strength * ((policy_log_probs - reference_log_probs) * mask)[:, 0].detach()


@bank.mistake("the ratio of the probabilities is taken, not its logarithm")
def the_ratio_of_the_probabilities_is_taken(
    rewards: Tensor, policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor, strength: float
) -> Tensor:
    return rewards - strength * (((policy_log_probs - reference_log_probs) * mask).exp() * mask).sum(1).detach()


@bank.mistake("the rewards are scaled by the strength too")
def the_rewards_are_scaled_by_the_strength_t(
    rewards: Tensor, policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor, strength: float
) -> Tensor:
    return strength * (rewards - ((policy_log_probs - reference_log_probs) * mask).sum(1).detach())


@bank.mistake("the penalty stands alone, without the rewards")
def the_penalty_stands_alone_without_the_rew(
    rewards: Tensor, policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor, strength: float
) -> Tensor:
    return -strength * ((policy_log_probs - reference_log_probs) * mask).sum(1).detach()


@bank.right("two masked sums, without a gradient")
def two_masked_sums_without_a_gradient(
    rewards: Tensor, policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor, strength: float
) -> Tensor:
    with torch.no_grad():
        own, others = ((scores * mask).sum(1) for scores in (policy_log_probs, reference_log_probs))
        return rewards - strength * (own - others)


@bank.right("einsum in float64")
def einsum_in_float64(
    rewards: Tensor, policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor, strength: float
) -> Tensor:
    gap = (policy_log_probs - reference_log_probs).detach().double()
    return rewards - strength * torch.einsum("br,br->b", gap, mask.double())


@bank.right("a loop over responses")
def a_loop_over_responses(
    rewards: Tensor, policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor, strength: float
) -> Tensor:
    penalized = []
    for i, kept in enumerate(mask.bool()):
        gap = policy_log_probs[i, kept].sum().item() - reference_log_probs[i, kept].sum().item()
        penalized.append(rewards[i].item() - strength * gap)
    return torch.tensor(penalized)


@bank.right("without the mask: log-probs are 0 after `<end>`")
def without_the_mask_log_probs_are_0_after_e(
    rewards: Tensor, policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor, strength: float
) -> Tensor:
    return rewards - strength * (policy_log_probs.detach() - reference_log_probs).sum(1)
