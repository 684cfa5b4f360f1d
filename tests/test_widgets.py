"""The explorers, driven without a browser: what they show after a value is set or a button is clicked."""

import base64
import io
import re
import threading
import time
from html.parser import HTMLParser

import lab16_llm_rl as solution
import pytest
import torch
from ipywidgets import HTML, Button
from ipywidgets.widgets.widget_description import DescriptionWidget
from matplotlib.image import imread

from labutils import rollout, task, widgets
from labutils.errors import LabError
from labutils.lab import shipped_model
from labutils.model import TemperedTransformer
from labutils.task import ARROW, COLON, Problems, encode_prompts, sample_problems
from labutils.training import Estimator, ReinforcementSettings, new_model
from labutils.widgets import tree

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
TINY = ReinforcementSettings(steps=3, problems=2, evaluate_every=1, evaluation_problems=1)
FINISHED = {
    name: {seed: {step: {"accuracy": 0.5, "writes_states": 0.5, "kl": 1.0, "length": 5.0} for step in (0, 3, 6)}}
    for seed, name in enumerate(("rloo", "grpo"))
}
COUNTS = {"pretrained": [0, 8, 16, 64], "trained": [60, 64, 64, 64]}


@pytest.fixture(scope="module")
def models():
    return {"pretrained": shipped_model("pretrained"), "Dr. GRPO": shipped_model("dr_grpo")}


@pytest.fixture(scope="module")
def pretrained(models):
    return models["pretrained"]


def live(pretrained, step=solution.policy_gradient_step, settings=TINY, summarize=solution.summarize, curves=FINISHED):
    return widgets.live_bench(
        pretrained, step, solution.ESTIMATORS, summarize, solution.kl_per_response, curves, settings
    )


EXPLORERS = {
    "response_explorer": lambda models: widgets.response_explorer(models["pretrained"]),
    "advantage_bench": lambda models: widgets.advantage_bench(solution.ESTIMATORS),
    "live_bench": lambda models: live(models["pretrained"]),
    "side_by_side": widgets.side_by_side,
    "pass_at_k_explorer": lambda models: widgets.pass_at_k_explorer(COUNTS, solution.pass_at_k),
    "response_tree": widgets.response_tree,
}


class Images(HTMLParser):
    """The attributes of every image of a page."""

    def __init__(self, page):
        super().__init__()
        self.found = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        if tag == "img":
            self.found.append(dict(attrs))


def rows(explorer):
    """The rows of the tables in the explorer's text: cells stand two or more spaces apart."""
    return [re.split(r" {2,}", line) for line in explorer.text.splitlines() if "  " in line]


def row(explorer, first):
    return next(cells for cells in rows(explorer) if cells[0] == first)


def lone_line(explorer):
    """The text of an explorer that shows one line and no picture."""
    assert "<img" not in explorer.html
    assert "\n" not in explorer.text
    return explorer.text


# What all of them leave where widgets do not run


@pytest.mark.parametrize("name", EXPLORERS)
def test_one_output_holds_the_widget_and_a_static_picture_of_what_it_shows(name, models):
    explorer = EXPLORERS[name](models)
    bundle = explorer._repr_mimebundle_()
    assert set(bundle) == {WIDGET_VIEW, "text/html", "text/plain"}
    assert bundle["text/html"] == explorer.html
    (image,) = Images(bundle["text/html"]).found
    assert len(image["alt"]) > 40
    assert f"[picture: {image['alt']}]" in bundle["text/plain"]
    kind, data = image["src"].split(",")
    assert kind == "data:image/png;base64"
    pixels = imread(io.BytesIO(base64.b64decode(data)))
    assert pixels.shape[1] <= 950, "wider than a notebook's output area"
    assert pixels[..., :3].std() > 0.05, "the picture is blank"


@pytest.mark.parametrize("name", EXPLORERS)
def test_every_control_has_a_label(name, models):
    explorer = EXPLORERS[name](models)
    attributes = list(vars(explorer).values())
    attributes += [item for group in attributes if isinstance(group, list) for item in group]
    kinds = (DescriptionWidget, Button)
    controls = [item for item in attributes if isinstance(item, kinds) and not isinstance(item, HTML)]
    assert controls
    assert all(control.description for control in controls)


