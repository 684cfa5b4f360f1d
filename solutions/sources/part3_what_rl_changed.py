# %% [markdown] id="title"
# # Lab 16, part 3: what reinforcement learning changed
#
# In part 2 a reward for right answers made the model write out its work. This part asks what exactly has changed, in
# four steps:
#
# 1. Accuracy, form and length by number of digits, before and after.
# 2. A habit: the trained model works out even what it used to answer at once, and a cost for length does not cure it.
#    Why?
# 3. pass@k: what the pretrained model could already do when it was given several tries. You write its unbiased
#    estimate.
# 4. The tree of responses to one prompt, before and after.
#
# The exercises take about 20 minutes, and every cell takes seconds. The notebook runs on its own: it loads the policies
# that part 2 has trained in this folder, or else policies that come with the lab. Exercises, checks and tables work as
# in part 1. All numbers quoted in the text are those of the full profile.

# %% id="setup"
from itertools import combinations
from math import comb

import torch
from torch import Tensor

from labutils import plots, rollout, training, widgets
from labutils.checks import check
from labutils.lab import Lab
from labutils.task import (
    Problems,
    decode,
    encode_prompts,
    encode_responses,
    response_mask,
    sample_problems,
    writes_states,
)
from labutils.verifier import verify

lab = Lab.for_notebook()
models = {name: lab.model(name) for name in ("pretrained", "dr_grpo", "dr_grpo_cost")}
titles = {"pretrained": "pretrained", "dr_grpo": "Dr. GRPO", "dr_grpo_cost": "Dr. GRPO + cost"}

# %% [markdown] id="by-length"
# ## 1. Before and after, by number of digits
#
# Three models: the pretrained one, the Dr. GRPO policy of part 2's first seed, and the one that was trained with a cost
# of 0.02 per response token. Each answers the same problems as in part 1, with one response each at temperature 1.
#
# **Exercise `summarize`** · 1 minute · difficulty ●○○○○ · part 1's measures again, so that this notebook stands alone
#
# Copy your function from part 1. If you have not written it yet:
#
# <details><summary>Hint 1</summary>
#
# Three means of three tensors with one entry per response: what `verify` accepts, what `writes_states` finds, and the
# number of tokens, from the response mask.
#
# </details>
# <details><summary>Hint 2</summary>
#
# A boolean tensor has no mean: turn it into floats first. The number of tokens of a response is the sum of its row of
# `response_mask`. Turn each mean into a Python float with `.item()`.
#
# </details>

# %% id="summarize" exercise="summarize"

# %% id="evaluate-by-length"
table = {name: lab.evaluate_by_length(model, summarize) for name, model in models.items()}
plots.by_length(table)

# %% [markdown] id="read-by-length"
# On the left, the trained policies stand near 1 at every length, where the pretrained model falls to about 0.3. On the
# right, their responses grow by one token per digit: $n + 4$ tokens, the length of a worked answer. The two policies
# nearly coincide, with the cost and without it.
#
# ## 2. A habit that stays
#
# Look at the left end of both panels. Two-digit problems were right nearly always before, in about half the tokens:

# %% id="overthinking" role="free"
print("two digits         accuracy  writes states  length (tokens)")
for name, metrics in table.items():
    print(f"{titles[name]:17}{metrics['accuracy']['2']:10.2f}{metrics['writes_states']['2']:15.2f}", end="")
    print(f"{metrics['length']['2']:17.2f}")

# %% [markdown] id="overthinking-text"
# The trained policy spends twice the tokens on these problems and gains nothing. In the course's own run the mean
# length at two digits went from << course("part3.pretrained.length.2") >> to << course("part3.dr_grpo.length.2") >>
# tokens. For the policy without a cost this is no mistake: its reward does not count tokens.
#
# ### What the cost says
#
# With a cost of 0.02 per token a response earns $r - 0.02\, m$, where $r$ is 1 or 0 and $m$ is its number of tokens. A
# direct answer has 3 tokens and a worked one $n + 4$, so working costs $0.02\,(n + 1)$ more. At two digits this is
# $0.02 \cdot 3 = 0.06$. There both forms are right nearly always, so the direct one is better by about 0.06. For longer
# lists the worked form pays, since a direct answer is mostly wrong.
#
# How often each form is right can be sampled from the pretrained model, as in part 1:


