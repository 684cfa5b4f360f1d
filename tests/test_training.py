"""The loops: stopping and going on changes nothing, and nothing damaged or foreign is used."""

import os
import signal
from functools import partial

import lab16_llm_rl as lab
import pytest
import torch
from reference import plain_log_probs

from labutils import training
from labutils.checkpoints import save_model
from labutils.errors import LabError
from labutils.task import encode_prompts
from labutils.training import PretrainingSettings, ReinforcementSettings

PRETRAINING = PretrainingSettings(steps=12, batch=8)
REINFORCEMENT = ReinforcementSettings(steps=6, problems=4, evaluate_every=2, evaluation_problems=2)


class Interrupt:
    """A function that sends this process Ctrl-C at its n-th call, in the middle of a step."""

    def __init__(self, function, call):
        self.function, self.calls_left = function, call

    def __call__(self, *arguments):
        self.calls_left -= 1
        if self.calls_left == 0:
            os.kill(os.getpid(), signal.SIGINT)
        return self.function(*arguments)


def parameters(state):
    return torch.cat([value.flatten() for value in state.model.state_dict().values()])


def pretrain(path=None, loss=lab.pretraining_loss, settings=PRETRAINING):
    return training.pretrain(loss, settings, path, progress=False)


def reinforce(path=None, step=lab.policy_gradient_step, settings=REINFORCEMENT, name="dr_grpo"):
    start = training.new_model(0)
    evaluate = partial(
        training.evaluate_policy,
        reference=start,
        problems=training.evaluation_set(2),
        summarize=lab.summarize,
        kl_per_response=lab.kl_per_response,
    )

    def measure(policy, generator):
        return evaluate(policy, generator=generator)

    about = {"estimator": name}
    return training.reinforce(start, step, lab.ESTIMATORS[name], measure, settings, path, about, progress=False)


@pytest.mark.parametrize("call", [1, 5, 12])
def test_an_interrupted_pretraining_goes_on_to_the_same_numbers(tmp_path, call):
    path, whole = tmp_path / "state.safetensors", pretrain()
    with pytest.raises(KeyboardInterrupt, match=f"pretraining stopped after step {call}"):
        pretrain(path, Interrupt(lab.pretraining_loss, call))
    seen = []
    state = pretrain(path, lambda *pair: seen.append(1) or lab.pretraining_loss(*pair))
    assert len(seen) == 12 - call  # no step is taken twice
    assert state.step == 12
    assert torch.equal(parameters(state), parameters(whole))


@pytest.mark.parametrize("call", [1, 4, 6])
def test_an_interrupted_reinforcement_goes_on_to_the_same_numbers(tmp_path, call):
    path, whole = tmp_path / "state.safetensors", reinforce()
    with pytest.raises(KeyboardInterrupt):
        reinforce(path, Interrupt(lab.policy_gradient_step, call))
    state = reinforce(path)
    assert state.history == whole.history
    assert sorted(state.history) == [0, 2, 4, 6]
    assert torch.equal(parameters(state), parameters(whole))


def test_a_finished_run_is_read_and_not_repeated(tmp_path):
    path = tmp_path / "state.safetensors"
    first = reinforce(path)

    def never(*_):
        raise AssertionError("a finished run was run again")

    again = reinforce(path, never)
    assert again.history == first.history
    assert torch.equal(parameters(again), parameters(first))


def test_a_failing_step_leaves_the_last_saved_state(tmp_path):
    path, calls = tmp_path / "state.safetensors", []

    def fails_at_the_fourth(*arguments):
        calls.append(1)
        if len(calls) == 4:
            raise RuntimeError("a student's mistake")
        return lab.policy_gradient_step(*arguments)

    with pytest.raises(RuntimeError, match="a student's mistake"):
        reinforce(path, fails_at_the_fourth)
    assert reinforce(path).history == reinforce().history


def test_a_damaged_state_is_named_set_aside_and_not_used(tmp_path):
    path = tmp_path / "state.safetensors"
    whole = pretrain(path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.warns(UserWarning, match=r"state\.safetensors is damaged.*not used, set aside as state\.damaged"):
        state = pretrain(path)
    assert torch.equal(parameters(state), parameters(whole))
    assert (tmp_path / "state.damaged").read_bytes() == content[: len(content) // 2]


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (pretrain, partial(pretrain, settings=PretrainingSettings(steps=12, batch=9)), "batch 8, not 9"),
        (pretrain, partial(pretrain, settings=PretrainingSettings(12, 8, seed=1)), "seed 0, not 1"),
        (reinforce, partial(reinforce, name="rloo"), "estimator 'dr_grpo', not 'rloo'"),
        (pretrain, reinforce, "batch 8, not None"),
    ],
)
def test_a_state_of_other_settings_is_refused_and_kept(tmp_path, first, second, message):
    path = tmp_path / "state.safetensors"
    first(path)
    before = path.read_bytes()
    with pytest.raises(LabError, match=f"state.safetensors is of a run with {message}"):
        second(path)
    assert path.read_bytes() == before


