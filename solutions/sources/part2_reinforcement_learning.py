# %% [markdown] id="title"
# # Lab 16, part 2: reinforcement learning with a verifier
#
# Part 1 left a language model that can do more than it does. It was pretrained on answers of which nine in ten are
# direct, so it mostly answers directly, and on lists of three or more digits mostly wrongly. When it writes out its
# steps it is almost always right, but it does so only about one time in ten.
#
# In this part you train the model on its own responses. A verifier reads the final answer and gives a reward of 1 or
# 0. Nothing else is said about how a response should look. You write four estimators of the policy gradient, the
# training step around them, and a measure of how far the policy moves. Then you train each estimator, once more with
# a cost for length, and compare.
#
# 1. The verifier and the reward
# 2. The policy gradient, and why a baseline is allowed
# 3. Four estimators: advantages, token weights, loss
# 4. What each estimator computes on average, exactly
# 5. Distance from the pretrained model: KL
# 6. The training step, and ten runs
# 7. What you should see
#
# The notebook runs on its own. It starts from the pretrained model that comes with the lab, so that everyone compares
# the same runs. Exercises and checks work as in part 1: fill in the function, run the cell with its check, read the
# report. The exercises take about 105 minutes. The long cell, ten training runs, takes about a minute on two cores, and
# every other cell takes seconds. Numbers quoted in the text are those of the full profile.

# %% id="setup"
import copy
import itertools

import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import kl_div

from labutils import plots, rollout, training, widgets
from labutils.checks import check
from labutils.lab import Lab, shipped_model
from labutils.model import Transformer
from labutils.task import (
    ARROW,
    COLON,
    END,
    PAD,
    RESPONSE_TOKENS,
    Problems,
    decode,
    encode_prompts,
    encode_responses,
    response_mask,
    sample_problems,
    writes_states,
)
from labutils.training import Estimator
from labutils.verifier import verify

torch.set_printoptions(precision=3, sci_mode=False)
lab = Lab.for_notebook()
start = lab.model("pretrained")

# %% [markdown] id="what-part-1-left"
# ## What part 1 left
#
# Here are eight responses of the pretrained model to one problem, sampled at temperature 1. The list is 4 7 1 9 3;
# its states are 4, 9, 8, 3, 2, so the right answer is 2. Eight responses to the same prompt are called a *group*;
# every training step below works with groups of this size.

# %% id="one-group" role="free"
problem = Problems.from_digits([[4, 7, 1, 9, 3]])
group = rollout.generate(start, encode_prompts(problem), 8, generator=torch.Generator().manual_seed(4))
for response, accepted in zip(group, verify(problem.repeat_interleave(8), group), strict=True):
    print(f"{decode(response):<28} {'right' if accepted else 'wrong'}")

# %% [markdown] id="by-form-text"
# With this seed two of the eight are worked, one more than usual. The next cell samples 16 responses to each of 350
# problems, 50 of every length, and counts how often each form is right.

# %% id="accuracy-by-form"
problems = training.evaluation_set(50)
repeated = problems.repeat_interleave(16)
sampled = rollout.generate(start, encode_prompts(problems), 16, generator=torch.Generator().manual_seed(1))
correct, worked = verify(repeated, sampled), writes_states(sampled)

print("digits   share worked   worked right   direct right")
for digits in range(2, 9):
    here = repeated.lengths == digits
    shares = worked[here], correct[here & worked], correct[here & ~worked]
    print(f"{digits:>6}" + "".join(f"{share.float().mean():>15.2f}" for share in shares))

# %% [markdown] id="by-form-reading"
# The gap between the last two columns is what reinforcement learning can use. Both forms are sampled, one of them is
# right far more often, and a reward for right answers tells them apart. It does not have to be told which form is
# better.

# %% [markdown] id="verifier-text"
# ## 1. The verifier and the reward
#
# `verify(problems, responses)` is the only source of reward. It accepts a response that ends with `> a <end>` where
# `a` is the answer, whatever came before. Before you trust a reward, try it on responses that you made up. The
# problem is 4 7 1, with states 4, 9, 8 and the answer 8.

# %% id="verifier-by-hand" role="free"
by_hand = {
    "direct, right answer": [ARROW, 8, END],
    "worked, right answer": [COLON, 4, 9, 8, ARROW, 8, END],
    "wrong states, right answer": [COLON, 0, 0, 0, ARROW, 8, END],
    "right states, wrong answer": [COLON, 4, 9, 8, ARROW, 3, END],
    "no arrow": [8, END],
    "cut off before <end>": [COLON, 4, 9, 8, 8, 8, 8, 8, 8, 8, ARROW, 8],
}
rows = torch.tensor([row + [PAD] * (RESPONSE_TOKENS - len(row)) for row in by_hand.values()])
verdicts = verify(Problems.from_digits([[4, 7, 1]]).repeat_interleave(len(rows)), rows)
for name, row, verdict in zip(by_hand, rows, verdicts, strict=True):
    print(f"{name:<28} {decode(row):<30} {'accepted' if verdict else 'rejected'}")

# %% [markdown] id="verifier-reading"
# The third line matters for what follows: the states are wrong, and the response earns the full reward. Nothing
# rewards the steps. If the model learns to write right steps, it is because right steps lead to right answers.
#
# A response that is cut off after 12 tokens earns 0, even if it was about to end well.

# %% [markdown] id="reward"
# A correct response earns 1 and any other 0. The fifth run subtracts a cost for every token of the response, right or
# wrong:
#
# $$r = \mathbf 1[\text{correct}] - \text{cost} \cdot n ,$$
#
# where $n$ counts the tokens up to and including `<end>`. With a cost of 0.02, a right direct answer (3 tokens) earns
# 0.94, a right worked answer to four digits (8 tokens) 0.84, and a wrong direct answer $-0.06$.
#
# **Exercise `rewards_with_cost`** · 5 minutes · difficulty ●○○○○ · turns the verifier's verdicts into rewards
#
# <details><summary>Hint 1</summary>
#
# `correct` is a bool tensor. Turn it into float32 first, then subtract.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The number 1 or 0 is `correct.float()`. The cost of a response is `cost` times its number of tokens, as a float
# tensor of the same shape (N, G). No loop is needed.
#
# </details>

# %% id="rewards-with-cost" exercise="rewards_with_cost"