# %% id="cost-arithmetic" role="free"
def accuracy_by_form(model, length, generator):
    """Share of right answers among the direct and among the worked responses to problems of this length."""
    problems = sample_problems(200, generator, length).repeat_interleave(20)
    responses = rollout.generate(model, encode_prompts(problems), generator=generator)
    correct, worked = verify(problems, responses).float(), writes_states(responses)
    return correct[~worked].mean().item(), correct[worked].mean().item()


cost, generator = 0.02, torch.Generator().manual_seed(0)
print("digits   right: direct  worked    reward with cost: direct  worked    better")
for length in range(2, 9):
    direct, worked = accuracy_by_form(models["pretrained"], length, generator)
    rewards = direct - cost * 3, worked - cost * (length + 4)
    better = "direct" if rewards[0] > rewards[1] else "worked"
    print(f"{length:6}{direct:16.2f}{worked:8.2f}{rewards[0]:26.2f}{rewards[1]:8.2f}    {better}")

# %% [markdown] id="cost-read"
# So the best behaviour under the cost is known: two digits directly, the rest worked. Yet the policy that was trained
# with the cost writes its states on two-digit problems as well, in
# << course("part3.dr_grpo_cost.writes_states.2", percent=True) >> of its responses in the course's own run.
#
# ### Why it stays
#
# The first token decides the form. Its probability needs no sampling: encode the correct direct response and read the
# log-probability of its first token, `>`. The rest of the response gives the probability that a direct response, once
# begun, is right.

# %% id="direct-probability"
generator = torch.Generator().manual_seed(1)
chooses_direct = {name: {} for name in models}
direct_right = {name: {} for name in models}
for length in range(2, 9):
    problems = sample_problems(200, generator, length)
    prompts = encode_prompts(problems)
    responses = encode_responses(problems, worked=torch.zeros(len(problems), dtype=torch.bool))
    for name, model in models.items():
        with torch.no_grad():
            log_probs = rollout.response_log_probs(model, prompts, responses)
        chooses_direct[name][length] = log_probs[:, 0].exp().mean().item()
        direct_right[name][length] = log_probs[:, 1:].sum(1).exp().mean().item()

shown = {"probability of a direct response": chooses_direct, "share of direct responses that are right": direct_right}
for title, rows in shown.items():
    print(f"{title}, mean over problems")
    print("  digits           " + "".join(f"{length:9}" for length in range(2, 9)))
    for name, values in rows.items():
        print(f"  {titles[name]:17}" + "".join(f"{value:9.4f}" for value in values.values()))

# %% [markdown] id="habit-derivation"
# Before, the model answered directly nine times in ten. Afterwards it does so a few times in a thousand, for two digits
# as for eight.
#
# Consider only the first token. Let $p$ be the probability of the direct form, with the logit $z$ of `>` against `:`,
# so that $p = 1 / (1 + e^{-z})$, and let the two forms earn $R_d$ and $R_w$ on average. The expected reward is
# $J = p\, R_d + (1 - p)\, R_w$, and its gradient
#
# $$\frac{dJ}{dz} = p\,(1 - p)\,(R_d - R_w) .$$
#
# The difference in reward counts only as far as both forms are sampled. A form that is never sampled has no influence
# on the gradient, however good it is. Here is the gradient for each number of digits, under the reward with the cost,
# at the start and at the end of training. A positive number pulls towards the direct form:

# %% id="habit-numbers" role="free"
generator = torch.Generator().manual_seed(0)
print("digits             " + "".join(f"{length:9}" for length in range(2, 9)))
for name in ("pretrained", "dr_grpo_cost"):
    pulls = []
    for length, p in chooses_direct[name].items():
        direct = direct_right[name][length] - cost * 3
        worked = accuracy_by_form(models[name], length, generator)[1] - cost * (length + 4)
        pulls.append(p * (1 - p) * (direct - worked))
    print(f"{titles[name]:19}" + "".join(f"{pull:+9.4f}" for pull in pulls))

print("\ndirect responses to two digits in a step, of 256 responses in all:")
for name in ("pretrained", "dr_grpo_cost"):
    print(f"  {titles[name]:17}{chooses_direct[name][2] * 256 / 7:6.2f}")

