# %% [markdown] id="title"
# # Lab 16: going further
#
# Parts 1 to 3 gave one answer to one question: with a verifier for the answer, a model that works rarely learns to
# work always. Five questions follow from it.
#
# 1. What if worked answers are rarer still, and do the estimators then differ?
# 2. Can a length cost bring direct answers back where they suffice, and only there?
# 3. Does a penalty on the KL divergence keep the model from changing its form, and what does it cost?
# 4. What is learned from a verifier that can be satisfied without solving the problem?
# 5. Do right and wrong responses drift in length, and does it depend on the estimator?
#
# Each is an experiment: a list of runs, a table, and a picture. A run of 200 steps takes 10 to 20 seconds on one core, so
# an experiment is a matter of a minute. Beside your runs stand the course's, eight seeds for each setting. In the last
# cell of each experiment you change a setting and see where your run falls.
#
# The notebook needs your functions of part 2 and takes them from `part2_reinforcement_learning.ipynb`, which must stand in
# the same folder. The six exercises take about 60 minutes.

# %% id="setup"
from dataclasses import replace

import torch
from torch import Tensor

from labutils import rollout
from labutils.checks import check
from labutils.earlier import functions_of
from labutils.experiment_plots import by_digits, curves, frontier
from labutils.experiments import SHIPPED_STARTS, Exercises, RunSettings
from labutils.going_further import course_rows, groups, run_experiment, table
from labutils.lab import shipped_model
from labutils.model import Transformer
from labutils.task import ARROW, COLON, END, Problems, encode_prompts, encode_responses, response_mask
from labutils.training import Estimator, Regularization, evaluation_set
from labutils.verifier import verify

part_2 = functions_of(
    "part2_reinforcement_learning.ipynb",
    ["rewards_with_cost", "reinforce_advantages", "rloo_advantages", "grpo_advantages", "dr_grpo_advantages",
     "sum_weights", "mean_weights", "constant_weights", "policy_loss", "kl_per_response"],
)
rewards_with_cost, policy_loss, kl_per_response = part_2.rewards_with_cost, part_2.policy_loss, part_2.kl_per_response
ESTIMATORS = {
    "reinforce": Estimator(part_2.reinforce_advantages, part_2.sum_weights),
    "rloo": Estimator(part_2.rloo_advantages, part_2.sum_weights),
    "grpo": Estimator(part_2.grpo_advantages, part_2.mean_weights),
    "dr_grpo": Estimator(part_2.dr_grpo_advantages, part_2.constant_weights),
}

# %% [markdown] id="step-text"
# ## A training step with additions
#
# Part 2's step samples groups, verifies, computes advantages and follows the gradient of one loss. The experiments need
# four additions to it, and `labutils.training.Regularization` holds them for a run:
#
# | field | what it does |
# |---|---|
# | `verifier` | takes the place of `verify`; same arguments, same result |
# | `entropy` | this times the mean entropy is subtracted from the loss: a bonus for undecided policies |
# | `reward_penalty` | this times each response's log-ratio to the `reference` is subtracted from its reward |
# | `loss_penalty` | this times `divergence(policy_log_probs, reference_log_probs, mask)` is added to the loss |
#
# ### An entropy bonus
#
# A policy that has become certain samples nothing new and learns nothing new. The bonus pays for staying undecided. The
# entropy of the distribution $p$ of the next token is
#
# $$ H(p) = -\sum_v p_v \log p_v \quad \text{nats,} $$
#
# between 0, for a certain token, and $\ln 15 \approx 2.71$, for a uniform one. It is taken at every token of the
# responses, up to and including `<end>`, and averaged over all of them in the batch. It is a function of the whole
# distribution, so the logits are needed, not just the log-probability of the token that was sampled.
#
# **Exercise `entropy_bonus`** · 8 minutes · difficulty ●●○○○ · the mean entropy of the next token
#
# <details><summary>Hint 1</summary>
#
# `logits.log_softmax(-1)` gives $\log p$ for all 15 tokens. Padding has logits too; the mask says which places count.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `-(log_probs.exp() * log_probs).sum(-1)` is the entropy at each place, `(B, R)`. Multiply by the mask, sum, and divide
# by the number of places that count. Each is a sum over the whole batch.
#
# </details>

# %% id="entropy-bonus" exercise="entropy_bonus"