# %% [markdown] id="policy-gradient"
# ## 2. The policy gradient
#
# Take the whole response $y$ to a prompt $x$ as one action. Its probability is the product of its tokens'
# probabilities, so
#
# $$\log \pi_\theta(y \mid x) = \sum_t \log \pi_\theta(y_t \mid x, y_{<t}) ,$$
#
# which is what `rollout.response_log_probs` gives token by token. The aim is the expected reward
#
# $$J(\theta) = \mathbb E_x \sum_y \pi_\theta(y \mid x)\, r(x, y) .$$
#
# The reward comes from a program that reads sampled tokens, so it cannot be differentiated. It does not have to be:
# $r$ does not depend on $\theta$, only the probabilities do. For one prompt (left out of the notation),
#
# $$
# \begin{aligned}
# \nabla J &= \sum_y r(y)\, \nabla \pi_\theta(y) && \text{the reward is a constant} \\
# \nabla \pi_\theta(y) &= \pi_\theta(y)\, \nabla \log \pi_\theta(y) && \text{because } \nabla \log f = \nabla f / f \\
# \nabla J &= \sum_y \pi_\theta(y)\, r(y)\, \nabla \log \pi_\theta(y) && \text{put in} \\
# &= \mathbb E_{y \sim \pi_\theta}\big[\, r(y)\, \nabla \log \pi_\theta(y) \,\big] && \text{a sum weighted by probabilities}
# \end{aligned}
# $$
#
# The last line is an expectation under the policy itself: sample responses from the current policy, multiply the
# gradient of each one's log-probability by its reward, and average. This is the score-function estimator; $\nabla
# \log \pi$ is called the score.

# %% [markdown] id="baseline"
# ### A baseline leaves the expectation unchanged
#
# The estimator above raises the log-probability of whatever was rewarded, and never lowers anything directly.
# Subtract from the reward a number $b$ that does not depend on the response. The expectation does not change, because
# the score has mean 0:
#
# $$
# \mathbb E_y\big[\, b\, \nabla \log \pi_\theta(y) \,\big]
# = b \sum_y \pi_\theta(y)\, \frac{\nabla \pi_\theta(y)}{\pi_\theta(y)}
# = b\, \nabla \sum_y \pi_\theta(y) = b\, \nabla 1 = 0 .
# $$
#
# What changes is the variance. A good $b$ makes the factor $r - b$ small on average. The difference $r - b$ is called
# the *advantage*.
#
# A policy with three responses is small enough to compute everything exactly, without sampling. Its parameters are
# three logits; the first response is right.

# %% id="baseline-enumeration"
theta = torch.tensor([0.0, 0.5, 1.0], requires_grad=True)
toy_reward = torch.tensor([1.0, 0.0, 0.0])
expected_reward = (theta.softmax(0) * toy_reward).sum()
print("probabilities   ", theta.softmax(0).detach())
print("exact gradient  ", torch.autograd.grad(expected_reward, theta)[0], "\n")

toy_probability = theta.softmax(0).detach()
scores = torch.stack([torch.autograd.grad(theta.log_softmax(0)[y], theta)[0] for y in range(3)])
for baseline in (0.0, 0.1, expected_reward.item(), 0.5, 1.0):
    estimate = (toy_reward - baseline)[:, None] * scores  # row y: what the estimator gives when y is sampled
    mean = toy_probability @ estimate
    variance = (toy_probability[:, None] * (estimate - mean) ** 2).sum()
    print(f"b = {baseline:.3f}   expectation {mean}   variance {variance:.3f}")

# %% [markdown] id="baseline-reading"
# The expectation is the exact gradient in every line. The variance is not: it is smaller with the expected reward as
# the baseline (the third line) than without one, and a baseline of 1 makes it several times larger. A baseline is
# free of bias, but not every baseline helps.
#
# The proof needs that $b$ does not depend on *this* response. It may depend on the prompt, on other responses to the
# same prompt, and on responses to other prompts. The next section's estimators differ in which of these they use.

# %% [markdown] id="on-policy"
# ### On-policy: no importance ratios
#
# PPO, GRPO and their relatives are usually written with a ratio $\pi_\theta(y_t)/\pi_\text{old}(y_t)$ that is
# clipped. The ratio is there because those methods take several gradient steps on one batch of responses, and from
# the second step on the responses come from an older policy. This lab takes one step per batch. The policy that is
# differentiated is the policy that sampled, every ratio is 1, and clipping has nothing to act on. The gradient of the
# ratio at 1 is $\nabla \pi / \pi = \nabla \log \pi$, so the loss can be written with $\log \pi$ alone.

# %% [markdown] id="estimators-text"
# ## 3. Four estimators
#
# All four give each response an advantage, each token a weight, and follow
#
# $$ g = \sum_{i=1}^{B} A_i \sum_{t} w_{i,t}\, \nabla \log \pi_\theta(y_{i,t} \mid x_i, y_{i,<t}) . $$
#
# Every token of a response shares the response's advantage: the verifier does not say which token was good. A batch
# has $N = 32$ problems with $G = 8$ responses each, $B = 256$ responses in all. Rewards come as a tensor (N, G), one
# row per group.
#
# Take two groups as an example, one with two right answers out of eight and one where all are right:
#
# | group | rewards |
# |---|---|
# | first | 1 0 0 0 1 0 0 0 |
# | second | 1 1 1 1 1 1 1 1 |

# %% [markdown] id="reinforce-text"
# ### REINFORCE: the mean of the batch
#
# REINFORCE (Williams, 1992) is the score-function estimator with a baseline. Here the baseline is the mean reward of
# all $B$ responses of the batch, over all problems.
#
# In the example the batch mean is 10/16 = 0.625. A right answer gets 0.375 and a wrong one $-0.625$, in either group.
# So the second group, where there is nothing to choose between, is pushed up as a whole. That is no bias, since the
# score's mean is 0. It is noise: part of the advantage says that the problem was easy, not that the response was
# good.
#
# The batch mean contains the response's own reward, so strictly it does depend on the response. Of the $B$ terms of
# the mean only its own matters, and the expected gradient is multiplied by $1 - 1/B$. With 256 responses that is a
# change of the step size by 0.4 %.
#
# **Exercise `reinforce_advantages`** · 5 minutes · difficulty ●○○○○ · the simplest estimator, and what the others improve on
#
# <details><summary>Hint 1</summary>
#
# One number is subtracted from the whole tensor.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `rewards.mean()` without a dimension is the mean over all problems and responses.
#
# </details>

# %% id="reinforce-advantages" exercise="reinforce_advantages"

# %% [markdown] id="rloo-text"
# ### RLOO: the mean of the other responses
#
# REINFORCE leave-one-out (Kool et al., 2019; for language models Ahmadian et al., 2024) takes as baseline for a
# response the mean reward of the *other* $G - 1$ responses to the same prompt:
#
# $$A_i = r_i - \frac{1}{G-1} \sum_{j \ne i} r_j .$$
#
# This baseline knows how hard the problem is, and it does not contain $r_i$. The other responses are independent of
# response $i$, so the proof above applies word for word and the estimator is unbiased.
#
# In the first group a right answer has one right answer among the seven others: its advantage is $1 - 1/7 = 0.857$. A
# wrong answer has two: $0 - 2/7 = -0.286$. In the second group every advantage is $1 - 7/7 = 0$.
#
# **Exercise `rloo_advantages`** · 10 minutes · difficulty ●●○○○ · the unbiased estimator with a baseline per problem
#
# <details><summary>Hint 1</summary>
#
# You need not loop over the responses that are left out. The sum over the others is the group's sum without one term.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `rewards.sum(1, keepdim=True)` is (N, 1). Subtracting `rewards` from it gives the sum over the others for every
# response at once, (N, G). How many others are there? `rewards.shape[1]` is $G$.
#
# </details>

