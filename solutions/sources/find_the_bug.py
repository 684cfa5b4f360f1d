# %% [markdown] id="title"
# # Lab 16: find the bug
#
# The defects below are of kinds that were found in published code: in a textbook, in courses, and in repositories that
# people train with. Here they are cut down to the lines that matter and written anew. Each function runs, gives the
# right shapes, and looks right. Each is wrong.
#
# For every defect:
#
# 1. Read the function, and say in one sentence what is wrong. Do not run anything yet.
# 2. Run the cell below it. It computes what the function does to a policy that is small enough to know everything
#    about, or to the lab's model.
# 3. Explain the numbers. Then repair the function in a cell of your own, and run the cell with the effect again.
#
# Ten defects, about 5 minutes each. Nothing is trained for more than a second. Parts 1 to 3 hold all that is needed.

# %% id="setup"
import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import kl_div

from labutils import plots, rollout
from labutils.lab import shipped_model
from labutils.task import ARROW, END, PAD, Problems, encode_prompts, encode_responses, response_mask, sample_problems
from labutils.verifier import verify

torch.set_printoptions(precision=3, sci_mode=False)
model = shipped_model("pretrained")


def exact_kl(policy: Tensor, reference: Tensor) -> float:
    """KL(policy || reference) in nats, of two distributions over a few responses."""
    return kl_div(reference.log(), policy, reduction="sum").item()


def expected_gradient(logits: Tensor, value: Tensor) -> Tensor:
    """The mean, over the policy's own responses y, of value[y] times the score of y: what ascent follows on average."""
    scores = torch.stack([torch.autograd.grad(logits.log_softmax(0)[y], logits)[0] for y in range(len(logits))])
    return logits.softmax(0).detach() @ (value[:, None] * scores)

# %% [markdown] id="first-text"
# ## 1. A penalty that keeps the policy near its reference
#
# The reward of a response is lowered by how far the policy has moved on it.

# %% id="first-defect"
def penalized_reward(reward: Tensor, policy_log_prob: Tensor, reference_log_prob: Tensor, beta: float) -> Tensor:
    """The reward less beta times an estimate of the KL divergence of the policy from the reference."""
    kl_estimate = reference_log_prob - policy_log_prob
    return reward - beta * kl_estimate

# %% id="first-effect"
reference = torch.tensor([0.6, 0.3, 0.1])
logits = torch.tensor([0.0, 0.2, 0.1], requires_grad=True)  # near the uniform distribution, and no reward at all
divergence = [exact_kl(logits.softmax(0).detach(), reference)]
for _ in range(60):
    own, other = logits.log_softmax(0).detach(), reference.log()
    gradient = expected_gradient(logits, penalized_reward(torch.zeros(3), own, other, beta=1.0))
    with torch.no_grad():
        logits += 0.5 * gradient
    divergence.append(exact_kl(logits.softmax(0).detach(), reference))
print(f"KL from the reference: {divergence[0]:.3f} nats before, {divergence[-1]:.3f} after 60 steps")

figure = Figure(figsize=(6, 3), layout="constrained")
axis = figure.add_subplot(xlabel="step", ylabel="KL from the reference (nats)")
axis.plot(divergence, color="#0072B2")
axis.grid(alpha=0.3)
plots.Picture(figure, "KL divergence from the reference against the step, under a reward that is the penalty alone.")

# %% [markdown] id="first-question"
# A penalty alone should bring the policy back to its reference. The curve shows where it goes instead. Why?

# %% [markdown] id="first-answer" solved=true
# <details><summary>Answer</summary>
#
# The log-ratio has the wrong sign. Under the policy's own samples the mean of $\log\pi - \log\pi_\text{ref}$ is the KL
# divergence; the mean of the opposite is minus the divergence. Subtracting it pays for moving away, and the policy
# ends on the response that the reference thinks least likely. In a real run the reward rises and the printed "KL" is
# negative, which a divergence cannot be: look at the sign of what you log.
#
# </details>

# %% [markdown] id="second-text"
# ## 2. A loss over the tokens of the responses
#
# The tokenizer has no padding token of its own, so the end token pads the batch, as is customary.