@pytest.mark.parametrize("name", ["response_explorer", "side_by_side", "response_tree"])
def test_bad_digits_give_one_line_and_good_ones_bring_the_picture_back(name, models):
    explorer = EXPLORERS[name](models)
    for text in ["", "7", "123456789", "12a", "1.5", "-12", "²³", "12<img>"]:
        explorer.digits.value = text
        assert lone_line(explorer) == f"digits {text!r}; allowed are 2 to 8 digits, each 0 to 9"
    explorer.digits.value = "3, 1 4"
    assert ": 3 0 4 > 4" in explorer.text or "3 1 4 =" in explorer.text
    assert "<img" in explorer.html


# response_explorer


def test_responses_are_said_in_words_and_resampling_draws_others(pretrained):
    explorer = widgets.response_explorer(pretrained)
    explorer.digits.value = "4716"  # the states are 4 9 8 0
    first = explorer.text
    samples = [cells for cells in rows(explorer) if cells[0].isdigit()]
    assert len(samples) == 8
    for _, response, form, answer in samples:
        assert form == ("worked" if response.startswith(":") else "direct")
        assert answer == ("right" if response.endswith("> 0 <end>") else "wrong")
    explorer.resample.click()
    assert explorer.text != first


def test_the_probabilities_are_the_models_at_the_sliders_temperature(pretrained):
    explorer = widgets.response_explorer(pretrained)
    explorer.digits.value = "47"
    for temperature in (1.0, 0.5):
        explorer.temperature.value = temperature
        problem = Problems.from_digits([[4, 7]])
        for name, worked in (("direct", False), ("worked", True)):
            response = task.encode_responses(problem, torch.tensor([worked]))
            policy = TemperedTransformer(pretrained, temperature)
            expected = solution.response_log_probs(policy, encode_prompts(problem), response).sum().exp().item()
            shown = re.search(rf"the {name} response [^;]*? has probability ([\d.e-]+\d)", explorer.text)
            assert float(shown[1]) == pytest.approx(expected, rel=0.01), (name, temperature)


def test_a_low_temperature_leaves_the_most_probable_response(pretrained):
    explorer = widgets.response_explorer(pretrained)
    explorer.temperature.value = 0.1
    assert len({cells[1] for cells in rows(explorer) if cells[0].isdigit()}) == 1


# advantage_bench


def set_rewards(bench, rewards):
    for box, reward in zip(bench.rewards, rewards, strict=True):
        box.value = bool(reward)


def test_the_advantages_are_the_estimators_own(pretrained):
    bench = widgets.advantage_bench(solution.ESTIMATORS)
    assert "cost" not in bench.text
    set_rewards(bench, [1, 1, 0, 0, 0, 0, 0, 0])
    bench.lengths[0].value = 9
    # By hand: 2 of 16 right; RLOO 1 - 1/7; GRPO's deviation sqrt(2 (3/4)^2 + 6 (1/4)^2) / 7) = 0.4629.
    assert row(bench, "1") == ["1", "1", "9", "+0.875", "+0.857", "+1.620", "+0.750"]
    assert row(bench, "8") == ["8", "0", "3", "-0.125", "-0.286", "-0.540", "-0.250"]


def test_equal_rewards_in_a_group_leave_only_the_batch_mean(pretrained):
    bench = widgets.advantage_bench(solution.ESTIMATORS)
    set_rewards(bench, [0] * 8)
    bench.second_group.value = 1.0
    assert row(bench, "1")[3:] == ["-0.500", "+0.000", "+0.000", "+0.000"]
    assert row(bench, "group 2")[3:] == ["+0.500", "+0.000", "+0.000", "+0.000"]


def test_a_length_moves_the_weights_of_the_estimators_that_average_over_tokens():
    bench = widgets.advantage_bench(solution.ESTIMATORS)
    set_rewards(bench, [1] + [0] * 7)

    def largest(title):
        return float(re.search(rf"{title}: -?[\d.]+ to ([\d.]+\d)", bench.text)[1])

    bench.lengths[0].value = 3
    short = {title: largest(title) for title in ("RLOO", " GRPO", "Dr. GRPO")}
    bench.lengths[0].value = 12
    assert largest("RLOO") == short["RLOO"]
    assert largest("Dr. GRPO") == short["Dr. GRPO"]
    assert largest(" GRPO") == pytest.approx(short[" GRPO"] / 4, rel=0.01)


def unfinished(rewards):
    raise NotImplementedError