# %% id="rloo-advantages" exercise="rloo_advantages"

# %% [markdown] id="grpo-text"
# ### GRPO: the group's mean and standard deviation
#
# GRPO (Shao et al., 2024) standardizes the rewards within the group:
#
# $$A_i = \frac{r_i - \operatorname{mean}(r_1, \dots, r_G)}{\operatorname{std}(r_1, \dots, r_G) + \varepsilon} .$$
#
# In the first group the mean is 0.25. The sum of squared deviations is $2 \cdot 0.75^2 + 6 \cdot 0.25^2 = 1.5$, so
# the standard deviation with Bessel's correction is $\sqrt{1.5/7} = 0.463$. A right answer gets $0.75/0.463 = 1.62$,
# a wrong one $-0.25/0.463 = -0.54$.
#
# In the second group mean and rewards agree, and so the standard deviation is 0. Without $\varepsilon$ the advantage
# is 0/0:

# %% id="zero-over-zero"
print(torch.zeros(8) / torch.zeros(8))

# %% [markdown] id="grpo-exercise-text"
# One such value is enough to make the loss, then every gradient, then every parameter of the model `nan`, without an
# error message. Groups of equal rewards are no rare case: late in training most are such. With any $\varepsilon > 0$
# they get advantage 0, as with RLOO: a group of equal rewards gives no gradient.
#
# Conventions differ. TRL adds $\varepsilon = 10^{-4}$, verl $10^{-6}$, the code of Dr. GRPO's authors $10^{-8}$; all
# three use Bessel's correction, as `torch.std` does by default. The check accepts any $\varepsilon$ from $10^{-6}$ to
# $10^{-3}$, and both kinds of standard deviation.
#
# **Exercise `grpo_advantages`** · 10 minutes · difficulty ●●○○○ · the estimator that DeepSeekMath introduced
#
# <details><summary>Hint 1</summary>
#
# Mean and standard deviation are taken along the group, not over the batch. Both need to keep their dimension to be
# subtracted from and divided into (N, G).
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `rewards.std(1, keepdim=True)` is (N, 1). Add a small number to it before you divide, not after.
#
# </details>

# %% id="grpo-advantages" exercise="grpo_advantages"

# %% [markdown] id="dr-grpo-text"
# ### Dr. GRPO: the group's mean
#
# Dr. GRPO ("GRPO done right", Liu et al., 2025) leaves the division out. Only the group's mean is subtracted. In the
# first group a right answer gets 0.75 and a wrong one $-0.25$, in the second everyone gets 0.
#
# This is RLOO in another scale. The mean contains the response's own reward; with $S$ for the group's sum,
#
# $$
# r_i - \frac{S - r_i}{G - 1} = \frac{(G - 1)\, r_i - S + r_i}{G - 1} = \frac{G}{G-1} \Big( r_i - \frac{S}{G} \Big) ,
# $$
#
# so RLOO's advantage is $8/7$ times Dr. GRPO's: $0.857 = \tfrac 8 7 \cdot 0.75$. The same direction, a step 7/8 as
# long.
#
# **Exercise `dr_grpo_advantages`** · 3 minutes · difficulty ●○○○○ · GRPO without the factor that depends on the problem
#
# <details><summary>Hint 1</summary>
#
# It is half of what you wrote for GRPO.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The mean is taken along dimension 1 and keeps its dimension.
#
# </details>

# %% id="dr-grpo-advantages" exercise="dr_grpo_advantages"

# %% [markdown] id="two-groups-text"
# Your four functions on the two groups:

# %% id="two-groups" role="free"
two_groups = torch.tensor([[1.0, 0, 0, 0, 1, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1, 1]])
for advantages in (reinforce_advantages, rloo_advantages, grpo_advantages, dr_grpo_advantages):
    print(f"{advantages.__name__:<22}{advantages(two_groups)[0]}")
    print(f"{'':<22}{advantages(two_groups)[1]}\n")

# %% [markdown] id="two-groups-reading"
# The second group moves REINFORCE's policy and nobody else's. In the first group the three others agree in sign and
# in the ratio of right to wrong; they differ only in scale. GRPO's scale depends on the group: the rarer of the two
# rewards, the smaller the standard deviation, the larger the factor. Section 4 shows what that does on average.

# %% [markdown] id="weights-text"
# ### Token weights
#
# A response's log-probability is a sum over its tokens, and the estimators differ in how the sums are combined. With
# $n_i$ the number of tokens of response $i$:
#
# | weights | $w_{i,t}$ on the response's tokens | used by |
# |---|---|---|
# | sum | $1/B$ | REINFORCE, RLOO |
# | mean | $1/(B\, n_i)$ | GRPO |
# | constant | $1/(B \cdot 12)$ | Dr. GRPO |
#
# The sum is what section 2 derived: the gradient of $\log \pi(y)$, averaged over responses. The constant is the same
# in another scale, 12 being the most tokens that a response can have. The mean is something else: a long response
# counts as much as a short one, so each of its tokens counts less.
#
# A mask says which tokens belong to a response: those up to and including the first `<end>`. Here it is for a direct
# and a worked answer to 4 7 1.

# %% id="printed-mask"
pair = Problems.from_digits([[4, 7, 1], [4, 7, 1]])
pair_responses = encode_responses(pair, torch.tensor([False, True]))
pair_mask = response_mask(pair_responses)
for response, row in zip(pair_responses, pair_mask, strict=True):
    print(f"{decode(response):<26}{row.int().tolist()}   {row.sum()} tokens")

# %% [markdown] id="weights-by-hand"
# In this batch $B = 2$. The sum gives each of the ten tokens $1/2$. The mean gives each token of the direct answer
# $1/6$ and each of the worked one $1/14$. The constant gives all ten $1/24$. Outside the mask every weight is 0.
#
# What the mean does to long responses: if a wrong response has 3 tokens, its push downwards is spread over 3 tokens
# at full strength; if it has 12, each token is pushed a quarter as hard. A wrong answer is punished less for being
# long. A right answer is rewarded more, per token, for being short. Liu et al. (2025) named this as one reason why
# wrong responses grow in length under GRPO.
#
# **Exercise `sum_weights`** · 5 minutes · difficulty ●○○○○ · mean over responses of the sum over tokens
#
# <details><summary>Hint 1</summary>
#
# Every token of the mask gets the same number, and every other place gets 0.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `mask.float()` is 1 where a weight belongs. The number of responses is `len(mask)`.
#
# </details>