# %% id="second-defect"
PADDING = END  # tokenizer.pad_token = tokenizer.eos_token


def token_mask(responses: Tensor) -> Tensor:
    """(B, R) bool: the tokens that count in the loss; padding does not."""
    return responses != PADDING

# %% id="second-effect"
padded = encode_responses(sample_problems(1000, torch.Generator().manual_seed(0)), torch.zeros(1000).bool())
padded = padded.masked_fill(padded == PAD, PADDING)
stop = torch.tensor(0.0, requires_grad=True)  # the logit of ending the response, after a token
lengths = (padded == END).int().argmax(1)  # tokens before the end
for step in range(201):
    ends = token_mask(padded).gather(1, lengths[:, None]).sum()  # decisions to end that count, and to go on
    goes_on = token_mask(padded).sum() - ends
    loss = -(ends * torch.nn.functional.logsigmoid(stop) + goes_on * torch.nn.functional.logsigmoid(-stop)) / 1000
    (gradient,) = torch.autograd.grad(loss, stop)
    with torch.no_grad():
        stop -= 0.1 * gradient
    if step % 100 == 0:
        probability = stop.sigmoid().item()
        print(f"step {step:3}   probability of ending {probability:.3f}   mean length {1 / probability:7.1f} tokens")
print(f"in the data every response ends after {lengths.float().mean() + 1:.1f} tokens")

# %% [markdown] id="second-question"
# The data hold responses of three tokens, that is, one end in three tokens. What does the model learn, and what will a
# user of it see?

# %% [markdown] id="second-answer" solved=true
# <details><summary>Answer</summary>
#
# The end token is padding and padding does not count, so the end of a response is never trained. The model learns from
# every token that it should go on and from none that it should stop. Responses run into the cap; a verifier that wants
# an ended response then gives 0 to all of them. The mask must be defined by where the first end token stands, and
# include it.
#
# </details>

# %% [markdown] id="third-text"
# ## 3. A KL term in the loss
#
# Instead of lowering the reward, this repository adds the divergence to the loss, as an unbiased estimate.

# %% id="third-defect"
def kl_term(policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor) -> Tensor:
    """The KL divergence per response, estimated without bias from responses of the policy; added to the loss."""
    return ((policy_log_probs - reference_log_probs) * mask).sum(1).mean()

# %% id="third-effect"
logits = torch.tensor([1.0, 0.0, -1.0], requires_grad=True)
policy = logits.softmax(0)
terms = [kl_term(logits.log_softmax(0)[y].view(1, 1), reference.log()[y].view(1, 1), torch.ones(1, 1)) for y in range(3)]
scores = torch.stack([torch.autograd.grad(term, logits, retain_graph=True)[0] for term in terms])
print("value on average    ", f"{sum(p * term for p, term in zip(policy, terms, strict=True)):.4f}")
print("the divergence      ", f"{exact_kl(policy.detach(), reference):.4f}")
print("gradient on average ", policy.detach() @ scores)
exact = (policy * (policy.log() - reference.log())).sum()
print("its gradient        ", torch.autograd.grad(exact, logits)[0])

# %% [markdown] id="third-question"
# The value is right on average. What does the term do when it is added to the loss with a large factor?

# %% [markdown] id="third-answer" solved=true
# <details><summary>Answer</summary>
#
# Nothing, but for noise. The responses were sampled before the loss is differentiated, so autograd sees
# $\nabla \log\pi(y)$ for fixed $y$, whose mean under the policy is 0. The part of the gradient that comes from how the
# samples depend on the parameters is lost. An unbiased value does not make an unbiased gradient. As a penalty in the
# reward the same estimate is right; in the loss take half its square, k2, whose gradient is exact on policy, or k3,
# whose gradient is not, but pulls in the right direction.
#
# </details>

# %% [markdown] id="fourth-text"
# ## 4. Sampling that avoids nonsense
#
# Responses are sampled at temperature 0.7 from the likeliest tokens that make up nine tenths of the probability, so
# that no reward is wasted on noise.

