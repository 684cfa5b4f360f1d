"""Variants of `regularized_step`: `step` builds it from the parts that are right, but for those it is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from lab16_llm_rl import (
    entropy_bonus,
    k1_penalized_rewards,
    k3_loss,
    policy_loss,
    response_log_probs,
    rewards_with_cost,
)
from torch import Tensor

from known_mistakes import Bank, Function
from labutils import rollout
from labutils.model import Transformer
from labutils.task import END, PAD, PROMPT_TOKENS, Problems, encode_prompts, response_mask
from labutils.training import Estimator, Regularization
from labutils.verifier import verify

bank = Bank("regularized_step")

Metrics = dict[str, Any]
Optimizer = torch.optim.Optimizer
Random = torch.Generator | None


# The parts, as they are right -------------------------------------------------------------------------------------


def judge(problems: Problems, responses: Tensor, group: int, added: Regularization) -> Tensor:
    """(N * G,) bool: accepted."""
    return added.verifier(problems.repeat_interleave(group), responses)


def pay(correct: Tensor, lengths: Tensor, estimator: Estimator) -> Tensor:
    """(N, G) rewards."""
    return rewards_with_cost(correct, lengths, estimator.length_cost)


def penalize(rewards: Tensor, own: Tensor, others: Tensor, mask: Tensor, added: Regularization) -> Tensor:
    """(N * G,) rewards with the penalty."""
    return k1_penalized_rewards(rewards, own, others, mask, added.reward_penalty)


def refer(policy: Transformer, added: Regularization, prompts: Tensor, responses: Tensor) -> Tensor:
    """(N * G, 12) the reference's log-probs."""
    with torch.no_grad():
        return rollout.response_log_probs(added.reference, prompts, responses)


def add_divergence(loss: Tensor, own: Tensor, others: Tensor, mask: Tensor, added: Regularization) -> Tensor:
    """The loss with the penalty on the divergence."""
    return loss + added.loss_penalty * added.divergence(own, others, mask)


def add_entropy(loss: Tensor, logits: Tensor, mask: Tensor, added: Regularization) -> Tensor:
    """The loss with the entropy bonus."""
    return loss - added.entropy * entropy_bonus(logits, mask)