def test_the_learning_rate_follows_the_one_cycle_schedule_across_a_stop(tmp_path, monkeypatch):
    """The rates used, recorded at every step, are PyTorch's own for an uninterrupted run."""
    used = []
    step = torch.optim.AdamW.step

    def recording(self, *arguments, **named):
        group = self.param_groups[0]
        used.append((group["lr"], group["betas"]))
        return step(self, *arguments, **named)

    monkeypatch.setattr(torch.optim.AdamW, "step", recording)
    path = tmp_path / "state.safetensors"
    with pytest.raises(KeyboardInterrupt):
        pretrain(path, Interrupt(lab.pretraining_loss, 5))
    pretrain(path)
    interrupted, used[:] = list(used), []
    pretrain()
    assert interrupted == used
    assert max(rate for rate, _ in used) == pytest.approx(1e-3, rel=0.1)


def test_pretraining_minimises_the_students_loss():
    settings = PretrainingSettings(steps=60, batch=32)
    losses = []

    def recording(log_probs, responses):
        value = lab.pretraining_loss(log_probs, responses)
        losses.append(value.item())
        return value

    pretrain(loss=recording, settings=settings)
    assert sum(losses[-10:]) < 0.7 * sum(losses[:10])


def test_evaluation_covers_every_length_equally():
    lengths = training.evaluation_set(3).lengths.tolist()
    assert lengths == [n for n in range(2, 9) for _ in range(3)]


def test_the_divergence_of_a_policy_from_itself_is_zero():
    model = training.new_model(0)
    metrics = training.evaluate_policy(
        model, model, training.evaluation_set(2), lab.summarize, lab.kl_per_response,
        torch.Generator().manual_seed(0),
    )  # fmt: skip
    assert metrics["kl"] == 0


def test_the_recorded_divergence_is_of_the_policy_from_the_reference():
    """Two different models: the same responses, scored by the plain forward pass, policy less reference."""
    policy, reference, problems = training.new_model(0), training.new_model(1), training.evaluation_set(2)
    metrics = training.evaluate_policy(
        policy, reference, problems, lab.summarize, lab.kl_per_response, torch.Generator().manual_seed(0)
    )
    prompts = encode_prompts(problems)
    responses = training.rollout.generate(policy, prompts, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        scores = [plain_log_probs(model, prompts, responses).sum(1) for model in (policy, reference)]
    assert metrics["kl"] == pytest.approx((scores[0] - scores[1]).mean().item(), abs=1e-4)
    assert metrics["kl"] > 0
    assert metrics["length"] == lab.summarize(problems, responses)["length"]


def test_a_second_ctrl_c_stops_a_step_that_does_not_end():
    def endless(*_):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("the second interruption was swallowed")

    with pytest.raises(KeyboardInterrupt):
        pretrain(loss=endless)


def test_a_model_in_the_place_of_a_state_is_refused(tmp_path):
    path = tmp_path / "state.safetensors"
    save_model(path, training.new_model(0), {"seed": 0})
    with pytest.raises(LabError, match=r"state\.safetensors holds no state of a run"):
        pretrain(path)


def test_counting_correct_responses_in_chunks_counts_them_all(monkeypatch):
    """A model that cannot be right, and one that always is: a stand-in for sampling that answers by the rule."""
    problems = training.evaluation_set(2)
    model = training.new_model(0)

    def answers_even_rows(_, prompts, samples, generator):
        from labutils.task import Problems, encode_responses

        digits = [[d for d in row if d < 10] for row in prompts[:, :-1].tolist()]
        repeated = Problems.from_digits(digits).repeat_interleave(samples)
        responses = encode_responses(repeated, torch.zeros(len(repeated), dtype=torch.bool))
        wrong = torch.arange(len(repeated)) % samples >= len(digits[0])
        responses[wrong, 0] = 12
        return responses

    monkeypatch.setattr(training.rollout, "generate", answers_even_rows)
    monkeypatch.setattr(training, "EVALUATION_CHUNK", 20)
    counts = training.count_correct(model, problems, 9, torch.Generator())
    # Chunks of two problems, which here have the same length: as many right answers as digits.
    assert counts == problems.lengths.tolist()


def test_a_new_model_leaves_the_global_random_state_alone():
    before = torch.random.get_rng_state()
    one, two = training.new_model(5), training.new_model(5)
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(one.head.weight, two.head.weight)
    assert not torch.equal(one.head.weight, training.new_model(6).head.weight)


def test_one_thread_is_given_back():
    before = torch.get_num_threads()
    with training.one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


def test_pretraining_records_the_loss_and_tells_who_watches(tmp_path):
    settings, seen = PretrainingSettings(steps=110, batch=2), []
    loss = lambda log_probs, responses: -log_probs.sum() / 10  # noqa: E731
    path = tmp_path / "state.safetensors"
    state = training.pretrain(loss, settings, path, watch=lambda history: seen.append(list(history)), progress=False)
    assert seen == [[50], [50, 100], [50, 100, 110]]
    assert all(metrics["loss"] > 0 for metrics in state.history.values())
    assert training.pretrain(loss, settings, path, progress=False).history == state.history