# %% [markdown] id="k1-text"
# ### A penalty in the reward
#
# The oldest form of KL regularization (Ziegler et al., 2019) lowers each response's reward by its own log-ratio,
#
# $$ r' = r - \beta \sum_t \big( \log \pi(y_t) - \log \pi_\text{ref}(y_t) \big) , $$
#
# which is $k_1$ of part 2. On average the penalty is $\beta \operatorname{KL}(\pi \| \pi_\text{ref})$. It works as a reward
# does: a number without a gradient, which enters the advantages and through them pushes the policy.
#
# **Exercise `k1_penalized_rewards`** · 5 minutes · difficulty ●●○○○ · rewards less the penalty
#
# <details><summary>Hint 1</summary>
#
# The difference of the two log-probs is `(B, R)`. Padding must not count, and the sum over tokens is one number for a
# response.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `((policy_log_probs - reference_log_probs) * mask).sum(1)`, detached, times `strength`, subtracted.
#
# </details>

# %% id="k1-penalized-rewards" exercise="k1_penalized_rewards"

# %% [markdown] id="k3-text"
# ### A penalty in the loss
#
# GRPO (Shao et al., 2024) adds an estimate of the divergence to the loss instead: $k_3 = e^{-d} - 1 + d$ with the
# log-ratio $d = \log \pi(y_t) - \log \pi_\text{ref}(y_t)$ of a token. Here it is summed over the tokens of a response and
# averaged over responses, so that its unit is nats per response, as in part 2.
#
# Keep in mind what part 2 said about it. As a value $k_3$ is unbiased and never negative; its gradient on the policy's own
# samples is not the gradient of $\operatorname{KL}(\pi\|\pi_\text{ref})$. It is, on average, that of the other divergence,
# $\operatorname{KL}(\pi_\text{ref}\|\pi)$ of each token.
#
# **Exercise `k3_loss`** · 8 minutes · difficulty ●●○○○ · the estimator k3, per response
#
# <details><summary>Hint 1</summary>
#
# Which of the two log-probs carries a gradient? The other is a constant. Mind the sign in the exponent: at $d = 0$ both
# the value and its derivative are 0.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `torch.exp(-log_ratio) - 1 + log_ratio` at every token; times the mask; `.sum(1).mean()`.
#
# </details>

# %% id="k3-loss" exercise="k3_loss"

# %% [markdown] id="regularized-text"
# ### The step
#
# Start from your `policy_gradient_step` of part 2 and put the four additions in. Three things need care.
#
# - The entropy needs the logits: `rollout.response_logits(policy, prompts, responses)` gives `(B, R, 15)`, with a gradient.
#   The log-probs of the sampled tokens follow from them, so score the policy once. The reference is scored by
#   `rollout.response_log_probs` and needs no gradient.
# - The penalty in the reward comes before the advantages, and the baseline then takes it into account.
# - The `reward` that the step reports is the one before the penalty. Otherwise runs of different strengths could not be
#   compared.
#
# A response whose advantage is 0 has no part in the policy-gradient loss, but it has one in the penalty and in the bonus.
# If your step of part 2 leaves such responses out, this one must not.
#
# **Exercise `regularized_step`** · 20 minutes · difficulty ●●●●○ · part 2's step with the four additions
#
# <details><summary>Hint 1</summary>
#
# In order: prompts, responses, mask; the repeated prompts; logits and the log-probs from them; the reference's log-probs
# under `torch.no_grad()`; verdicts by `regularization.verifier`; rewards; penalized rewards; advantages; loss. With all
# strengths 0 and the verifier `verify` the step must do what part 2's does: the check compares the two.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `logits.log_softmax(-1).gather(-1, responses[:, :, None])[:, :, 0] * mask` gives the log-probs. `k1_penalized_rewards`
# wants rewards of shape `(B,)`, the advantages want `(N, G)`. Then
# `loss = policy_loss(...) + loss_penalty * divergence(...) - entropy * entropy_bonus(logits, mask)`.
#
# </details>

# %% id="regularized-step" exercise="regularized_step"

# %% id="exercises"
exercises = Exercises(
    step=regularized_step,
    estimators=ESTIMATORS,
    verifiers={"answer": verify},
    divergences={"k1": kl_per_response, "k3": k3_loss},
    kl_per_response=kl_per_response,
)

# %% [markdown] id="how-text"
# ### How an experiment runs
#
# `RunSettings` holds all that a run depends on, and refuses what makes no sense. The cell below prints what there is to
# change. `run_experiment` computes the runs on all cores, one thread each, and keeps each result in
# `results/experiments.sqlite` as its run ends: called again, it has the result at once, unless a setting or one of your
# functions has changed. On one machine the same settings give the same numbers.
#
# A run is evaluated on 140 problems, 20 of each number of digits, with 8 responses to each at temperature 1, whatever the
# temperature in training. The *writing rate* is exact: the probability of starting with `:`, averaged over the problems.
#
# The tables show your run, which has seed 0, the mean of the course's eight runs, and a band. The bands come from the
# spread of the eight runs and are wide, since eight are few. Left out one seed at a time, << alarms() >> tables fell
# outside the bands of the others. The ranges in the text run from the lowest to the highest of the eight; a new run
# falls outside such a range with probability 2/9.