def two_lines(rewards):
    raise ValueError("first line\nsecond line " + "x" * 500)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (unfinished, "unfinished raised NotImplementedError"),
        (two_lines, "two_lines raised ValueError: first line second line"),
        (lambda rewards: None, "returned a NoneType; a tensor is needed"),
        (lambda rewards: rewards[:, 0], "returned shape (2,); (2, 8) is needed"),
        (lambda rewards: rewards / 0, "returned a value that is not finite"),
    ],
)
def test_a_function_that_fails_gives_one_line_and_the_others_stay(function, said):
    estimators = {"rloo": Estimator(function, solution.sum_weights), "dr_grpo": solution.ESTIMATORS["dr_grpo"]}
    bench = widgets.advantage_bench(estimators)
    (line,) = [line for line in bench.text.splitlines() if line.startswith("RLOO: ") and "picture" not in line]
    assert said in line
    assert len(line) < 250
    assert "Traceback" not in bench.html
    assert row(bench, "1")[3:] == ["-", "+0.750"]


def test_a_function_that_changes_its_input_changes_no_other_estimator():
    def spoiling(rewards):
        return rewards.zero_()

    estimators = {"rloo": Estimator(spoiling, solution.sum_weights), "dr_grpo": solution.ESTIMATORS["dr_grpo"]}
    assert row(widgets.advantage_bench(estimators), "1")[1:] == ["1", "6", "+0.000", "+0.750"]


# live_bench