# %% [markdown] id="habit-read"
# Training goes in two stages.
#
# First, both forms are sampled everywhere. At two digits the reward pulls towards the direct form, but weakly. All
# other lengths, six problems in seven, pull towards working, and several times as strongly. The same weights choose the
# form for all lengths, so the probability of `:` rises for all of them.
#
# Then hardly any direct answer is sampled: in a whole step with 256 responses less than one to two digits. All pulls
# have become tiny, and nothing brings the direct answer back. It also gets worse while it is not used: look at its
# share of right answers in the cell before, at two digits. Nothing trains it any more, and the weights that it needs
# change for the sake of the worked form. So even the reward's small preference of 0.06 may be gone by the end.
#
# This is a collapse of exploration. The policy learns from what it samples, and it has stopped sampling the
# alternative. A reader is misled who takes the result for the optimum of the reward. The optimum answers two digits
# directly; the policy is where this path ended.
#
# Compare the models on prompts of your own. Try two digits:

# %% id="side-by-side" role="free"
widgets.side_by_side({titles[name]: model for name, model in models.items()})

# %% [markdown] id="pass-at-k-definition"
# ## 3. pass@k
#
# Accuracy at temperature 1 asks for one response. pass@k asks whether **at least one of k** independent responses is
# right (Kulal et al., 2019; Chen et al., 2021). For a problem that a response solves with probability $p$,
#
# $$\text{pass@}k = 1 - (1 - p)^k ,$$
#
# and for a set of problems it is the mean of this. pass@1 is the accuracy. With large $k$ it measures what a model can
# do at all, rather than what it does by default.
#
# ### The obvious estimate is biased
#
# The probability $p$ of a problem is not known. Sample $n$ responses and count the $c$ right ones. It is tempting to
# put $c/n$ in the place of $p$. Take four responses, one of them right, and $k = 2$:

# %% id="subsets" role="free"
right = [False, True, False, False]
pairs = list(combinations(right, 2))
print("pairs of responses:", *("hit" if any(pair) else "miss" for pair in pairs))
print(f"share of pairs with a right response: {sum(map(any, pairs))}/{len(pairs)}")
print(f"1 - (1 - 1/4)^2 = {1 - (1 - 1 / 4) ** 2}")

# %% [markdown] id="jensen"
# The two differ. The formula with $c/n$ draws the pair **with** replacement: it may draw the same wrong response twice
# and count it as two tries.
#
# The error does not average out. The function $f(p) = 1 - (1 - p)^k$ is concave for $k \ge 2$, and Jensen's inequality
# says that the mean of a concave function is at most the function of the mean:
#
# $$\mathbb{E}\, f(c/n) \;\le\; f\big(\mathbb{E}[c/n]\big) = f(p) .$$
#
# So the estimate is too low on average, for every $p$ strictly between 0 and 1. More problems do not help: averaging
# removes noise, not bias. The count $c$ is binomial, so that the expectation can be added up exactly:


# %% id="naive-bias" role="free"
def expected(estimate, n, p, k):
    """The exact mean of `estimate(n, c, k)` when each of n responses is right with probability p."""
    return sum(comb(n, c) * p**c * (1 - p) ** (n - c) * estimate(n, c, k) for c in range(n + 1))


def naive(n, c, k):
    """Biased: c/n in the place of p."""
    return 1 - (1 - c / n) ** k


settings = [(8, 0.1, 1), (8, 0.1, 4), (8, 0.1, 8), (64, 0.1, 8), (64, 0.02, 8), (64, 0.02, 64)]
print("    n      p    k   true pass@k   naive, on average")
for n, p, k in settings:
    print(f"{n:5}{p:7.2f}{k:5}{1 - (1 - p) ** k:14.4f}{expected(naive, n, p, k):20.4f}")