# %% id="run-settings" role="free"
RunSettings()

# %% [markdown] id="rare-text"
# ## 1. Rarer demonstrations
#
# The pretrained model works one answer in ten. What if the data had held one in a hundred, or one in a thousand? Two
# things change, and they must be told apart.
#
# - **Rarity.** Worked answers are sampled less often, so fewer groups hold one.
# - **Skill.** Worked answers were also learned from fewer examples, so they are right less often.
#
# So there are two kinds of starting models. Those called `onward` are the lab's model trained on for 1,000 steps with
# rarer worked answers: they should work as well as before, and as seldom as the new data. Those called `scratch` saw the
# rarer data from their first step. The next cell asks each model, without sampling, how probable three things are: that it
# starts with `:`; that the rest is right once it has done so; and that a direct answer is right.

# %% id="starting-models"
problems = evaluation_set(50)
prompts, worked = encode_prompts(problems), torch.ones(len(problems)).bool()
print("starting model    starts with :   worked right, 2 / 4 / 8 digits   direct right, 2 / 4 / 8 digits")
for pretraining, rate in (("scratch", 0.1), ("onward", 0.01), ("onward", 0.001), ("scratch", 0.01), ("scratch", 0.001)):
    model = shipped_model(SHIPPED_STARTS[pretraining, rate])
    with torch.no_grad():
        log_probs = rollout.response_log_probs(model, prompts, encode_responses(problems, worked))
        direct = rollout.response_log_probs(model, prompts, encode_responses(problems, ~worked))
    columns = log_probs[:, 0].exp(), log_probs[:, 1:].sum(1).exp(), direct[:, 1:].sum(1).exp()
    shares = [[column[problems.lengths == n].mean().item() for n in (2, 4, 8)] for column in columns]
    texts = [" / ".join(f"{share:.2f}" for share in row) for row in shares[1:]]
    print(f"{pretraining:<8} {rate:6.1%} {columns[0].mean():15.4f}   {texts[0]:>32}   {texts[1]:>32}")

# %% [markdown] id="rare-question"
# Before you run the cell: by how much will the take-off be delayed, when worked answers are ten times rarer? Which
# estimator will suffer most?

# %% id="rare-runs"
runs = [
    RunSettings(pretraining="onward", worked_rate=0.01, estimator=name, evaluate_every=10)
    for name in ("reinforce", "rloo", "grpo", "dr_grpo")
]

# %% id="rare" table="rare"
rare = run_experiment(runs, exercises)
table("rare", rare)

# %% id="rare-picture"
where = {"pretraining": "onward", "worked_rate": 0.01}
curves(groups("rare", course_rows("rare"), **where), ("writes_states", "silent", "accuracy"), groups("rare", rare, **where))

# %% [markdown] id="rare-reading"
# Lines are means of the course's eight seeds, bands reach from the lowest to the highest, dots are your runs. The panel in
# the middle shows the share of groups in which all eight rewards are equal. Such a group has an advantage of 0 under RLOO,
# GRPO and Dr. GRPO and teaches nothing; only REINFORCE, whose baseline is the mean of the batch, still moves on it.
#
# The same with one worked answer in a thousand, from the course's runs; of their 2,000 steps the first 400:

# %% id="rarer-picture"
where = {"pretraining": "onward", "worked_rate": 0.001}
picture = curves(groups("rare", course_rows("rare"), **where), ("writes_states", "silent", "accuracy"))
for axis in picture.figure.axes:
    axis.set_xlim(0, 400)
picture

# %% [markdown] id="scratch-text"
# And with one in a hundred from the first step of pretraining, so that the model works seldom and badly:

# %% id="scratch-picture"
where = {"pretraining": "scratch", "worked_rate": 0.01}
curves(groups("rare", course_rows("rare"), **where), ("writes_states", "silent", "accuracy"))

# %% [markdown] id="rare-turn"
# **Your turn.** Change a setting: another estimator, `group_size=16`, more steps, another rate.

# %% id="rare-yours" role="free"
mine = run_experiment(
    [RunSettings(pretraining="onward", worked_rate=0.01, estimator="rloo", group_size=16, evaluate_every=10)], exercises
)
where = {"pretraining": "onward", "worked_rate": 0.01}
curves(groups("rare", course_rows("rare"), **where), ("writes_states", "silent", "accuracy"), {"mine": mine})

