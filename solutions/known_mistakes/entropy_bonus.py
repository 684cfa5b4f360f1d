"""Variants of `entropy_bonus`."""

from __future__ import annotations

import torch
from torch import Tensor

from known_mistakes import Bank

bank = Bank("entropy_bonus")


@bank.mistake("the sign is wrong: the entropy comes out negative")
def the_sign_is_wrong_the_entropy_comes_out(logits: Tensor, mask: Tensor) -> Tensor:
    log_probs = logits.log_softmax(-1)
    entropy = (log_probs.exp() * log_probs).sum(-1)
    return (entropy * mask).sum() / mask.sum()


@bank.mistake("the mean is over the padded width too")
def the_mean_is_over_the_padded_width_too(logits: Tensor, mask: Tensor) -> Tensor:
    log_probs = logits.log_softmax(-1)
    entropy = -(log_probs.exp() * log_probs).sum(-1)
    return (entropy * mask).mean()


@bank.mistake("the mask is left out")
def the_mask_is_left_out(logits: Tensor, mask: Tensor) -> Tensor:
    log_probs = logits.log_softmax(-1)
    return -(log_probs.exp() * log_probs).sum(-1).mean()


@bank.mistake("each response is averaged over its own tokens first")
def each_response_is_averaged_over_its_own_t(logits: Tensor, mask: Tensor) -> Tensor:
    log_probs = logits.log_softmax(-1)
    entropy = -(log_probs.exp() * log_probs).sum(-1)
    return ((entropy * mask).sum(1) / mask.sum(1)).mean()


@bank.mistake("the entropies of a response are summed, not averaged over tokens")
def the_entropies_of_a_response_are_summed_n(logits: Tensor, mask: Tensor) -> Tensor:
    log_probs = logits.log_softmax(-1)
    entropy = -(log_probs.exp() * log_probs).sum(-1)
    return (entropy * mask).sum(1).mean()


@bank.mistake("the unit is bits, not nats")
def the_unit_is_bits_not_nats(logits: Tensor, mask: Tensor) -> Tensor:
    log_probs = logits.log_softmax(-1)
    entropy = -(log_probs.exp() * log_probs).sum(-1) / torch.log(torch.tensor(2.0))
    return (entropy * mask).sum() / mask.sum()


@bank.mistake("the logits are taken for log-probabilities")
def the_logits_are_taken_for_log_probabiliti(logits: Tensor, mask: Tensor) -> Tensor:
    entropy = -(logits.softmax(-1) * logits).sum(-1)
    return (entropy * mask).sum() / mask.sum()


@bank.mistake("the probabilities are left out: minus the log-probabilities are summed")
def the_probabilities_are_left_out_minus_the(logits: Tensor, mask: Tensor) -> Tensor:
    entropy = -logits.log_softmax(-1).sum(-1)
    return (entropy * mask).sum() / mask.sum()


@bank.mistake("the mean over the vocabulary is taken, not the sum")
def the_mean_over_the_vocabulary_is_taken_no(logits: Tensor, mask: Tensor) -> Tensor:
    log_probs = logits.log_softmax(-1)
    entropy = -(log_probs.exp() * log_probs).mean(-1)
    return (entropy * mask).sum() / mask.sum()


@bank.mistake("the softmax runs over the tokens of the response, not over the vocabulary")
def the_softmax_runs_over_the_tokens_of_the(logits: Tensor, mask: Tensor) -> Tensor:
    log_probs = logits.log_softmax(1)
    entropy = -(log_probs.exp() * log_probs).sum(-1)
    return (entropy * mask).sum() / mask.sum()


@bank.mistake("a probability of 0 gives NaN: 0 times minus infinity")
def a_probability_of_0_gives_nan_0_times_min(logits: Tensor, mask: Tensor) -> Tensor:
    probabilities = logits.softmax(-1)
    entropy = -(probabilities * probabilities.log()).sum(-1)
    return (entropy * mask).sum() / mask.sum()


@bank.mistake("no gradient flows back: the logits are detached")
def no_gradient_flows_back_the_logits_are_de(logits: Tensor, mask: Tensor) -> Tensor:
    log_probs = logits.detach().log_softmax(-1)
    entropy = -(log_probs.exp() * log_probs).sum(-1)
    return (entropy * mask).sum() / mask.sum()


@bank.mistake("the probabilities are detached, which loses half of the gradient")
def the_probabilities_are_detached_which_los(logits: Tensor, mask: Tensor) -> Tensor:
    log_probs = logits.log_softmax(-1)
    entropy = -(log_probs.detach().exp() * log_probs).sum(-1)
    return (entropy * mask).sum() / mask.sum()


@bank.mistake("the probability of the likeliest token is taken for the entropy")
def the_probability_of_the_likeliest_token_i(logits: Tensor, mask: Tensor) -> Tensor:
    likeliest = -logits.log_softmax(-1).amax(-1)
    return (likeliest * mask).sum() / mask.sum()


@bank.right("torch.distributions")
def torch_distributions(logits: Tensor, mask: Tensor) -> Tensor:
    entropy = torch.distributions.Categorical(logits=logits).entropy()
    return (entropy * mask).sum() / mask.sum()


@bank.right("the cross-entropy of the masked tokens with their own probabilities as targets")
def cross_entropy_with_itself(logits: Tensor, mask: Tensor) -> Tensor:
    chosen = logits[mask.bool()]
    return torch.nn.functional.cross_entropy(chosen, chosen.softmax(-1))


@bank.right("log of the sum less the mean logit")
def log_of_the_sum_less_the_mean_logit(logits: Tensor, mask: Tensor) -> Tensor:
    mean_logit = (logits.softmax(-1) * logits).sum(-1)
    entropy = logits.logsumexp(-1) - mean_logit
    return torch.where(mask.bool(), entropy, 0.0).sum() / mask.sum()


@bank.right("a loop over tokens")
def a_loop_over_tokens(logits: Tensor, mask: Tensor) -> Tensor:
    total, count = logits.new_zeros(()), 0
    for row, kept in zip(logits, mask.bool(), strict=True):
        for token in row[kept]:
            log_probs = token - token.logsumexp(0)
            total, count = total - log_probs.exp() @ log_probs, count + 1
    return total / count