# %% [markdown] id="unbiased"
# With $k = 1$ there is no bias. For larger $k$ it first grows, and shrinks again where even the biased
# estimate comes near 1. It fades as $n$ grows beyond $k$.
#
# ### The unbiased estimate
#
# Choose $k$ of the $n$ responses without replacement. They are $k$ independent responses of the model, so that the
# indicator "at least one of them is right" has the expectation pass@k, without bias. One choice is noisy. The mean over
# **all** choices has the same expectation and less noise. There are $\binom{n}{k}$ choices, and $\binom{n-c}{k}$ of
# them contain wrong responses only:
#
# $$\widehat{\text{pass@}k} = 1 - \binom{n-c}{k} \Big/ \binom{n}{k} .$$
#
# For the four responses above: $1 - \binom{3}{2} / \binom{4}{2} = 1 - 3/6 = 0.5$, the share of pairs that hit. If fewer
# than $k$ responses are wrong, every choice contains a right one and the estimate is 1.
#
# For large $n$ the binomial coefficients exceed what a float holds. Write them as factorials and cancel:
#
# $$\frac{\binom{n-c}{k}}{\binom{n}{k}} = \frac{(n-c)!\,(n-k)!}{(n-c-k)!\,n!} = \prod_{i=n-c+1}^{n} \frac{i-k}{i}
# = \prod_{i=n-c+1}^{n} \Big(1 - \frac{k}{i}\Big) .$$
#
# Every factor lies between 0 and 1. Python's integers have no limit, so that `math.comb` works too, if the two
# coefficients are divided as integers and not turned into floats first.
#
# **Exercise `pass_at_k`** · 20 minutes · difficulty ●●●○○ · the measure by which models that answer by sampling are
# compared
#
# The estimate needs $k \le n$. A function that accepts more reports pass@64 from 8 responses without a word, so raise
# `ValueError` for arguments that make no sense.
#
# <details><summary>Hint 1</summary>
#
# Three steps: refuse bad arguments, return 1 where fewer than $k$ responses are wrong, else compute the product.
#
# </details>
# <details><summary>Hint 2</summary>
#
# The product has $c$ factors, one for each $i$ in `range(n - c + 1, n + 1)`. Without a right response it is empty and
# stays at its starting value, one. Return one minus the product. The arguments are good if `0 <= c <= n` and
# `1 <= k <= n`.
#
# </details>

# %% id="pass-at-k" exercise="pass_at_k"

# %% [markdown] id="unbiased-text"
# The same exact expectations with your function. The last two columns must agree:

# %% id="unbiased-shown" role="free"
print("    n      p    k   true pass@k   yours, on average")
for n, p, k in settings:
    print(f"{n:5}{p:7.2f}{k:5}{1 - (1 - p) ** k:14.4f}{expected(pass_at_k, n, p, k):20.4f}")

# %% [markdown] id="measure"
# ### Before and after
#
# Now 64 responses to each of 100 problems of 4, 6 and 8 digits, for the pretrained model and the Dr. GRPO policy. With
# the evaluation above this completes the table of part 3:

# %% id="table" table="part3"
for name in ("pretrained", "dr_grpo"):
    table[name]["pass_at_k"] = lab.pass_at_k(models[name], pass_at_k)
lab.report("part3", table)

# %% [markdown] id="read-table-part3"
# The bands of the trained policies reach far down, because once in a while a correct run ends just when its policy has
# strayed: of 128 runs one was right on only 0.65 of the seven-digit problems, and the bands leave twice that room.
# Nearly all correct runs end close to the expected values.

# %% id="pass-at-k-picture"
plots.pass_at_k(table)

# %% [markdown] id="read-pass-at-k"
# The curve of the policy starts where that of the pretrained model ends. In the course's own run pass@1 was
# << course("part3.pretrained.pass_at_k.*.1") >> before reinforcement learning, over the three lengths, and
# << course("part3.dr_grpo.pass_at_k.*.1") >> after it, while pass@64 of the pretrained model was already << course("part3.pretrained.pass_at_k.*.64") >>. What the policy
# does every time, the pretrained model did once in a while.
#
# This is the pattern that Yue et al. (2025) report for large models: training with verifiable rewards raises pass@1,
# and with enough samples the model from before solves as many problems or more.
#
# ### Where a reader is misled: pass@64 alone proves little here
#
# There are ten possible answers. A model that writes `>`, a random digit and `<end>` has $p = 0.1$ on every problem.
# Compare it with the pretrained model on eight digits, once with all its right answers and once with only those that it
# worked out:

# %% id="guessing" role="free"
problems = sample_problems(200, torch.Generator().manual_seed(4), 8)
responses = encode_responses(problems, worked=torch.ones(len(problems), dtype=torch.bool))
with torch.no_grad():
    log_probs = rollout.response_log_probs(models["pretrained"], encode_prompts(problems), responses)