# %% [markdown] id="rare-answer" solved=true
# <details><summary>Answer</summary>
#
# Steps until the writing rate passes one half, from the lowest to the highest of eight seeds:
#
# | share worked | REINFORCE | RLOO | GRPO | Dr. GRPO | GRPO later than Dr. GRPO by |
# |---|---|---|---|---|---|
# | 10 % | << seeds("rare", "take_off", pretraining="onward", worked_rate=0.1, estimator="reinforce") >> | << seeds("rare", "take_off", pretraining="onward", worked_rate=0.1, estimator="rloo") >> | << seeds("rare", "take_off", pretraining="onward", worked_rate=0.1, estimator="grpo") >> | << seeds("rare", "take_off", pretraining="onward", worked_rate=0.1, estimator="dr_grpo") >> | << gap("rare", "take_off", {"pretraining": "onward", "worked_rate": 0.1, "estimator": "grpo"}, {"pretraining": "onward", "worked_rate": 0.1, "estimator": "dr_grpo"}) >> |
# | 1 % | << seeds("rare", "take_off", pretraining="onward", worked_rate=0.01, estimator="reinforce") >> | << seeds("rare", "take_off", pretraining="onward", worked_rate=0.01, estimator="rloo") >> | << seeds("rare", "take_off", pretraining="onward", worked_rate=0.01, estimator="grpo") >> | << seeds("rare", "take_off", pretraining="onward", worked_rate=0.01, estimator="dr_grpo") >> | << gap("rare", "take_off", {"pretraining": "onward", "worked_rate": 0.01, "estimator": "grpo"}, {"pretraining": "onward", "worked_rate": 0.01, "estimator": "dr_grpo"}) >> |
# | 0.1 % | << seeds("rare", "take_off", pretraining="onward", worked_rate=0.001, estimator="reinforce") >> | << seeds("rare", "take_off", pretraining="onward", worked_rate=0.001, estimator="rloo") >> | << seeds("rare", "take_off", pretraining="onward", worked_rate=0.001, estimator="grpo") >> | << seeds("rare", "take_off", pretraining="onward", worked_rate=0.001, estimator="dr_grpo") >> | << gap("rare", "take_off", {"pretraining": "onward", "worked_rate": 0.001, "estimator": "grpo"}, {"pretraining": "onward", "worked_rate": 0.001, "estimator": "dr_grpo"}) >> |
#
# The last column is the mean difference over eight seeds, with its standard error.
#
# **Rarity alone delays, and not by much.** Ten times rarer costs some 25 steps, a hundred times rarer some 60, and every run
# takes off. Early on the rate grows by about the same factor in every step, so that the delay follows the logarithm of the
# rate. With 256 responses in a batch even 0.1 % is one worked response in four steps, and when it comes it is right,
# mostly in a group of wrong ones, and has a large advantage.
#
# **The estimators begin to differ.** GRPO takes off after each of the others in every seed, and its delay grows with rarity.
# Its token weights are the reason: a worked response is up to four times as long as a direct one, and each of its tokens,
# the first one too, is weighted by one over its length. REINFORCE, RLOO and Dr. GRPO differ by less than the seeds do.
#
# **Groups of equal rewards** are a third of all at the start, about as many wrong throughout as right throughout. Then they
# become fewer, while both forms are in use, and in the end most groups are right throughout. They do not separate the
# estimators at the take-off.
#
# **Skill decides.** From `scratch` at 1 % the model writes as often as the `onward` one, and wrongly. The writing rate never
# passes 0.02, and after 400 steps it is below 0.002 in every run of every estimator: reinforcement learning has unlearned writing, and rightly so. A reward finds what is rare. It
# does not find what is not there.
#
# </details>

# %% [markdown] id="habit-text"
# ## 2. Breaking the habit
#
# With a cost of 0.02 per token the trained model still works every answer, although direct answers to two digits are just
# as right and half as long. Count the rewards: to two digits a worked answer has 6 tokens and a direct one 3, so the cost
# pays 0.06 for the direct one. Why does the policy not take it?
#
# Three settings are varied: a higher cost, a bonus for entropy, and a higher temperature during training, at which
# direct answers are sampled more often. Before you run the cell: which of the five runs will answer two digits directly
# and still work eight?

# %% id="habit-runs"
runs = [
    RunSettings(estimator="rloo", length_cost=0.02),
    RunSettings(estimator="rloo", length_cost=0.07),
    RunSettings(estimator="rloo", length_cost=0.07, entropy_bonus=0.2),
    RunSettings(estimator="rloo", length_cost=0.07, temperature=1.5),
    RunSettings(estimator="rloo", length_cost=0.1),
]

# %% id="habit" table="habit"
habit = run_experiment(runs, exercises)
table("habit", habit)