# %% id="sum-weights" exercise="sum_weights"

# %% [markdown] id="mean-weights-text"
# **Exercise `mean_weights`** · 10 minutes · difficulty ●●○○○ · GRPO's average over each response's own tokens
#
# A response with an empty mask gets weights 0, not `nan`. No response of this lab is empty, but code that filters
# responses can produce one.
#
# <details><summary>Hint 1</summary>
#
# Count the tokens of each response, with the dimension kept, so that the count can divide the mask row by row. The
# width of the tensor, 12, is not the number of tokens.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `mask.float().sum(1, keepdim=True)` counts. `clamp(min=1)` on the count makes an empty row 0/1 and changes no other.
# Then divide by the number of responses too.
#
# </details>

# %% id="mean-weights" exercise="mean_weights"

# %% [markdown] id="constant-weights-text"
# **Exercise `constant_weights`** · 5 minutes · difficulty ●○○○○ · Dr. GRPO's weight, the same for every token
#
# The divisor is `max_tokens`, not the width of the mask and not the number of true entries: padding a batch wider, or
# adding a response, must not change how the tokens of a response compare.
#
# <details><summary>Hint 1</summary>
#
# It is `sum_weights` in another scale.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The divisor is the number of responses times `max_tokens`.
#
# </details>

# %% id="constant-weights" exercise="constant_weights"

# %% [markdown] id="weights-use-text"
# Your three functions on the two responses. The last column is the weight of the response as a whole.

# %% id="weights-use" role="free"
for weights in (sum_weights, mean_weights, constant_weights):
    for response, row in zip(pair_responses, weights(pair_mask), strict=True):
        print(f"{weights.__name__:<18}{decode(response):<24}{row[0]:.4f} a token   {row.sum():.4f} in all")

# %% [markdown] id="estimators-dict-text"
# ### The five runs
#
# An `Estimator` holds an advantage, token weights, a length cost and a group size. These are the five that the lab
# compares.

# %% id="estimators"
ESTIMATORS = {
    "reinforce": Estimator(reinforce_advantages, sum_weights),
    "rloo": Estimator(rloo_advantages, sum_weights),
    "grpo": Estimator(grpo_advantages, mean_weights),
    "dr_grpo": Estimator(dr_grpo_advantages, constant_weights),
    "dr_grpo_cost": Estimator(dr_grpo_advantages, constant_weights, length_cost=0.02),
}

# %% [markdown] id="advantage-bench-text"
# The bench below calls your functions. Switch rewards and move lengths, and watch the advantages and every token's
# weight times advantage. Three things to try:
#
# - Make all rewards of the group equal. Which estimators still push?
# - Leave one response right out of eight, then seven. Compare GRPO's numbers with those for four.
# - Take a wrong response and make it longer. In which estimator does the push on its tokens fade?

# %% id="advantage-bench" role="free"
widgets.advantage_bench(ESTIMATORS)

# %% [markdown] id="policy-loss-text"
# ### The loss
#
# PyTorch minimizes scalars, so the estimator is written as a scalar whose gradient is $-g$:
#
# $$ \ell = - \sum_{i,t} w_{i,t}\, A_i \log \pi_\theta(y_{i,t} \mid x_i, y_{i,<t}) . $$
#
# The advantages are constants here. They came from sampled tokens and a program, and no gradient may pass through
# them.
#
# By hand: two responses with one token each, of log-probability $-0.5$ and $-2$; advantages $0.75$ and $-0.25$; all
# weights $1/2$. The loss is $-\tfrac 1 2 (0.75 \cdot (-0.5) + (-0.25) \cdot (-2)) = -0.0625$. It is negative. Its
# derivative with respect to the two log-probabilities is $-0.375$ and $+0.125$: a step downhill raises the first and
# lowers the second.
#
# **Where you will be misled.** The value of this loss means nothing. It is no measure of error with a floor at 0.
# Only its gradient at the current policy is of use. Since the advantages of a batch sum to 0 or nearly so, the value
# is a difference between two averages, near 0 and of either sign, at the start of training, in the middle and at the
# end. Many libraries write the ratio $\pi_\theta / \pi_\text{old}$ in place of $\log \pi_\theta$. Every ratio is 1, and
# with GRPO's weights the value printed for a batch is minus the mean advantage: 0.0000, while the model trains well.
# People report that as a bug. Look at the reward, not at the loss.
#
# **Exercise `policy_loss`** · 10 minutes · difficulty ●●○○○ · the only thing that is differentiated
#
# <details><summary>Hint 1</summary>
#
# An advantage belongs to a response, a weight and a log-probability to a token. Bring the advantages into a shape
# that multiplies all tokens of their response.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `advantages[:, None]` is (B, 1). Detach it. The three factors multiplied are (B, R); the weights already hold every
# division, so the rest is a sum, not a mean. Mind the sign.
#
# </details>

# %% id="policy-loss" exercise="policy_loss"

# %% [markdown] id="enumeration-text"
# ## 4. What each estimator computes on average
#
# Is an estimator's gradient right on average? Sampling answers with noise. On a small policy the answer is exact:
# list every group that could be sampled, compute the estimator's gradient on each, and average them by their
# probabilities.
#
# The policy below has three responses to one problem: a right one of 12 tokens, a wrong one of 3, and a wrong one of
# 12. Their probabilities are 0.2, 0.4 and 0.4. Groups have four responses, so there are $3^4 = 81$ of them. The
# function uses your advantages, your weights and your loss.


# %% id="expected-gradient"
def exact_gradient(probabilities, rewards):
    """(K,): the gradient of the expected reward with respect to the logits of K responses."""
    logits = probabilities.log().requires_grad_()
    return torch.autograd.grad((logits.softmax(0) * rewards).sum(), logits)[0]


def expected_gradient(probabilities, rewards, lengths, advantages, weights, group_size):
    """(K,): what an estimator gives on average, the mean over all K ** group_size groups."""
    logits = probabilities.log().requires_grad_()
    mean_loss = torch.zeros(())
    for group in itertools.product(range(len(rewards)), repeat=group_size):
        chosen = torch.tensor(group)
        mask = torch.arange(RESPONSE_TOKENS) < lengths[chosen][:, None]
        # A response's tokens share one weight, so it does not matter how its log-probability is spread over them.
        log_probs = mask * (logits.log_softmax(0)[chosen] / lengths[chosen])[:, None]
        loss = policy_loss(log_probs, advantages(rewards[chosen][None]).flatten(), weights(mask))
        mean_loss = mean_loss + probabilities[chosen].prod() * loss
    return -torch.autograd.grad(mean_loss, logits)[0]