# %% id="fourth-defect"
def sampling_distribution(logits: Tensor, temperature: float = 0.7, top_p: float = 0.9) -> Tensor:
    """The probabilities from which responses are drawn."""
    probabilities = (logits / temperature).softmax(0)
    ordered, order = probabilities.sort(descending=True)
    kept = ordered.cumsum(0) - ordered < top_p
    return torch.zeros_like(probabilities).scatter(0, order, ordered * kept / (ordered * kept).sum())


def score(logits: Tensor, response: int) -> Tensor:
    """The log-probability of a response, for the policy gradient."""
    return logits.log_softmax(0)[response]

# %% id="fourth-effect"
logits = torch.tensor([2.0, 1.0, 0.5, -0.5], requires_grad=True)
rewards = torch.tensor([0.0, 0.0, 0.0, 1.0])  # the rare response is right
drawn = sampling_distribution(logits).detach()
scores = torch.stack([torch.autograd.grad(score(logits, y), logits)[0] for y in range(4)])
print("policy              ", logits.softmax(0).detach())
print("drawn from          ", drawn)
print("exact gradient      ", expected_gradient(logits, rewards))
print("estimate, on average", drawn @ (rewards[:, None] * scores))
print("mean score          ", drawn @ scores)

# %% [markdown] id="fourth-question"
# The last line is what a constant reward of 1 adds to the gradient. For the policy's own samples it would be 0. What
# are the two consequences of sampling like this?

# %% [markdown] id="fourth-answer" solved=true
# <details><summary>Answer</summary>
#
# The responses come from another distribution than the one that is scored. First, what lies outside the nucleus is
# never sampled: a rare right answer has no chance, and the policy cannot discover it. Second, the mean score is not 0,
# so a baseline is no longer free of bias: any constant part of the advantage pushes the policy towards what is likely
# anyway, and its entropy falls without any reward. Sample at temperature 1 from the whole distribution, or score with
# the same temperature and cut, or correct with importance ratios.
#
# </details>

# %% [markdown] id="fifth-text"
# ## 5. Rewards that are checked
#
# A reward function went wrong once and gave NaN for a response. Since then the batch is checked before the step.

# %% id="fifth-defect"
def checked(rewards: Tensor) -> Tensor:
    """(N, G): the same rewards. Stops the training if one of them is not finite."""
    assert torch.isfinite(rewards).all, "a reward is not finite"
    return rewards

# %% id="fifth-effect"
broken = torch.tensor([[1.0, 0.0, float("nan"), 1.0], [1.0, 0.0, 0.0, 1.0]])
print(checked(broken))
weight = torch.tensor([0.5, -0.5], requires_grad=True)
(checked(broken) @ torch.ones(4, 2) * weight).sum().backward()
print("gradient", weight.grad)

# %% [markdown] id="fifth-question"
# One reward in eight is NaN. How much of the gradient is, and what did the check do?

# %% [markdown] id="fifth-answer" solved=true
# <details><summary>Answer</summary>
#
# `torch.isfinite(rewards).all` is a method, not its result: the parentheses are missing, and an object is always true.
# The assertion cannot fail. Its relative, `assert (condition, "message")`, is a tuple of two and always true as well.
# One NaN then reaches every parameter in one step. A check that has never failed has not been tested: break its input
# on purpose once.
#
# </details>

# %% [markdown] id="sixth-text"
# ## 6. Scoring without padding
#
# Prompts come padded on the left. Padding carries no information, so this code drops it and saves the work.

# %% id="sixth-defect"
def log_prob_of(model, prompt: Tensor, response: Tensor) -> float:
    """The log-probability in nats of one response (R,) to one left-padded prompt (9,)."""
    tokens = torch.cat([prompt[prompt != PAD], response])[None]
    predictions = model(tokens[:, :-1]).log_softmax(-1)[0, -len(response) :]
    return predictions.gather(1, response[:, None]).sum().item()