# %% id="habit-picture"
labels = groups("habit", habit)
by_digits({name: rows for name, rows in groups("habit", course_rows("habit")).items() if name in labels}, labels)

# %% [markdown] id="habit-reading"
# Lines are means of the course's eight seeds, bars reach from the lowest to the highest, dots are your runs. A policy
# that has kept what is useful and dropped the rest would write no states at two digits and all of them from three on,
# where the pretrained model's direct answers are often wrong.
#
# **Your turn.** Find a setting that answers two digits directly in more than nine of ten cases and loses less than
# 0.05 of accuracy on eight.

# %% id="habit-yours" role="free"
mine = run_experiment([RunSettings(estimator="rloo", length_cost=0.08, temperature=1.5)], exercises)
before = groups("habit", course_rows("habit"))["length_cost 0.02, entropy_bonus 0, temperature 1"]
by_digits({"length_cost 0.02": before}, {"mine": mine})

# %% [markdown] id="habit-answer" solved=true
# <details><summary>Answer</summary>
#
# The reward of a right worked answer to $n$ digits is $1 - (n + 4)\,c$ with the cost $c$; that of a direct answer is
# $p - 3c$, where $p$ is how often it is right: 1 for two digits, about 0.5 for three, about 0.25 beyond.
#
# | digits | $c = 0.02$ | $c = 0.07$ | $c = 0.1$ |
# |---|---|---|---|
# | 2 | 0.88 / **0.94** | 0.58 / **0.79** | 0.40 / **0.70** |
# | 4 | **0.84** / 0.19 | **0.44** / 0.04 | **0.20** / -0.05 |
# | 8 | **0.76** / 0.19 | **0.16** / 0.04 | -0.20 / **-0.05** |
#
# Each pair is worked / direct, and the better one is bold. At every cost two digits should be answered directly. At 0.02
# the policy does not, in any seed: it writes the states of two digits in << seeds("habit", "writes_states_2", length_cost=0.02) >>
# of the responses. The decision to write was learned for all lengths within twenty steps, from the long lists, where it pays
# most. After that a direct answer to two digits is sampled once in 200 to 300 responses, and what is not sampled cannot
# be found better.
#
# - **Cost alone.** At 0.07 the writing rate on two digits is still << seeds("habit", "writes_states_2", length_cost=0.07) >>. At
#   0.1 it is << seeds("habit", "writes_states_2", length_cost=0.1) >>, but that of eight digits falls to
#   << seeds("habit", "writes_states_8", length_cost=0.1) >> as well, and accuracy to << seeds("habit", "accuracy", length_cost=0.1) >>.
#   The last line of the table says why: with twelve tokens to pay for, a guess earns more than a right answer. The policy
#   did as it was told.
# - **Entropy bonus.** At a cost of 0.07, and 0.2 per nat, it changes little:
#   << seeds("habit", "writes_states_2", length_cost=0.07, entropy_bonus=0.2) >> on two digits. The bonus pays for undecided tokens
#   anywhere, and there are many besides the first.
# - **Temperature.** At a cost of 0.07 and a temperature of 1.5 in training, two digits are worked in only
#   << seeds("habit", "writes_states_2", length_cost=0.07, temperature=1.5) >> of the responses, three in
#   << seeds("habit", "writes_states_3", length_cost=0.07, temperature=1.5) >>, and four or more in
#   << seeds("habit", "writes_states_4", length_cost=0.07, temperature=1.5) >>. Accuracy is
#   << seeds("habit", "accuracy", length_cost=0.07, temperature=1.5) >>, against << seeds("habit", "accuracy", length_cost=0.07) >> at
#   temperature 1: nothing that eight seeds could show is lost. A token with a probability of 0.004 has about 0.025 at temperature
#   1.5, so direct answers are sampled six times as often, and found better where they are.
# - **Together.** The temperature with the bonus gives << seeds("habit", "writes_states_2", length_cost=0.07, entropy_bonus=0.2, temperature=1.5) >>
#   on two digits and << seeds("habit", "writes_states_8", length_cost=0.07, entropy_bonus=0.2, temperature=1.5) >> on eight. With a cost of
#   0.02 neither temperature nor bonus helps: the incentive of 0.06 is too small for 200 steps.
#
# The habit is broken by an incentive *and* samples of the alternative. Either alone is not enough. The window is narrow: at a
# cost of 0.08 and the same temperature the run in the last cell, a single seed, stops working altogether.
#
# </details>

# %% [markdown] id="kl-text"
# ## 3. KL regularization
#
# A penalty on the divergence from the pretrained model is meant to keep what the model knew. Here the whole gain comes
# from a change of form, and the penalty does not know that the change is good. Three places for it are compared:
# $k_1$ in the reward, $k_3$ in the loss, and $k_1$ in the loss, which part 2 says does nothing.