# %% id="bias-table" role="free"
toy = torch.tensor([0.2, 0.4, 0.4]), torch.tensor([1.0, 0.0, 0.0])  # probabilities and rewards
toy_lengths = torch.tensor([12, 3, 12])
exact = exact_gradient(*toy)

print("logit of                     right, long   wrong, short   wrong, long    cosine   length")
print(f"{'exact gradient':<26}" + "".join(f"{value:>14.4f}" for value in exact))
for name in ("reinforce", "rloo", "grpo", "dr_grpo"):
    estimator = ESTIMATORS[name]
    gradient = expected_gradient(*toy, toy_lengths, estimator.advantages, estimator.weights, group_size=4)
    cosine = torch.cosine_similarity(gradient, exact, dim=0)
    length = gradient.norm() / exact.norm()
    print(f"{name:<26}" + "".join(f"{value:>14.4f}" for value in gradient) + f"{cosine:>12.4f}{length:>9.4f}")

# %% [markdown] id="bias-table-reading"
# - **RLOO** gives the exact gradient: cosine 1, length 1.
# - **REINFORCE** and **Dr. GRPO** point in the exact direction, with another length. The batch here is one group of
#   four, and the baseline contains the response's own reward, hence $1 - 1/4 = 0.75$; for Dr. GRPO the constant
#   $1/12$ comes on top. In the lab's batch of 256 REINFORCE's factor is $255/256$. Adam divides by the gradient's own
#   scale, so a constant factor hardly matters to it.
# - **GRPO** points elsewhere. The exact gradient lowers both wrong responses alike. GRPO lowers the short one and
#   raises the long one a little, although it never earns anything.
#
# GRPO changes two things at once. The figure takes them apart: on the left the advantage alone, on the right the
# token weights alone.


# %% id="bias-figure" role="free"
def difficulty_factor(advantages, right):
    """Expected gradient over exact gradient, on a problem whose right answer has probability `right`; groups of 8."""
    toy = torch.tensor([right, 1 - right]), torch.tensor([1.0, 0.0])
    lengths = torch.tensor([3, 3])
    return (expected_gradient(*toy, lengths, advantages, sum_weights, group_size=8) / exact_gradient(*toy))[0].item()


def push_on_the_longer(weights, tokens):
    """How hard a wrong response of `tokens` tokens is pushed, relative to an equally probable one of 3 tokens."""
    gradient = expected_gradient(*toy, torch.tensor([12, 3, tokens]), rloo_advantages, weights, group_size=4)
    return (gradient[2] / gradient[1]).item()


figure = Figure(figsize=(10, 3.8), layout="constrained")
left, right = figure.subplots(1, 2)
chances = (0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98)
for name, label, size in (  # where two lines coincide, the larger markers below stay visible
    ("reinforce", "REINFORCE (batch of one group)", 10),
    ("dr_grpo", "Dr. GRPO", 5),
    ("rloo", "RLOO", 5),
    ("grpo", "GRPO", 5),
):
    factors = [difficulty_factor(ESTIMATORS[name].advantages, chance) for chance in chances]
    style = {"color": plots.COLOURS[name], "marker": plots.MARKERS[name], "markersize": size}
    left.plot(chances, factors, label=label, **style)
left.set(xlabel="probability of a right answer", ylabel="expected gradient / exact gradient", ylim=(0, 3))
left.set_title("advantages alone: how a problem counts", fontsize="medium")

tokens = range(3, 13)
for name, label, weights, size in (
    ("rloo", "sum (REINFORCE, RLOO)", sum_weights, 10),
    ("dr_grpo", "constant (Dr. GRPO)", constant_weights, 5),
    ("grpo", "mean over own tokens (GRPO)", mean_weights, 5),
):
    pushes = [push_on_the_longer(weights, count) for count in tokens]
    style = {"color": plots.COLOURS[name], "marker": plots.MARKERS[name], "markersize": size}
    right.plot(tokens, pushes, label=label, **style)
right.set(xlabel="length of the longer wrong response (tokens)", ylabel="push on it / push on the short one")
right.set_title("token weights alone: how a wrong response counts", fontsize="medium")
for axis in (left, right):
    axis.axhline(0, color="black", linewidth=0.8)
    axis.grid(alpha=0.3)
    axis.legend(fontsize="small")

plots.Picture(
    figure,
    "Two panels from exact enumeration. Left: expected over exact gradient against the probability of a right answer; "
    "RLOO is flat at 1, REINFORCE and Dr. GRPO flat at 7/8, GRPO about 1.8 in the middle and 2.4 at both ends. Right: push "
    "on a wrong response against its length, relative to a wrong one of 3 tokens; sum and constant weights are flat at "
    "1, mean weights fall from 1 through 0 at 9 tokens to slightly below.",
)

# %% [markdown] id="bias-figure-reading"
# Left: GRPO's division enlarges problems that are nearly never or nearly always solved, compared with those solved half
# of the time; the other three treat all problems alike. Right: with GRPO's mean over own tokens the push on a wrong
# response fades as it gets longer, and in this example it turns around beyond 9 tokens; with the other weights it does
# not depend on the length.
#
# The first need not be a defect. In the limit of large groups, for 0/1 rewards, dividing by the standard deviation
# turns $p$, the probability of a right answer, into $2 \arcsin \sqrt p$ as the thing that is maximized, because
# $\nabla p / \sqrt{p (1 - p)} = \nabla\, 2 \arcsin \sqrt p$. That objective cares more about problems at the edges. It
# is another objective than the expected reward, but it is one. The length bias has no such excuse: how hard a wrong answer
# is discouraged should not depend on how many tokens it took.

# %% [markdown] id="libraries"
# ### Names in libraries
#
# A name in a configuration file does not tell you the formula. As of late 2026: TRL's `GRPOTrainer` uses by default
# the loss type `dapo`, which divides the token sum by the number of tokens in the whole batch. Its loss type
# `dr_grpo` changes only the token weights; advantages are still divided by the standard deviation unless
# `scale_rewards="none"` is set too. The value of $\varepsilon$ differs (see above). Before you compare results, look
# at three lines of the code: the advantage, the token weights, and the KL term.