worked_right = log_probs.sum(1).exp().mean().item()  # the share of responses that are worked and right throughout

print("1 - (1 - p)^k for 8 digits                  pass@1  pass@8 pass@64")
for name, p in {
    "a random digit": 0.1,
    "the pretrained model, any right answer": table["pretrained"]["pass_at_k"]["8"]["1"],
    "the pretrained model, right worked answers": worked_right,
}.items():
    print(f"{name:44}" + "".join(f"{1 - (1 - p) ** k:8.3f}" for k in (1, 8, 64)))

# %% [markdown] id="guessing-read"
# Guessing alone brings pass@64 to 0.999. With answers that can be guessed, pass@k at large $k$ cannot tell competence
# from luck. The evidence that the pretrained model **can** solve the problems is another one: part 1 showed that its
# worked answers are nearly always right. The last line counts only these. A tenth of 64 samples are worked, and the
# chance that none of them is right is a fraction of a percent.
#
# The second line also agrees with the table's pass@8. The formula $1 - (1-p)^k$ with the mean $p$ is right only if $p$
# is nearly the same for all problems, and here it is: no eight-digit list is much easier for this model than another.

# %% [markdown] id="what-changed"
# ### What changed, token by token
#
# Split the worked answer in two: its first token, which chooses the form, and the rest, which carries it out. Both
# probabilities can be computed exactly for the fully correct worked response. A third number is sampled: how many
# worked responses end in the right answer.

# %% id="form-and-skill"
generator = torch.Generator().manual_seed(2)
print("digits   chooses to work      all states right   answer right, worked")
print("         before    after      before    after      before    after")
for length in (2, 4, 6, 8):
    problems = sample_problems(200, generator, length)
    prompts, worked = encode_prompts(problems), torch.ones(len(problems), dtype=torch.bool)
    columns = [[], [], []]
    for model in (models["pretrained"], models["dr_grpo"]):
        with torch.no_grad():
            log_probs = rollout.response_log_probs(model, prompts, encode_responses(problems, worked))
        columns[0].append(log_probs[:, 0].exp().mean().item())
        columns[1].append(log_probs[:, 1:].sum(1).exp().mean().item())
        columns[2].append(accuracy_by_form(model, length, generator)[1])
    print(f"{length:6}", "   ".join(f"{before:9.3f}{after:9.3f}" for before, after in columns))

# %% [markdown] id="form-and-skill-read"
# The first pair of columns goes from 0.1 to nearly 1. The others change by a few hundredths, up or down. Nearly all of
# the gain in accuracy is the one decision to work; the skill of working was there before.
#
# The middle columns hold a surprise that you may or may not see: after training, a step can be wrong more often than
# before, while the answer is right as often or more. The reward reads only the answer. Nothing keeps the states honest
# where a wrong one does no harm. For reasoning models this means that a right answer does not vouch for the steps
# before it.
#
# ### What was lost
#
# A policy that always works a problem out depends on its working. If it gets a step of some problem wrong every time,
# no number of samples helps, while the pretrained model, which also guesses, finds the answer by luck. Look at the
# problems that the policy finds hardest:

# %% id="hardest" role="free"
counts = {}
generator = torch.Generator().manual_seed(3)
hard = sample_problems(5 * lab.sizes.pass_problems, generator, 4)
for name in ("pretrained", "dr_grpo"):
    counts[titles[name]] = training.count_correct(models[name], hard, 64, generator)
never = {name: sum(count == 0 for count in values) for name, values in counts.items()}
print(f"of {len(hard)} problems never solved in 64 samples:", never)
print("right out of 64: pretrained  Dr. GRPO    problem")
for index in sorted(range(len(hard)), key=lambda index: counts["Dr. GRPO"][index])[:5]:
    print(f"{counts['pretrained'][index]:27}{counts['Dr. GRPO'][index]:10}    {decode(encode_prompts(hard)[index])}")

# %% [markdown] id="hardest-read"
# Nearly all problems are solved in nearly every sample. The first lines show the exceptions: the policy may solve one
# or another four-digit problem rarely or never, which the pretrained model solves in about a quarter of its samples,
# mostly by guessing. In the course's own run nothing was lost at large $k$: pass@64 of the policy was
# << course("part3.dr_grpo.pass_at_k.*.64") >>, as it was before. If your table shows 0.990 there, one problem in a
# hundred was lost. In the models of Yue et al. (2025) the same narrowing is large enough to make the pass@k curves
# cross.
#
# The explorer draws pass@k for every $k$ from these counts. Switch on the biased estimate and see where it errs most.