# %% id="kl-runs"
runs = [
    RunSettings(estimator="rloo"),
    RunSettings(estimator="rloo", kl="k1-reward", kl_strength=0.1),
    RunSettings(estimator="rloo", kl="k1-reward", kl_strength=0.3),
    RunSettings(estimator="rloo", kl="k3-loss", kl_strength=0.1),
    RunSettings(estimator="rloo", kl="k3-loss", kl_strength=0.3),
    RunSettings(estimator="rloo", kl="k1-loss", kl_strength=0.3),
]

# %% id="kl" table="kl"
kl = run_experiment(runs, exercises)
table("kl", kl)

# %% id="kl-picture"
frontier(groups("kl", course_rows("kl")), groups("kl", kl))

# %% [markdown] id="kl-reading"
# Each open mark is one of the course's runs, each filled mark one of yours. The best policies for a given divergence form
# the upper left edge, the frontier.
#
# A back of an envelope: a policy that always starts with `:` where the reference does so with probability 0.1 has moved by
# at least $\ln 10 \approx 2.3$ nats per response. So a strength of $\beta$ makes the switch cost $2.3\,\beta$ of reward.
# What does it earn? Where do the two balance?

# %% id="kl-yours" role="free"
mine = run_experiment([RunSettings(estimator="rloo", kl="k1-reward", kl_strength=0.2)], exercises)
frontier(groups("kl", course_rows("kl")), {"mine": mine})

# %% [markdown] id="kl-answer" solved=true
# <details><summary>Answer</summary>
#
# Take one number of digits beyond three, and let $w$ be the probability of writing the states, $w_0 = 0.1$ in the reference.
# A worked answer is right, a direct one with probability 0.25, and neither gets better. Then the penalty can act on $w$
# alone, and each method has a balance that can be computed:
#
# - $k_1$ in the reward maximizes $0.75\,w - \beta \operatorname{KL}(w \| w_0)$, so
#   $\operatorname{logit} w = \operatorname{logit} w_0 + 0.75 / \beta$.
# - $k_3$ in the loss has the gradient of the other divergence, $\operatorname{KL}(w_0 \| w)$, so
#   $0.75 = \beta \big( \frac{1 - w_0}{1 - w} - \frac{w_0}{w} \big)$.
#
# | strength $\beta$ | $k_1$ in the reward: computed | eight seeds, 6 digits | $k_3$ in the loss: computed | eight seeds, 6 digits |
# |---|---|---|---|---|
# | 0.1 | 0.99 | << seeds("kl", "writes_states_6", kl="k1-reward", kl_strength=0.1) >> | 0.88 | << seeds("kl", "writes_states_6", kl="k3-loss", kl_strength=0.1) >> |
# | 0.3 | 0.57 | << seeds("kl", "writes_states_6", kl="k1-reward", kl_strength=0.3) >> | 0.66 | << seeds("kl", "writes_states_6", kl="k3-loss", kl_strength=0.3) >> |
# | 1 | 0.19 | << seeds("kl", "writes_states_6", kl="k1-reward", kl_strength=1.0) >> | 0.23 | << seeds("kl", "writes_states_6", kl="k3-loss", kl_strength=1.0) >> |
#
# A strength of 1 prevents the switch in either place, and the gain with it: accuracy is
# << seeds("kl", "accuracy", kl="k1-reward", kl_strength=1.0) >> and << seeds("kl", "accuracy", kl="k3-loss", kl_strength=1.0) >>, where the pretrained model has about 0.44. At 0.3 the switch stops
# half-way, with an accuracy of << seeds("kl", "accuracy", kl="k1-reward", kl_strength=0.3) >> and << seeds("kl", "accuracy", kl="k3-loss", kl_strength=0.3) >>. At 0.1 accuracy is
# << seeds("kl", "accuracy", kl="k1-reward", kl_strength=0.1) >> with $k_1$ in the reward, << seeds("kl", "accuracy", kl="k3-loss", kl_strength=0.1) >> with $k_3$ in the loss, and
# << seeds("kl", "accuracy", kl="none", kl_strength=0.0) >> without a penalty. $k_3$ leaves a residue of direct answers at any strength, because the divergence
# whose gradient it has is infinite where the policy gives up what the reference does.
#
# A penalty is selective. On two digits, where nothing is gained by writing, the policy
# stays near the reference. At 0.1 it writes << seeds("kl", "writes_states_2", kl="k1-reward", kl_strength=0.1) >> and << seeds("kl", "writes_states_2", kl="k3-loss", kl_strength=0.1) >> of them.
#
# $k_1$ in the loss, at 0.3 and at 1, restrains nothing: the writing rate is << seeds("kl", "writes_states", kl="k1-loss", kl_strength=0.3) >> and
# << seeds("kl", "writes_states", kl="k1-loss", kl_strength=1.0) >>, the divergence << seeds("kl", "kl", kl="k1-loss", kl_strength=0.3) >> and << seeds("kl", "kl", kl="k1-loss", kl_strength=1.0) >> nats, that of runs without a
# penalty << seeds("kl", "kl", kl="none", kl_strength=0.0) >>. Its expected gradient is 0. Its noise is not: at 1 the accuracy is
# << seeds("kl", "accuracy", kl="k1-loss", kl_strength=1.0) >>, below that of every run without it.
#
# </details>