# %% id="sixth-effect"
problems = Problems.from_digits([[4, 7, 1, 9, 3, 0, 2, 5], [4, 7, 1, 9, 3], [4, 7, 1], [4, 7]])
prompts, responses = encode_prompts(problems), encode_responses(problems, torch.zeros(4).bool())
with torch.no_grad():
    sampler_says = rollout.response_log_probs(model, prompts, responses).sum(1)
    print("digits   by the sampler   by this code")
    for i, length in enumerate(problems.lengths.tolist()):
        print(f"{length:6}{sampler_says[i]:16.2f}{log_prob_of(model, prompts[i], responses[i][:3]):15.2f}")

# %% [markdown] id="sixth-question"
# One row agrees and the others do not. Which property of the model makes the difference?

# %% [markdown] id="sixth-answer" solved=true
# <details><summary>Answer</summary>
#
# The model adds a learned embedding of the absolute position to every token. Without the padding a short prompt starts
# at position 0, where in training it started later: every token stands at another position than in sampling, and the
# model that scores is in effect another one. Only the prompt of eight digits, which has no padding, is scored as it was
# sampled. The same happens in libraries when left-padded batches are scored without the position ids that generation
# used. A test finds it at once: the sampler's own log-probabilities must equal the scorer's, on prompts of different
# lengths.
#
# </details>

# %% [markdown] id="seventh-text"
# ## 7. A forgiving verifier
#
# Models write `8`, `08` or `8.` for the same answer. This verifier takes what stands after `>` and is content if it is
# part of the expected text.

# %% id="seventh-defect"
def forgiving(text: str, answer: str) -> bool:
    """Whether the response gives the answer, with or without leading zeros and full stops."""
    given = text.partition(">")[2].replace("<end>", "").strip(" .0")
    return given in answer

# %% id="seventh-effect"
for text in ("> 8 <end>", "> 08. <end>", "> 3 <end>", "> <end>", "<end>", "> 0 <end>"):
    print(f"{text:14} {'accepted' if forgiving(text, '8') else 'rejected'}")
probabilities = torch.tensor([0.05, 0.2, 0.75])  # an empty response, the right one, a wrong one
rewards = torch.tensor([float(forgiving(text, "8")) for text in ("<end>", "> 8 <end>", "> 3 <end>")])
print("expected gradient of the logits of", ["empty", "right", "wrong"])
print(expected_gradient(probabilities.log().requires_grad_(), rewards))

# %% [markdown] id="seventh-question"
# Which responses earn a reward that they should not, and what will a policy find that is trained with it, if it is easier
# to say nothing than to be right?

# %% [markdown] id="seventh-answer" solved=true
# <details><summary>Answer</summary>
#
# The empty string is part of every string. A response without an answer is accepted, and so is `> 0`, of which the
# stripping leaves nothing. Saying nothing is right always, being right takes work, and the policy learns the former. A
# verifier is tested with responses that earn nothing: empty, cut off, all answers at once, the prompt repeated.
#
# </details>

# %% [markdown] id="eighth-text"
# ## 8. Large batches on a small machine
#
# The batch does not fit into memory, so its loss, a mean over tokens, is computed in pieces and averaged.

# %% id="eighth-defect"
def token_mean_in_pieces(token_losses: Tensor, mask: Tensor, size: int) -> Tensor:
    """Scalar: the mean loss over the response tokens of the batch (B, R), `size` responses at a time."""
    pieces = []
    for losses, kept in zip(token_losses.split(size), mask.split(size), strict=True):
        pieces.append((losses * kept).sum() / kept.sum())
    return torch.stack(pieces).mean()

# %% id="eighth-effect"
lengths = torch.tensor([3, 3, 12, 12])
mask = (torch.arange(12) < lengths[:, None]).float()
token_losses = torch.ones(4, 12, requires_grad=True)
for size in (4, 2, 1):
    (weights,) = torch.autograd.grad(token_mean_in_pieces(token_losses, mask, size), token_losses)
    print(f"{size} responses at a time: a token weighs {[round(w, 4) for w in weights[:, 0].tolist()]}")

# %% [markdown] id="eighth-question"
# The result should not depend on the size of the pieces. What changes, and who gains?