# %% id="pass-at-k-explorer" role="free"
widgets.pass_at_k_explorer(counts, pass_at_k)

# %% [markdown] id="tree"
# ## 4. The tree of responses
#
# All responses to one prompt form a tree. It grows from left to right: each box adds a token, and its height is the
# probability of reaching it. Before, the first token splits the tree into a high direct branch, which splits again
# where the answer is guessed, and a low worked branch, which hardly splits at all. Afterwards nearly everything runs
# through one worked path. The same tree makes the lab's engine fast: where responses coincide, it computes once.

# %% id="response-tree" role="free"
widgets.response_tree({titles[name]: models[name] for name in ("pretrained", "dr_grpo")})

# %% [markdown] id="summary"
# ## What the lab has shown
#
# - A pretrained model can be able to do something and mostly not do it, because it imitates the proportions of its
#   data.
# - A reward for right answers alone makes it write out its work. The estimators differ little where the signal is this
#   strong.
# - Most of the change is one decision. The skill behind it was there, as pass@k and the split by form show.
# - The policy is not the optimum of its reward. It stops exploring, and keeps the habit of working even where the habit
#   costs reward.

# %% [markdown] id="questions"
# ## Questions
#
# 1. For which cost per token would a direct answer earn more than a worked one on eight digits as well? Take 0.96 and
#    0.2 as the shares of right answers. What would training with such a cost lead to?
# 2. Name two changes to the training that could bring back the direct answer on two digits without raising the cost.
#    What does the gradient $p\,(1-p)\,(R_d - R_w)$ say about each?
# 3. One model solves each problem with probability 0.3. Another solves 30 % of the problems always and the others
#    never. Compare their pass@1 and pass@8. Which of the two would you rather train with reinforcement learning?
# 4. Somebody reports pass@64 from 64 samples per problem with the unbiased estimate. What values can the estimate of a
#    single problem take, and what does this mean for its noise?

# %% [markdown] id="questions-answers" solved=true
# <details><summary>Answers</summary>
#
# 1. A worked answer has 12 tokens and a direct one 3. The direct one earns more if $0.2 - 3c > 0.96 - 12c$, that is
#    $c > 0.76 / 9 \approx 0.084$. For other lengths the threshold is the gain in accuracy divided by the $n + 1$ tokens
#    that working costs: nearly 0 for two digits, about 0.09 for three, 0.15 for four, and from there down to 0.084 for
#    eight. So with such a cost, lists of three to seven digits should still be worked, and those of two and of eight
#    answered directly; only beyond 0.15 is direct best for all. What is learned also depends on the path: the same
#    weights choose the form for all lengths, and the model starts at nine direct answers in ten.
# 2. An entropy bonus, a higher temperature of sampling in training, a KL penalty toward the pretrained model, or a
#    share of responses whose form is prescribed. The first three keep $p\,(1-p)$ away from 0, so that the difference of
#    0.06 goes on acting; the bonus and the penalty also pull the longer lists towards direct answers, where that costs
#    accuracy. Prescribed forms are sampled by another policy than the one that is trained, so they need importance
#    weights.
# 3. pass@1 is 0.3 for both. pass@8 is $1 - 0.7^8 \approx 0.94$ for the first and 0.3 for the second. The first: in its
#    groups some responses are right and some wrong, which gives advantages to learn from. The second gives only groups
#    of equal rewards, and no gradient.
# 4. Only 0, if no response is right, or 1. With $n = k$ there is one choice of $k$ responses. The estimate is still
#    unbiased, but as noisy as a single trial; more samples than $k$ per problem make it smoother.
#
# </details>

# %% [markdown] id="next"
# ## Where to go next
#
# - `going_further.ipynb` asks five questions that the three parts leave open: rarer worked answers, breaking the habit of
#   writing everything out, a KL penalty, weaker verifiers, and length bias. Each is an experiment of a minute.
# - `find_the_bug.ipynb` shows ten functions that look right and are wrong, of kinds that were found in published code.