# %% [markdown] id="hacking-text"
# ## 4. Reward hacking
#
# A verifier says what is rewarded, and that need not be what was meant. Two weaker ones:
#
# - **form**: the response reads `: d ... d > d <end>`, with at least one state. Someone wanted the model to show its work
#   and checks that it does.
# - **anywhere**: the right digit stands somewhere in the response, and the response ends. Someone wanted to be tolerant of
#   the wording.
#
# Before you write them: what is the shortest response that each always accepts, without any knowledge of the problem?
#
# **Exercise `verify_form`** · 12 minutes · difficulty ●●●○○ · accepts the form alone
#
# <details><summary>Hint 1</summary>
#
# What follows the first `END` does not count, and a response without one is not accepted. Then there is one colon, one
# arrow, and digits. The first place is the colon's; where must the arrow be?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# A loop over `responses.tolist()` reads best. With `tokens` up to but without `END`: at least four of them, `tokens[0]` is
# `COLON`, `tokens[-2]` is `ARROW`, and all others are at most 9.
#
# </details>

# %% id="verify-form" exercise="verify_form"

# %% [markdown] id="anywhere-text"
# **Exercise `verify_anywhere`** · 5 minutes · difficulty ●●○○○ · accepts the answer's digit anywhere
#
# <details><summary>Hint 1</summary>
#
# `problems.answers` is `(B,)`; compare it with every token of its row. A digit after the first `END` does not count.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `(responses == problems.answers[:, None]) & response_mask(responses)` has a true entry in each row that holds the digit.
# A response that ends has an `END` in it.
#
# </details>

# %% id="verify-anywhere" exercise="verify_anywhere"

# %% id="hacking-runs"
runs = [
    RunSettings(estimator="rloo", verifier="form"),
    RunSettings(estimator="rloo", verifier="anywhere"),
    RunSettings(estimator="rloo", verifier="anywhere", length_cost=0.02),
]

# %% id="hacking" table="hacking"
verifiers = {"answer": verify, "form": verify_form, "anywhere": verify_anywhere}
exercises = replace(exercises, verifiers=verifiers)
hacking = run_experiment(runs, exercises)
table("hacking", hacking)

# %% id="hacking-picture"
labels = groups("hacking", hacking)
curves(
    {name: rows for name, rows in groups("hacking", course_rows("hacking")).items() if name in labels},
    ("reward", "accuracy", "length"), labels,
)  # fmt: skip

# %% [markdown] id="hacking-reading"
# The panel on the left shows what the trainer sees, the one in the middle what it would see if it had the true verifier.
# Read what the policies write:

# %% id="hacking-responses"
for row in hacking:
    print(f"{row.settings.verifier}, length cost {row.settings.length_cost:g}")
    for text, right, accepted in row.outcome.samples[::2]:
        print(f"    {text:<44} {'accepted' if accepted else 'rejected'}, {'right' if right else 'wrong'}")

# %% id="hacking-yours" role="free"
mine = run_experiment([RunSettings(estimator="rloo", verifier="anywhere", kl="k1-reward", kl_strength=0.1)], exercises)
before = groups("hacking", course_rows("hacking"))["verifier anywhere, length_cost 0"]
curves({"anywhere": before}, ("reward", "accuracy", "length"), {"mine": mine})