# %% [markdown] id="kl-text"
# ## 5. Distance from the pretrained model
#
# How far does the policy $\pi$ move from the pretrained model $\pi_\text{ref}$? The usual measure is the
# Kullback-Leibler divergence of their distributions over whole responses,
#
# $$
# \operatorname{KL}(\pi \,\|\, \pi_\text{ref})
# = \mathbb E_{y \sim \pi}\Big[ \log \frac{\pi(y)}{\pi_\text{ref}(y)} \Big]
# = \mathbb E_{y \sim \pi} \sum_t \log \frac{\pi(y_t \mid y_{<t})}{\pi_\text{ref}(y_t \mid y_{<t})} ,
# $$
#
# in nats per response. Responses are too many to list, so the expectation is estimated from responses sampled from
# $\pi$. With $d = \log \pi(y) - \log \pi_\text{ref}(y)$, three estimators are in use (Schulman, 2020):
#
# $$ k_1 = d, \qquad k_2 = \tfrac 1 2 d^2, \qquad k_3 = e^{-d} - 1 + d . $$
#
# - $k_1$ is unbiased by definition. A single value can be negative although the divergence cannot.
# - $k_2$ is never negative, and biased; the bias is small where the two policies are close.
# - $k_3$ is unbiased too: $\mathbb E_\pi[e^{-d}] = \sum_y \pi(y)\, \pi_\text{ref}(y) / \pi(y) = 1$, so what was added
#   to $k_1$ has mean 0. It is never negative, because $e^x \ge 1 + x$ for every $x$, here $x = -d$.
#
# All three, exactly, on three responses:

# %% id="kl-enumeration"
pi = torch.tensor([0.7, 0.2, 0.1])
pi_ref = torch.tensor([0.1, 0.3, 0.6])
d = (pi / pi_ref).log()
estimators_of_kl = {"k1": d, "k2": d**2 / 2, "k3": (-d).exp() - 1 + d}
print(f"KL(pi || pi_ref) = {kl_div(pi_ref.log(), pi, reduction='sum'):.3f} nats")
print(f"KL(pi_ref || pi) = {kl_div(pi.log(), pi_ref, reduction='sum'):.3f} nats\n")
for name, values in estimators_of_kl.items():
    mean = (pi * values).sum()
    deviation = (pi * (values - mean) ** 2).sum().sqrt()
    print(f"{name}: value for each response {values}   mean {mean:.3f}   standard deviation {deviation:.3f}")

# %% [markdown] id="kl-reading"
# The means of $k_1$ and $k_3$ are the divergence; that of $k_2$ is not. The second line of the output warns of a
# frequent mistake: the divergence has a direction. Here responses come from the policy and the policy stands on top
# of the fraction.
#
# **Where you will be misled.** To measure is not to penalize. Put into the loss and differentiated, $k_1$ has an
# expected gradient of 0, since $\mathbb E[\nabla \log \pi] = 0$, and does nothing but add noise; $k_2$ has the right
# expected gradient; $k_3$ has a biased one, unbiased as its value is. And a $k_3$ taken token by token and averaged
# over tokens is another number than one taken per response. This lab measures the divergence and does not penalize
# it: per response, with $k_1$.
#
# **Exercise `kl_per_response`** · 10 minutes · difficulty ●●○○○ · how far the policy has moved
#
# <details><summary>Hint 1</summary>
#
# First per token, then the sum over a response's tokens, then the mean over responses. Dividing by the number of
# tokens gives nats per token, which is something else.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The difference of two log-probability tensors is (B, R). Multiply by the mask, `sum(1)` over tokens, and a mean over
# what is left. Policy minus reference, in this order.
#
# </details>

# %% id="kl-per-response" exercise="kl_per_response"

# %% [markdown] id="kl-use-text"
# Two uses on real models: the pretrained model against itself, where every log-ratio is 0, and a Dr. GRPO policy that
# comes with the lab against the pretrained model.

# %% id="kl-use" role="free"
prompts = encode_prompts(problems)
with torch.no_grad():
    for name, model in {"pretrained": start, "Dr. GRPO": shipped_model("dr_grpo")}.items():
        sampled = rollout.generate(model, prompts, generator=torch.Generator().manual_seed(2))
        own, reference = (rollout.response_log_probs(each, prompts, sampled) for each in (model, start))
        divergence = kl_per_response(own, reference, response_mask(sampled))
        print(f"{name:<12}{divergence:.3f} nats per response")

# %% [markdown] id="step-text"
# ## 6. The training step
#
# One step samples, verifies, computes advantages and takes one gradient step. The shapes, with $N$ problems and $G$
# responses each ($B = N \cdot G$):
#
# ```
# problems (N)
#    |
# prompts (N, 9)
#    |   sample G responses to each, one after the other
#    v
# responses (B, 12)
#    |               |                |
#    v               v                v
# mask (B, 12)   correct (B,)   log-probs (B, 12),
#    |   |           |          differentiable
#    |   lengths     |                |
#    |   (B,)        |                |
#    |   |           |                |
#    |   +---> rewards (N, G)         |
#    |               |                |
#    v               v                |
# weights      advantages (N, G),     |
# (B, 12)      flattened to (B,)      |
#    |               |                |
#    +---------------+----> loss <----+
#                            |
#                 zero_grad, backward,
#                 one optimizer step
# ```
#
# The pieces from the engine: `rollout.generate(policy, prompts, samples_per_prompt, generator=generator)` gives a
# prompt's responses one after the other, and `rollout.response_log_probs(policy, prompts, responses)` wants one
# prompt per response. So prompts and problems must be repeated in the same order:

# %% id="repeat-order"
numbers = torch.tensor([0, 1, 2])
print("repeat_interleave", numbers.repeat_interleave(2).tolist(), " a problem's copies in a row: what a group needs")
print("repeat           ", numbers.repeat(2).tolist(), " responses verified against other problems")

# %% [markdown] id="step-exercise-text"
# With `repeat` in the place of the first nothing fails: the shapes are the same, and responses are paired with the prompts
# of other problems, so that the policy learns nothing.
#
# Sampling is without gradients, at temperature 1, with the `generator` that is passed in. Sample at another
# temperature, or greedily, and the responses no longer come from the policy whose gradient you take.
#
# **Exercise `policy_gradient_step`** · 30 minutes · difficulty ●●●●○ · everything above in one function
#
# <details><summary>Hint 1</summary>
#
# Go through the diagram from top to bottom; every arrow is one line. `problems.repeat_interleave(group_size)` repeats
# problems, `prompts.repeat_interleave(group_size, 0)` repeats prompts, `.view(len(problems), group_size)` makes rows
# of groups and `.flatten()` undoes it. Read group size and cost from the estimator.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# In order: prompts; responses by `rollout.generate`; mask; `verify` on the repeated problems; lengths as
# `mask.sum(1)`; `rewards_with_cost` on two (N, G) tensors and `estimator.length_cost`;
# `estimator.advantages(rewards)`, flattened; `estimator.weights(mask)`; log-probs of the repeated prompts and the
# responses; `policy_loss`. Then the three calls of every PyTorch training loop, with `optimizer.zero_grad()` first.
# Return plain floats: `.item()`.
#
# </details>

# %% id="policy-gradient-step" exercise="policy_gradient_step"