# %% [markdown] id="eighth-answer" solved=true
# <details><summary>Answer</summary>
#
# A mean of means is the mean only if the pieces hold equally many tokens. Here a token of a short response weighs up to
# four times one of a long response, and how much depends on how the batch was cut and sorted. With one response at a
# time the loss has turned into another: GRPO's mean over each response's own tokens. Divide every piece's sum by the
# number of tokens of the whole batch, and add. Gradient accumulation in several libraries had this defect until late
# 2024. Splitting a batch must change nothing: that is a one-line test.
#
# </details>

# %% [markdown] id="ninth-text"
# ## 9. Runs that can be repeated
#
# To make a run repeatable, every call of the sampler gets a generator with the run's seed.

# %% id="ninth-defect"
def sample_group(model, prompt: Tensor, group_size: int, seed: int) -> Tensor:
    """(G, 12): a group of responses to one prompt (9,), the same in every run with this seed."""
    responses = []
    for _ in range(group_size):
        generator = torch.Generator().manual_seed(seed)
        responses.append(rollout.generate(model, prompt[None], generator=generator))
    return torch.cat(responses)

# %% id="ninth-effect"
problems = sample_problems(20, torch.Generator().manual_seed(1))
groups = [sample_group(model, prompt, 8, seed=0) for prompt in encode_prompts(problems)]
rewards = torch.stack(
    [verify(problems[i : i + 1].repeat_interleave(8), group) for i, group in enumerate(groups)]
).float()
advantages = rewards - rewards.mean(1, keepdim=True)
print(f"mean reward {rewards.mean():.2f}")
print(f"groups with eight equal rewards: {(rewards == rewards[:, :1]).all(1).float().mean():.0%}")
print(f"largest advantage {advantages.abs().max():.3f}")

# %% [markdown] id="ninth-question"
# The mean reward is what it should be, and the run can be repeated. Why does nothing train?

# %% [markdown] id="ninth-answer" solved=true
# <details><summary>Answer</summary>
#
# Every response of a group starts from the same random numbers, so all eight are the same response. Their rewards are
# equal, the advantages are 0, and no estimator with a baseline per group has a gradient. One generator, seeded once and
# passed along, makes a run repeatable and its samples different.
#
# </details>

# %% [markdown] id="tenth-text"
# ## 10. One number for a benchmark
#
# For pass@k over a benchmark, this code counts all right responses, and applies the unbiased formula once.

# %% id="tenth-defect"
def benchmark_pass_at_k(counts: list[int], n: int, k: int) -> float:
    """pass@k from the number of right responses among n for each problem (Chen et al., 2021)."""
    total, right = n * len(counts), sum(counts)
    wrong = 1.0
    for i in range(total - right + 1, total + 1):
        wrong *= 1 - k / i
    return 1 - wrong

# %% id="tenth-effect"
print("right of 8, for each of ten problems      pass@1   pass@8")
for counts in ([4] * 10, [8] * 5 + [0] * 5):
    values = [benchmark_pass_at_k(counts, 8, k) for k in (1, 8)]
    print(f"{counts!s:40}" + "".join(f"{value:9.3f}" for value in values))
solved = sum(count > 0 for count in [8] * 5 + [0] * 5) / 10
print(f"of the second ten problems, solved by at least one of their eight responses: {solved:.1f}")

# %% [markdown] id="tenth-question"
# The two models differ as much as two models can. Why does this number not show it?

# %% [markdown] id="tenth-answer" solved=true
# <details><summary>Answer</summary>
#
# Pooling treats the benchmark as one problem whose responses were all drawn alike. pass@k is a mean over problems of a
# concave function of each problem's own rate, so it must be computed for each problem and then averaged. Pooled, five
# problems that are never solved hide behind five that always are, and pass@8 comes out near 1 instead of 0.5. Only pass@1,
# which is linear in the counts, is right either way.
#
# </details>

# %% [markdown] id="closing"
# ## What the ten have in common
#
# None of them raises an exception, and none shows in the loss. What finds them is a number that is known beforehand: a
# divergence that cannot be negative, a sampler and a scorer that must agree, a batch that may be split anywhere, a policy
# small enough to list all its responses. Write such a test before the training run.
