"""The estimators against exact gradients, on a policy so small that every batch of responses can be listed.

The policy has three tokens, the last of which ends a response, and room for two: seven responses. A batch is two
problems with two responses each, so the expected gradient of an estimator is a sum over 7^4 batches.
"""

import itertools

import lab16_llm_rl as lab
import pytest
import torch

TOKENS, STOP, LONGEST = 3, 2, 2
PROBLEMS, GROUP = 2, 2
BATCH = PROBLEMS * GROUP
RESPONSES = [(STOP,)] + [(a, b) for a in range(2) for b in range(TOKENS)]
MASK = torch.tensor([[1.0, float(len(r) > 1)] for r in RESPONSES], dtype=torch.float64)


@pytest.fixture(scope="module")
def policy():
    """Logits of the first token, and of the second after each first, for each problem: (problems, 4, 3)."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(PROBLEMS, 1 + TOKENS, TOKENS, generator=generator, dtype=torch.float64).requires_grad_()


@pytest.fixture(scope="module")
def rewards():
    """A reward for each problem and response, 0 or 1 less a cost of the length, so that lengths matter."""
    generator = torch.Generator().manual_seed(1)
    correct = torch.randint(0, 2, (PROBLEMS, len(RESPONSES)), generator=generator)
    return correct.double() - 0.1 * MASK.sum(1)


def log_probs(policy):
    """(problems, responses, tokens): each token's log-probability, 0 after the end."""
    table = policy.log_softmax(-1)
    rows = [
        [torch.stack([t[0, r[0]], t[1 + r[0], r[1]] if len(r) > 1 else t.new_zeros(())]) for r in RESPONSES]
        for t in table
    ]
    return torch.stack([torch.stack(row) for row in rows])


def flat_gradient(value, policy):
    return torch.autograd.grad(value, policy)[0].flatten()


def exact_gradient(policy, rewards):
    """Of the expected reward, averaged over problems: the ascent direction."""
    probabilities = log_probs(policy).sum(-1).exp()
    assert torch.allclose(probabilities.sum(1), torch.ones(PROBLEMS, dtype=torch.float64))
    return flat_gradient((probabilities * rewards).sum(1).mean(), policy)


def expected_gradient(policy, rewards, advantages, weights):
    """Minus the expectation of the loss's gradient, over every batch of responses."""
    table = log_probs(policy)
    total = torch.zeros((), dtype=torch.float64)
    for choice in itertools.product(range(len(RESPONSES)), repeat=BATCH):
        problem = [i // GROUP for i in range(BATCH)]
        chosen = table[problem, list(choice)]
        reward = rewards[problem, list(choice)].view(PROBLEMS, GROUP)
        mask = MASK[list(choice)]
        loss = lab.policy_loss(chosen, advantages(reward).flatten(), weights(mask))
        total = total + chosen.detach().sum().exp() * loss
    return -flat_gradient(total, policy)


def constant_weights(mask):
    return lab.constant_weights(mask, LONGEST)


def relative_gap(found, wanted):
    return ((found - wanted).norm() / wanted.norm()).item()


def test_rloo_is_unbiased(policy, rewards):
    found = expected_gradient(policy, rewards, lab.rloo_advantages, lab.sum_weights)
    # The weights are float32, which bounds the agreement.
    assert relative_gap(found, exact_gradient(policy, rewards)) < 1e-6


def test_dr_grpo_is_unbiased_up_to_its_constant(policy, rewards):
    found = expected_gradient(policy, rewards, lab.dr_grpo_advantages, constant_weights)
    # The group mean contains the response's own reward: (G - 1) / G. Every token weighs 1 / (B L) instead of 1 / B.
    constant = (GROUP - 1) / GROUP / LONGEST
    assert relative_gap(found, constant * exact_gradient(policy, rewards)) < 1e-6


def test_reinforce_is_unbiased_up_to_its_batch_baseline(policy, rewards):
    found = expected_gradient(policy, rewards, lab.reinforce_advantages, lab.sum_weights)
    # The batch mean contains the response's own reward with weight 1 / B; the others are independent of it.
    assert relative_gap(found, (BATCH - 1) / BATCH * exact_gradient(policy, rewards)) < 1e-6


def test_grpo_is_biased_and_by_how_much(policy, rewards, capsys):
    found = expected_gradient(policy, rewards, lab.grpo_advantages, lab.mean_weights)
    exact = exact_gradient(policy, rewards)
    cosine = torch.nn.functional.cosine_similarity(found, exact, dim=0).item()
    best = (found @ exact) / (exact @ exact) * exact  # no constant makes them equal
    residual = relative_gap(found, best)
    with capsys.disabled():
        print(f"\nGRPO: cosine with the exact gradient {cosine:.4f}, off by {residual:.3f} after the best rescaling")
    assert residual > 0.05
    assert cosine > 0  # it still climbs


def test_grpos_two_changes_each_bias_it(policy, rewards):
    """Dividing by the group's deviation, and averaging over a response's own tokens: each alone does."""
    exact = exact_gradient(policy, rewards)
    for advantages, weights in (
        (lab.grpo_advantages, lab.sum_weights),
        (lab.dr_grpo_advantages, lab.mean_weights),
    ):
        found = expected_gradient(policy, rewards, advantages, weights)
        best = (found @ exact) / (exact @ exact) * exact
        assert relative_gap(found, best) > 0.02, (advantages.__name__, weights.__name__)