# %% [markdown] id="one-step-text"
# ### Ten steps by hand
#
# Before the long runs, look at single steps. The cell trains a copy of the pretrained model with Dr. GRPO for ten
# steps. After each it prints the batch's mean reward, the loss, and the exact probability of starting with `:`, as a
# mean over 350 problems.


# %% id="ten-steps" role="free"
def writing_probability(model, problems):
    """(N,): the probability that a response to each problem starts with `:`."""
    with torch.no_grad():
        return model(encode_prompts(problems))[:, -1].softmax(-1)[:, COLON]


trial = copy.deepcopy(start)
optimizer = torch.optim.Adam(trial.parameters(), lr=lab.sizes.reinforcement.step_size)
generator = torch.Generator().manual_seed(0)
print(f"before    {'':<28}writes states {writing_probability(trial, problems).mean():.3f}")
for step in range(1, 11):
    batch = sample_problems(32, generator)
    metrics = policy_gradient_step(trial, optimizer, batch, ESTIMATORS["dr_grpo"], generator)
    rate = writing_probability(trial, problems).mean()
    print(f"step {step:>2}   reward {metrics['reward']:.3f}   loss {metrics['loss']:+.4f}   writes states {rate:.3f}")

# %% [markdown] id="ten-steps-reading"
# The loss stays within a few hundredths of 0, on both sides of it. The last column rises from step to step and about
# triples. Judged by the loss, nothing trains; judged by what the policy does, it changes fast. The batch's reward is
# noisy, since every batch has other problems, and ten steps are few to see it rise.

# %% [markdown] id="ten-runs-text"
# ### Ten runs
#
# Each of the five estimators is trained for 200 steps of 32 problems and 8 responses (50 in the quick profile), from
# two seeds. Every 25 steps the policy answers a fixed set of problems, and accuracy, writing rate and KL are
# recorded. The runs go side by side in processes, about a minute in all on two cores. The curves grow while they
# train.
#
# You can interrupt the cell with the stop button. What is trained is kept in the results folder, and the cell goes on
# from there when you run it again. If you change one of your functions, run the cell with `ESTIMATORS` again, too, which
# holds the functions as they were; the runs that use the changed one start anew.
#
# What is recorded comes from part 1's `summarize`, which this notebook needs too, so that it stands alone.
#
# **Exercise `summarize`** · 1 minute · difficulty ●○○○○ · copy your function from part 1
#
# If you have not written it yet:
#
# <details><summary>Hint 1</summary>
#
# Three means of three tensors with one entry per response: what `verify` accepts, what `writes_states` finds, and the
# number of tokens, from the response mask.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# A boolean tensor has no mean: turn it into floats first. The number of tokens of a response is the sum of its row of
# `response_mask`. Turn each mean into a Python float with `.item()`.
#
# </details>

# %% id="summarize" exercise="summarize"

# %% id="ten-runs" seconds=900
curves = lab.reinforce(ESTIMATORS, policy_gradient_step, summarize, kl_per_response)

# %% [markdown] id="table-text"
# All ten lines rise together, most of the way within the first 25 steps, and stay together. Accuracy follows the
# writing rate, and KL reaches its final height as the writing rate reaches 1.
#
# The table: accuracy, rate of writing the states, and KL, as the mean of the two seeds. Beside each entry stand the mean
# of many correct runs and the range in which a correct run falls.

# %% id="table-part2" table="part2"
lab.report("part2", curves)

# %% [markdown] id="notice-text"
# ## 7. What you should see
#
# ### The model learns to show its work
#
# In the course's own runs the writing rate went from << course("part2.*.0.writes_states", percent=True) >> at the start
# to << course("part2.*.25.writes_states", percent=True) >> after 25 steps, and the accuracy from
# << course("part2.*.0.accuracy", percent=True) >> to << course("part2.*.25.accuracy", percent=True) >>; after 200 steps
# the policies were right << course("part2.*.200.accuracy", percent=True) >> of the time. Those runs started from another
# pretrained model. From the one of this notebook, correct solutions reach after 25 steps of the full profile a writing
# rate of << band("part2.*.25.writes_states", percent=True) >> and an accuracy of
# << band("part2.*.25.accuracy", percent=True) >>. Your own numbers:

# %% id="before-and-after" role="free"
last_step = max(curves["dr_grpo"][0])
for step in (0, 25, last_step):
    runs = [run[step] for seeds in curves.values() for run in seeds.values()]
    print(f"step {step:>3}, all ten runs", end="")
    for name in ("accuracy", "writes_states", "kl"):
        values = [run[name] for run in runs]
        print(f"   {name} {min(values):.2f} to {max(values):.2f}", end="")
    print()

# %% [markdown] id="nothing-rewarded-text"
# ### Nothing rewarded the steps
#
# The verifier reads the answer alone. The next cell asks the trained policy: how long are its responses, and are the
# states that it writes right?

# %% id="nothing-rewarded" role="free"
trained = lab.model("dr_grpo")
responses = {
    name: rollout.generate(model, prompts, generator=torch.Generator().manual_seed(3))
    for name, model in {"pretrained": start, "Dr. GRPO": trained}.items()
}
right_form = encode_responses(problems, torch.ones(len(problems), dtype=torch.bool))
for name, sampled in responses.items():
    worked = writes_states(sampled)
    flawless = (sampled == right_form).all(1)[worked].float().mean()
    print(f"{name:<12}mean length {summarize(problems, sampled)['length']:.1f} tokens", end="")
    print(f"   {worked.sum()} of {len(sampled)} write states, of those without a mistake {flawless:.2f}")

# %% [markdown] id="nothing-rewarded-reading"
# The responses are more than twice as long, and nearly every written chain is right from start to end. A verified
# answer was enough, because in this task right steps are the way to right answers. This is the mechanism by which
# reasoning models trained with verifiable rewards come to write longer, in its simplest form: a behaviour that was
# already there, rare and successful, becomes the rule.
#
# ### Two seeds cannot tell the estimators apart
#
# Compare the spread between the estimators with the spread between two seeds of the same estimator.

# %% id="spread" role="free"
for step in (25, last_step):
    accuracy = {name: [run[step]["accuracy"] for run in seeds.values()] for name, seeds in curves.items()}
    means = [sum(values) / len(values) for values in accuracy.values()]
    between_seeds = max(max(values) - min(values) for values in accuracy.values())
    print(f"step {step:>3}: means of the estimators {min(means):.3f} to {max(means):.3f}", end="")
    print(f"   two seeds of one estimator differ by up to {between_seeds:.3f}")