# %% [markdown] id="hacking-answer" solved=true
# <details><summary>Answer</summary>
#
# **Form.** The form is learned at once, and nothing else: << seeds("hacking", "reward", verifier="form") >> are accepted and
# << seeds("hacking", "accuracy", verifier="form") >> are right, about as many as a guess among ten digits. The states had
# meaning before and have lost it. No gradient held it: where every response earns 1 all advantages are 0, and what the last
# few rejected responses teach moves the rest about. The KL divergence is << seeds("hacking", "kl", verifier="form") >> nats, ten
# times that of an honest run.
#
# **Anywhere.** The states contain the answer, so writing them is rewarded as before, and
# << seeds("hacking", "reward", verifier="anywhere") >> are accepted. Whether the policy then also ends with `> d <end>` makes no
# difference to its reward, and so it is left to chance: in the eight seeds the true accuracy is anything from
# << seeds("hacking", "accuracy", verifier="anywhere") >>. The curve on the left looks alike in all of them.
#
# **Anywhere, with a cost.** Now the two tokens `> d` cost something and earn nothing. They are dropped in every seed:
# << seeds("hacking", "reward", verifier="anywhere", length_cost=0.02) >> accepted,
# << seeds("hacking", "accuracy", verifier="anywhere", length_cost=0.02) >> right, << seeds("hacking", "length", verifier="anywhere", length_cost=0.02) >>
# tokens. The policy still computes every state, as you can read above; it no longer says which is the answer. Two
# rewards that are harmless alone have a joint optimum that nobody wanted.
#
# A penalty for leaving the pretrained model helps where the reward is silent: in the last cell's run, a single seed, the
# accuracy stays at 0.9 and above, for the penalty prefers the form that the model came with.
#
# The shortest response that "anywhere" always accepts lists all ten digits: eleven tokens, no knowledge. No seed found it,
# for it was never sampled. Reinforcement learning exploits what a policy already does now and then.
#
# </details>

# %% [markdown] id="length-text"
# ## 5. Length bias
#
# GRPO divides each response's loss by its own length. A wrong response then pays less for each token the longer it is, and
# a right one earns less: over many steps wrong responses should grow and right ones shrink (Liu et al., 2025). Dr. GRPO
# divides by a constant. In this lab's task the form leaves no room: a worked answer to six digits has ten tokens.
#
# So the form is loosened. The model called `repeating` was pretrained on worked answers in which each state may be written
# several times, 1.33 times on average, within a cap of 24 tokens. Now a response can be longer or shorter and equally right.

# %% id="length-runs"
runs = [
    RunSettings(pretraining="repeating", worked_rate=0.5, estimator=name, steps=400) for name in ("grpo", "dr_grpo")
]

# %% id="length" table="length"
length = run_experiment(runs, exercises)
table("length", length)

# %% id="length-picture"
curves(groups("length", course_rows("length")), ("length_right", "length_wrong", "accuracy"), groups("length", length))

# %% [markdown] id="length-reading"
# Do the two estimators part? Look at the bands before you look at the lines. How many wrong responses is the panel in the
# middle made of, late in training?

# %% id="length-yours" role="free"
mine = run_experiment(
    [RunSettings(pretraining="repeating", worked_rate=0.5, estimator="grpo", steps=400, group_size=16)], exercises
)
curves(groups("length", course_rows("length")), ("length_right", "length_wrong", "accuracy"), {"mine": mine})

# %% [markdown] id="length-answer" solved=true
# <details><summary>Answer</summary>
#
# At step 25 both kinds of responses are longer under GRPO, the right ones by
# << gap("length", "length_right", {"estimator": "grpo"}, {"estimator": "dr_grpo"}, 25) >> tokens and the wrong ones by
# << gap("length", "length_wrong", {"estimator": "grpo"}, {"estimator": "dr_grpo"}, 25) >> (mean difference over eight seeds, with its
# standard error). That is not the predicted drift, in which right ones become shorter; GRPO is a few steps behind, as in part
# 2. After 400 steps the differences are << gap("length", "length_right", {"estimator": "grpo"}, {"estimator": "dr_grpo"}) >> and
# << gap("length", "length_wrong", {"estimator": "grpo"}, {"estimator": "dr_grpo"}) >>: none that these seeds can show.
#
# Under both estimators all responses become shorter, to << seeds("length", "length_right", estimator="dr_grpo") >> tokens for right
# ones under Dr. GRPO, where nine on average is the least that writes every state once. Nobody asked for that either: there
# is no cost for length. Each repeated state is one more chance to lose one's place.
#
# So this experiment does not reproduce the drift. Two reasons are likely. Late in training there is little to weigh: some
# 3 % of the responses are wrong, and in most groups all rewards are equal. And the bias is slow, a factor on gradients that
# exist anyway, where published runs have thousands of tokens per response and a cap that is reached. What is exact is part 2's
# enumeration: it shows the difference of the expected gradients for any policy you like.
#
# </details>

# %% [markdown] id="closing"
# ## Larger grids
#
# `lab16 sweep` runs every combination of several values of every setting, with many seeds, from the command line, and
# `lab16 sweep --report` prints and draws what it has found. The course's runs in this notebook were made with it. The
# notebook `find_the_bug` asks another kind of question: which of ten functions that look right are wrong, and why.