def wait_for(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "nothing happened within 20 s"
        time.sleep(0.005)


def test_a_try_trains_with_the_chosen_settings_and_stays_beside_the_next(pretrained):
    seen = []

    def step(policy, optimizer, problems, estimator, generator):
        rate = optimizer.param_groups[0]["lr"]
        seen.append((estimator.advantages, estimator.length_cost, estimator.group_size, rate, policy.temperature))
        return solution.policy_gradient_step(policy, optimizer, problems, estimator, generator)

    bench = live(pretrained, step)
    bench.estimator.value, bench.group_size.value, bench.step_size.value = "dr_grpo_cost", 4, 1e-3
    assert bench.length_cost.value == 0.02
    bench.temperature.value = 1.5
    bench.train.click()
    bench.wait()
    assert seen == [(solution.dr_grpo_advantages, 0.02, 4, 1e-3, 1.5)] * TINY.steps
    bench.estimator.value = "rloo"
    assert bench.length_cost.value == 0
    bench.train.click()
    bench.wait()
    assert row(bench, "1")[:8] == ["1", "Dr. GRPO + cost", "0.02", "1.5", "4", "0.001", "finished", "3"]
    assert row(bench, "2")[:8] == ["2", "RLOO", "0.00", "1.5", "4", "0.001", "finished", "3"]
    assert bench.text.startswith("Try 2 finished after 3 steps")
    assert all(0 <= float(cell) <= 12 for cell in row(bench, "2")[8:])


def test_finished_runs_are_drawn_before_anything_is_trained(pretrained):
    (with_runs,), (without,) = (Images(live(pretrained, curves=curves).html).found for curves in (FINISHED, {}))
    assert with_runs["src"] != without["src"]
    assert "2 finished runs" in with_runs["alt"]
    assert "0 finished runs" in without["alt"]


def test_the_curves_grow_while_it_trains_and_reset_forgets_them(pretrained):
    gate, pictures = threading.Semaphore(0), []

    def step(*arguments):
        gate.acquire()
        return solution.policy_gradient_step(*arguments)

    bench = live(pretrained, step)
    pictures.append(bench.html)
    bench.train.click()
    for done in range(TINY.steps):
        wait_for(lambda done=done: any(cells[:1] == ["1"] and cells[7] == str(done) for cells in rows(bench)))
        assert bench.train.disabled
        assert bench.reset.disabled
        assert not bench.stop.disabled
        pictures.append(bench.html)
        gate.release()
    bench.wait()
    assert len(set(pictures)) == len(pictures)
    assert not bench.train.disabled
    assert bench.stop.disabled
    bench.reset.click()
    assert bench.html == pictures[0]


def test_stop_ends_a_training_and_another_can_follow(pretrained):
    bench = live(pretrained, settings=ReinforcementSettings(steps=10_000, problems=1, evaluation_problems=1))
    bench.train.click()
    wait_for(lambda: bench.tries[0].steps >= 2)
    other = live(pretrained)
    other.train.click()
    assert other.text.startswith("A training is under way")
    bench.stop.click()
    bench.wait()
    assert bench.tries[0].steps < 10_000
    assert row(bench, "1")[6] == "stopped"
    other.train.click()
    other.wait()
    assert row(other, "1")[6] == "finished"


def test_an_exception_in_the_step_is_one_line_and_the_next_training_runs(pretrained):
    calls = []

    def step(*arguments):
        calls.append(None)
        if len(calls) == 2:
            raise ValueError("wrong shape\nin the loss")
        return solution.policy_gradient_step(*arguments)

    bench = live(pretrained, step)
    bench.train.click()
    bench.wait()
    assert bench.text.splitlines()[0] == "step raised ValueError: wrong shape in the loss"
    assert row(bench, "1")[6:8] == ["failed", "1"]
    bench.train.click()
    bench.wait()
    assert row(bench, "2")[6] == "finished"


def test_an_unfinished_summary_is_named_before_and_while_training(pretrained):
    bench = live(pretrained, summarize=lambda problems, responses: {"accuracy": 1.0})
    assert bench.text.startswith("evaluating the policy raised KeyError: 'writes_states'")
    bench.train.click()
    bench.wait()
    assert bench.text.startswith("evaluating the policy raised KeyError: 'writes_states'")
    assert not bench.train.disabled


def test_metrics_that_are_not_finite_are_shown_as_they_are(pretrained):
    def summarize(problems, responses):
        return {**solution.summarize(problems, responses), "length": float("nan")}

    bench = live(pretrained, summarize=summarize)
    bench.train.click()
    bench.wait()
    assert row(bench, "1")[6] == "finished"
    assert row(bench, "1")[-1] == "nan"


def test_training_leaves_the_starting_model_as_it_was(pretrained):
    before = {name: value.clone() for name, value in pretrained.state_dict().items()}
    bench = live(pretrained)
    bench.train.click()
    bench.wait()
    assert all(torch.equal(value, before[name]) for name, value in pretrained.state_dict().items())


def test_a_tempered_policy_samples_and_scores_with_divided_logits():
    model, problems = new_model(0), sample_problems(6, torch.Generator().manual_seed(0))
    policy, prompts = TemperedTransformer(model, 0.5), encode_prompts(problems)
    sampled = rollout.generate(policy, prompts, generator=torch.Generator().manual_seed(1))
    expected = rollout.generate(model, prompts, temperature=0.5, generator=torch.Generator().manual_seed(1))
    assert torch.equal(sampled, expected)
    logits = model(torch.cat([prompts, sampled], 1)[:, :-1])[:, prompts.shape[1] - 1 :] / 0.5
    scores = logits.log_softmax(-1).gather(-1, sampled[:, :, None])[:, :, 0] * task.response_mask(sampled)
    torch.testing.assert_close(rollout.response_log_probs(policy, prompts, sampled), scores)
    plain = policy.at_temperature_1()
    torch.testing.assert_close(plain(prompts), model(prompts))
    assert plain.head.weight is policy.head.weight
    assert policy.temperature == 0.5


# side_by_side


def test_side_by_side_shows_every_models_answers_and_shares(models):
    explorer = widgets.side_by_side(models)
    explorer.digits.value = "47162"
    header, *samples = rows(explorer)[:7]
    assert header == list(models)
    assert all("worked" in line[-1] for line in samples)
    (shares,) = [cells for cells in rows(explorer) if cells[0] == "pretrained" and len(cells) == 4]
    _, direct, worked, right = shares
    assert float(direct) > 0.8
    assert float(right) < 0.5
    assert float(direct) + float(worked) == pytest.approx(1, abs=0.03)
    _, direct, worked, right = row(explorer, "Dr. GRPO")
    assert float(worked) > 0.95
    assert float(right) > 0.9
    before = explorer.text
    explorer.resample.click()
    assert explorer.text != before


# pass_at_k_explorer


def test_the_slider_reads_off_the_students_pass_at_k_and_the_naive_bias():
    explorer = widgets.pass_at_k_explorer(COUNTS, solution.pass_at_k)
    explorer.k.value = 2
    # By hand: the mean over c of 1 - (64-c)(63-c)/(64*63), and naively of 1 - (1 - c/64)^2.
    unbiased = [1 - (64 - c) * (63 - c) / (64 * 63) for c in COUNTS["pretrained"]]
    naive = [1 - (1 - c / 64) ** 2 for c in COUNTS["pretrained"]]
    exact, biased = sum(unbiased) / 4, sum(naive) / 4
    assert row(explorer, "pretrained") == ["pretrained", f"{exact:.3f}"]
    plain = explorer.html
    explorer.naive.value = True
    assert row(explorer, "pretrained")[1:] == [f"{exact:.3f}", f"{biased:.3f}", f"{biased - exact:+.3f}"]
    assert "dashed" in explorer.text
    explorer.naive.value = False
    assert explorer.html == plain


@pytest.mark.parametrize(
    ("estimate", "said"),
    [
        (lambda n, c, k: None, "returned None; a finite number is needed"),
        (lambda n, c, k: float("nan"), "returned nan; a finite number is needed"),
        (lambda n, c, k: 1 / (k - 3), "with n=64, c=0, k=3: <lambda> raised ZeroDivisionError"),
    ],
)
def test_a_pass_at_k_that_fails_gives_one_line(estimate, said):
    explorer = widgets.pass_at_k_explorer(COUNTS, estimate)
    assert said in lone_line(explorer)


@pytest.mark.parametrize(("counts", "said"), [([65], "count 65 of x"), ([-1], "count -1 of x"), ([], "no counts")])
def test_bad_counts_are_refused(counts, said):
    with pytest.raises(LabError, match=said):
        widgets.pass_at_k_explorer({"x": counts}, solution.pass_at_k)


# response_tree


def test_the_tree_is_exact(models):
    """Its probabilities are those of the plain forward pass, its boxes fill the axis, nothing likely is missing."""
    problem = Problems.from_digits([[4, 7, 1]])
    for model in models.values():
        prefixes = tree.response_prefixes(model, problem)
        assert sum(prefix.probability for prefix in prefixes if prefix.finished) == pytest.approx(1, abs=1e-6)
        complete = [prefix for prefix in prefixes if prefix.finished and not prefix.gathered]
        for prefix in complete:
            response = torch.tensor([[*prefix.tokens] + [task.PAD] * (12 - len(prefix.tokens))])
            log_probs = solution.response_log_probs(model, encode_prompts(problem), response)
            assert prefix.probability == pytest.approx(log_probs.sum().exp().item(), rel=1e-4)
        assert all(prefix.probability >= tree.THRESHOLD for prefix in complete)


def test_the_tree_agrees_with_sampled_frequencies(pretrained):
    problem = Problems.from_digits([[4, 7, 1]])
    samples = 4000
    generator = torch.Generator().manual_seed(0)
    responses = rollout.generate(pretrained, encode_prompts(problem), samples, generator=generator)
    for prefix in tree.response_prefixes(pretrained, problem):
        if prefix.gathered:
            continue
        begins = (responses[:, : len(prefix.tokens)] == torch.tensor(prefix.tokens)).all(1)
        error = 5 * (prefix.probability * (1 - prefix.probability) / samples) ** 0.5
        assert begins.float().mean().item() == pytest.approx(prefix.probability, abs=error), prefix.tokens


def test_children_lie_within_their_parents_box(pretrained):
    prefixes = tree.response_prefixes(pretrained, Problems.from_digits([[4, 7, 1]]))
    boxes = {prefix.tokens: prefix for prefix in prefixes if not prefix.gathered}
    for prefix in prefixes:
        parent = boxes.get(prefix.tokens if prefix.gathered else prefix.tokens[:-1])
        if parent is not None:
            assert parent.start - 1e-9 <= prefix.start
            assert prefix.start + prefix.probability <= parent.start + parent.probability + 1e-6


def test_the_tree_names_the_branches_before_and_after(models):
    explorer = widgets.response_tree(models)
    before, after = row(explorer, "pretrained"), row(explorer, "Dr. GRPO")
    prefixes = tree.response_prefixes(models["pretrained"], Problems.from_digits([[4, 7, 1]]))
    first = {prefix.tokens[0]: prefix.probability for prefix in prefixes if prefix.depth == 1 and not prefix.gathered}
    assert before[1:3] == [f"{first[ARROW]:.3f}", f"{first[COLON]:.3f}"]
    assert float(before[1]) > 0.8
    assert float(after[2]) > 0.95
    assert float(after[3]) > float(before[3])
    explorer.digits.value = "47"
    assert row(explorer, "pretrained") != before