# %% [markdown] id="spread-reading"
# The estimators differ from one another by about as much as two seeds of one estimator do, so two seeds are not enough
# to rank them. Many seeds are: over 64 of them, GRPO was behind RLOO after 25 steps, with a mean accuracy of 0.84
# against 0.88 and a writing rate of 0.86 against 0.91, lower with every single seed. Its mean over own tokens shrinks
# the push on long responses, and here the long ones are right. By step 50 the two accuracies agree within 0.01. There
# are reasons why so little separates them on this task:
#
# - The signal is strong. A worked answer is right nearly always, a direct one to three or more digits mostly not (the
#   table by form near the top). Every estimator sees that in the first batches.
# - The lengths are fixed. A worked response to $n$ digits has $n + 4$ tokens and a direct one 3, right or wrong.
#   For responses to grow in length, GRPO's bias needs wrong ones that can; here there are none.
# - Adam divides the gradient by its own scale, so the constant factors between RLOO and Dr. GRPO nearly cancel.
#
# ### KL: one decision
#
# After 25 steps of the full profile the KL divergence is << band("part2.*.25.kl") >> nats per response, and at step 200
# it is << band("part2.*.200.kl") >>, mostly near the << course("part2.*.200.kl") >> of the course's runs. Why that much,
# and why no more?
#
# A policy that always starts with `:` where the pretrained model does so with probability $p$ has moved by $-\ln p$ in
# that one token: $-\ln 0.1 = 2.3$. The next cell computes it from the pretrained model's own probabilities, and then
# splits your policy's divergence by the token's position.

# %% id="kl-by-position" role="free"
p = writing_probability(start, problems)
print(f"pretrained model:  writes states {p.mean():.3f},  mean of -ln p {-p.log().mean():.2f} nats")

with torch.no_grad():
    own, reference = (rollout.response_log_probs(model, prompts, responses["Dr. GRPO"]) for model in (trained, start))
log_ratio = (own - reference).mean(0)
print(f"Dr. GRPO policy:   KL {log_ratio.sum():.2f} nats", end="")
print(f",  first token {log_ratio[0]:.2f},  all later tokens together {log_ratio[1:].sum():.2f}")

# %% [markdown] id="kl-by-position-reading"
# Nearly all of the divergence sits in the first token. It is the one decision to start working. The rest is a little
# more certainty about digits that the model mostly knew already.
#
# ### Fewer groups that teach
#
# The more a policy is right, the more groups have equal rewards, and such a group has no gradient with RLOO, GRPO and
# Dr. GRPO.

# %% id="silent-groups" role="free"
for name, model in {"pretrained": start, "Dr. GRPO": trained}.items():
    sampled = rollout.generate(model, prompts, 8, generator=torch.Generator().manual_seed(4))
    rewards = verify(problems.repeat_interleave(8), sampled).float().view(-1, 8)
    silent = (rewards == rewards[:, :1]).all(1)
    print(f"{name:<12}{silent.float().mean():.0%} of the groups have eight equal rewards")

# %% [markdown] id="silent-groups-reading"
# Late in training most groups teach nothing. The step stays the same size in problems, but a few of them decide its
# direction.

# %% [markdown] id="live-bench-text"
# ## Try it yourself
#
# A run takes seconds, so you can experiment. Choose an estimator, a length cost, a sampling temperature, a group size
# and a step size, press train, and watch the curves beside your earlier tries. The ten runs above are drawn in grey.
# Some things to try:
#
# - A group of two instead of eight. What becomes slower, and why?
# - A step size ten times larger. Which measure shows first that something is wrong?
# - A length cost of 0.1. What is a worked answer to eight digits then worth, compared with a direct one?

# %% id="live-bench" role="free"
widgets.live_bench(start, policy_gradient_step, ESTIMATORS, summarize, kl_per_response, curves)

# %% [markdown] id="questions"
# ## Questions
#
# **1.** A batch has 16 easy problems that are always solved and 16 hard ones that are solved one time in eight. How
# do the advantages of REINFORCE and RLOO differ on the easy ones? Which has the larger variance?

# %% [markdown] id="q1-answer" solved=true
# <details><summary>Answer</summary>
#
# The batch mean is about $(1 + 1/8)/2 = 0.56$. REINFORCE gives every response to an easy problem the advantage 0.44,
# RLOO gives 0. In expectation both push easy problems by 0, since the score's mean is 0, but REINFORCE does so as the
# mean of many nonzero terms: each batch pushes up whatever was sampled on the easy problems. That is variance without
# information. It matters more, the more the problems differ in difficulty.
#
# </details>

# %% [markdown] id="question-2"
# **2.** A colleague trains with GRPO, sees a printed loss of 0.0003 for a thousand steps, and raises the learning
# rate tenfold. What would you have looked at first?

# %% [markdown] id="q2-answer" solved=true
# <details><summary>Answer</summary>
#
# The mean reward, the KL divergence from the start, the norm of the gradient, and the share of groups whose rewards
# are not all equal. The loss is a difference of averages and near 0 whether or not anything is learned. A reward that
# stays flat *and* a KL that stays at 0 mean that nothing trains; if all groups have equal rewards, the gradient is
# exactly 0 and the cause is the task, not the learning rate.
#
# </details>

# %% [markdown] id="question-3"
# **3.** With the length cost of 0.02, what does a direct and what does a worked answer earn on average for two digits
# and for eight? Take a worked answer to be right 0.97 of the time, a direct one 1.00 of the time for two digits and
# 0.2 for eight. What should an ideal policy do, and does your policy with cost do it?

# %% [markdown] id="q3-answer" solved=true
# <details><summary>Answer</summary>
#
# Two digits: direct $1.00 - 0.06 = 0.94$, worked $0.97 - 0.12 = 0.85$. Eight digits: direct $0.2 - 0.06 = 0.14$,
# worked $0.97 - 0.24 = 0.73$. The ideal policy answers two digits directly and works out the rest. The trained one
# works out everything; its writing rate in the table is as high as without the cost. In the first steps all problems
# are pushed towards `:` together, since long lists are the majority, and soon no direct answer to two digits is
# sampled any more from which the policy could learn better. Part 3 looks at this.
#
# </details>

# %% [markdown] id="question-4"
# **4.** Suppose the verifier accepted any response that contains the right digit *anywhere*. What would the policy
# learn, and which of the four measures (accuracy by the true verifier, accuracy by this one, writing rate, length)
# would warn you?

# %% [markdown] id="q4-answer" solved=true
# <details><summary>Answer</summary>
#
# It would be paid for any response in which the digit occurs, for example a long one that lists many digits. The weak
# verifier's accuracy goes up, so it cannot warn; the true verifier's accuracy falls behind it. Length would move
# towards 12, and the writing rate may rise too, because `:` is how the model starts to write digits. Only a measure
# that the training does not optimize can show the gap.
#
# </details>

# %% [markdown] id="next"
# ## What comes next
#
# Part 3 evaluates the policies by the number of digits, looks at what the length cost did and did not do, and asks
# with pass@k whether reinforcement learning taught the model something new or made it use what it could already do.
# Your policies are kept in the results folder; part 3 loads them from there.