def update(optimizer: Optimizer, loss: Tensor) -> None:
    """One gradient step."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def report(rewards: Tensor, penalized: Tensor, plain_loss: Tensor, loss: Tensor) -> Metrics:
    """What the step returns."""
    return {"reward": rewards.mean().item(), "loss": loss.item()}


def step(
    find_mask: Callable[[Tensor], Tensor] = response_mask,
    judge: Callable[[Problems, Tensor, int, Regularization], Tensor] = judge,
    pay: Callable[[Tensor, Tensor, Estimator], Tensor] = pay,
    penalize: Callable[[Tensor, Tensor, Tensor, Tensor, Regularization], Tensor] = penalize,
    refer: Callable[[Transformer, Regularization, Tensor, Tensor], Tensor] = refer,
    add_divergence: Callable[[Tensor, Tensor, Tensor, Tensor, Regularization], Tensor] = add_divergence,
    add_entropy: Callable[[Tensor, Tensor, Tensor, Regularization], Tensor] = add_entropy,
    update: Callable[[Optimizer, Tensor], None] = update,
    report: Callable[[Tensor, Tensor, Tensor, Tensor], Metrics] = report,
) -> Function:
    """`regularized_step` built from these parts."""

    def regularized_step(
        policy: Transformer,
        optimizer: Optimizer,
        problems: Problems,
        estimator: Estimator,
        generator: Random,
        regularization: Regularization,
    ) -> Metrics:
        group, added = estimator.group_size, regularization
        prompts = encode_prompts(problems)
        responses = rollout.generate(policy, prompts, group, generator=generator)
        prompts, mask, shape = prompts.repeat_interleave(group, 0), find_mask(responses), (len(problems), group)
        logits = rollout.response_logits(policy, prompts, responses)
        own = rollout.response_log_probs(policy, prompts, responses)
        others = refer(policy, added, prompts, responses)
        correct = judge(problems, responses, group, added)
        rewards = pay(correct.view(shape), mask.sum(1).view(shape), estimator)
        penalized = penalize(rewards.flatten(), own, others, mask, added)
        advantages = estimator.advantages(penalized.view(shape)).flatten()
        plain_loss = policy_loss(own, advantages, estimator.weights(mask))
        loss = add_entropy(add_divergence(plain_loss, own, others, mask, added), logits, mask, added)
        update(optimizer, loss)
        return report(rewards, penalized, plain_loss, loss)

    return regularized_step


# Mistakes ---------------------------------------------------------------------------------------------------------

bank.mistake("`verify` is called instead of the regularization's verifier")(
    step(judge=lambda problems, responses, group, added: verify(problems.repeat_interleave(group), responses))
)
bank.mistake("the mask is made of the tokens that are not padding")(step(lambda responses: responses != PAD))
bank.mistake("the mask leaves out `<end>`")(step(lambda responses: response_mask(responses) & (responses != END)))
bank.mistake("the verdicts are turned round")(step(judge=lambda *arguments: ~judge(*arguments)))
bank.mistake("the length cost is left out")(step(pay=lambda correct, lengths, estimator: correct.float()))
bank.mistake("the penalty is added to the rewards: a bonus for moving away")(
    step(penalize=lambda rewards, *rest: 2 * rewards - penalize(rewards, *rest))
)
bank.mistake("the rewards are not penalized")(step(penalize=lambda rewards, *_: rewards))
bank.mistake("the rewards are penalized with the strength that belongs to the loss")(
    step(
        penalize=lambda rewards, own, others, mask, added: k1_penalized_rewards(
            rewards, own, others, mask, added.loss_penalty
        )
    )
)
bank.mistake("policy and reference change places in the reward's penalty")(
    step(penalize=lambda rewards, own, others, mask, added: penalize(rewards, others, own, 0.5 * mask, added))
)
bank.mistake("the policy itself is taken for the reference: the divergence is always 0")(
    step(
        refer=lambda policy, added, prompts, responses: rollout.response_log_probs(policy, prompts, responses).detach()
    )
)
bank.mistake("the penalty on the divergence is subtracted from the loss")(
    step(
        add_divergence=lambda loss, own, others, mask, added: 2 * loss - add_divergence(loss, own, others, mask, added)
    )
)
bank.mistake("the loss has no penalty on the divergence")(step(add_divergence=lambda loss, *_: loss))
bank.mistake("the divergence in the loss is not multiplied by its strength")(
    step(add_divergence=lambda loss, own, others, mask, added: loss + added.divergence(own, others, mask))
)
bank.mistake("`k3_loss` is called instead of the regularization's divergence")(
    step(add_divergence=lambda loss, own, others, mask, added: loss + added.loss_penalty * k3_loss(own, others, mask))
)
bank.mistake("policy and reference change places in the loss")(
    step(add_divergence=lambda loss, own, others, mask, added: add_divergence(loss, others, own, mask, added))
)
bank.mistake("the policy's log-probs are detached in the penalty on the divergence")(
    step(add_divergence=lambda loss, own, others, mask, added: add_divergence(loss, own.detach(), others, mask, added))
)
bank.mistake("the entropy is added to the loss, which makes the policy more certain")(
    step(add_entropy=lambda loss, logits, mask, added: loss + added.entropy * entropy_bonus(logits, mask))
)
bank.mistake("the loss has no entropy bonus")(step(add_entropy=lambda loss, *_: loss))
bank.mistake("the entropy is not multiplied by its strength")(
    step(add_entropy=lambda loss, logits, mask, added: loss - entropy_bonus(logits, mask))
)
bank.mistake("the logits are detached in the entropy bonus")(
    step(add_entropy=lambda loss, logits, mask, added: add_entropy(loss, logits.detach(), mask, added))
)
bank.mistake("the entropy counts the padding after `<end>`, too")(
    step(add_entropy=lambda loss, logits, mask, added: add_entropy(loss, logits, torch.ones_like(mask), added))
)
bank.mistake("the reward that is returned is the penalized one")(
    step(report=lambda rewards, penalized, plain_loss, loss: report(penalized, penalized, plain_loss, loss))
)
bank.mistake("the loss that is returned lacks what was added")(
    step(report=lambda rewards, penalized, plain_loss, loss: report(rewards, penalized, plain_loss, plain_loss))
)


def no_zero_grad(optimizer: Optimizer, loss: Tensor) -> None:
    loss.backward()
    optimizer.step()


def no_step(optimizer: Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()


def clipped(optimizer: Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()


bank.mistake("the gradient is clipped")(step(update=clipped))
bank.mistake("gradients of earlier steps are not cleared")(step(update=no_zero_grad))
bank.mistake("the optimizer takes no step")(step(update=no_step))


# Correct variants -------------------------------------------------------------------------------------------------

bank.right("two passes of the engine, one for the logits and one for the log-probs")(step())


@bank.right("plain forward passes, the reference's with gradients that are dropped")
def plain_passes(
    policy: Transformer,
    optimizer: Optimizer,
    problems: Problems,
    estimator: Estimator,
    generator: Random,
    regularization: Regularization,
) -> Metrics:
    group = estimator.group_size
    prompts = encode_prompts(problems)
    responses = rollout.generate(policy, prompts, group, generator=generator)
    prompts, mask = prompts.repeat_interleave(group, 0), response_mask(responses)
    logits = policy(torch.cat([prompts, responses], 1)[:, :-1])[:, PROMPT_TOKENS - 1 :]
    own = response_log_probs(policy, prompts, responses)
    others = response_log_probs(regularization.reference, prompts, responses).detach()
    accepted = regularization.verifier(problems.repeat_interleave(group), responses).float()
    rewards = accepted - estimator.length_cost * mask.sum(1)
    penalized = rewards - regularization.reward_penalty * (own - others).sum(1).detach()
    advantages = estimator.advantages(penalized.view(-1, group)).view(-1, 1)
    entropy = torch.distributions.Categorical(logits=logits).entropy()[mask].mean()
    loss = -(estimator.weights(mask) * advantages * own).sum() - regularization.entropy * entropy
    loss += regularization.loss_penalty * regularization.divergence(own, others, mask)
    update(optimizer, loss)
    return {"reward": rewards.mean().item(), "loss": loss.item()}


@bank.right("only what has a strength is computed; terms are backpropagated one after the other")
def term_by_term(
    policy: Transformer,
    optimizer: Optimizer,
    problems: Problems,
    estimator: Estimator,
    generator: Random,
    regularization: Regularization,
) -> Metrics:
    group, added = estimator.group_size, regularization
    prompts = encode_prompts(problems)
    responses = rollout.generate(policy, prompts, group, generator=generator)
    prompts, mask = prompts.repeat_interleave(group, 0), response_mask(responses)
    own, others = rollout.response_log_probs(policy, prompts, responses), refer(policy, added, prompts, responses)
    correct = judge(problems, responses, group, added).view(-1, group)
    rewards = pay(correct, mask.sum(1).view(-1, group), estimator)
    penalized = penalize(rewards.flatten(), own, others, mask, added) if added.reward_penalty else rewards
    advantages = estimator.advantages(penalized.view(-1, group)).flatten()
    terms = [policy_loss(own, advantages, estimator.weights(mask))]
    if added.loss_penalty:
        terms.append(added.loss_penalty * added.divergence(own, others, mask))
    if added.entropy:
        terms.append(-added.entropy * entropy_bonus(rollout.response_logits(policy, prompts, responses), mask))
    optimizer.zero_grad()
    for term in terms:
        term.backward(retain_graph=True)
    optimizer.step()
    return {"reward": rewards.mean().item(), "loss": sum(term.item() for term in terms)}
