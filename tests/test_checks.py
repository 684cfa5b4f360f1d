"""The self-checks: held to the bank of known mistakes, and to functions that do anything but what they should."""

import contextlib
import dataclasses
import fractions
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import golden
import lab16_llm_rl
import numpy as np
import pytest
import torch
from conftest import KILL_MATRIX

from labutils import checks
from labutils.checks import CASES, check, guard
from labutils.checks.golden import read_golden
from labutils.checks.models import UNUSED, scripted_model, scripted_problems, scripted_responses
from labutils.checks.sampling import LANGUAGE
from labutils.checks.values import first_difference
from labutils.errors import LabError
from labutils.results import CHECK_MIME
from labutils.task import encode_prompts, response_mask

EXERCISES = list(CASES)
np.random.random()  # the first draw of a process moves NumPy's whole state, a later one its place only


@pytest.fixture
def patient(monkeypatch):
    """On a slow machine, the time must not decide whether a function is right."""
    monkeypatch.setattr(checks, "SECONDS", 30.0)


# The bank ---------------------------------------------------------------------------------------------------------


def test_every_exercise_of_the_parts_has_a_check():
    assert sorted(EXERCISES) == sorted(golden.exercises())


@pytest.mark.parametrize("exercise", EXERCISES)
@pytest.mark.usefixtures("patient")
def test_the_reference_solution_passes(exercise):
    report = check(getattr(lab16_llm_rl, exercise))
    assert report.passed, str(report)
    assert (report.score, report.diagnosis, report.example) == (1.0, None, "")


@pytest.mark.parametrize("exercise", EXERCISES)
@pytest.mark.usefixtures("patient")
def test_the_bank_is_told_apart(exercise, request):
    """Every wrong variant fails, nine in ten are named, every correct one passes, and every case fails one."""
    bank = golden.bank(exercise)
    wrong = {name: check(function) for name, function in bank.mistakes.items()}
    correct = {name: check(function) for name, function in bank.correct.items()}
    survivors = [name for name, report in wrong.items() if report.passed]
    unnamed = [name for name, report in wrong.items() if not (report.diagnosis or "").startswith(f"{name}: ")]
    rejected = {name: report.diagnosis for name, report in correct.items() if not report.passed}
    request.config.stash[KILL_MATRIX][exercise] = {
        "wrong": len(wrong),
        "killed": len(wrong) - len(survivors),
        "named": len(wrong) - len(unnamed),
        "correct": len(correct),
        "rejected": len(rejected),
    }
    assert not survivors
    assert not rejected
    assert len(unnamed) <= 0.1 * len(wrong), unnamed
    named_otherwise = [name for name in unnamed for other in wrong if wrong[name].diagnosis.startswith(f"{other}: ")]
    assert not named_otherwise, "a wrong name is worse than none"
    idle = {case.name for case in CASES[exercise]}
    for report in wrong.values():
        idle -= {name for name, passed in report.cases if not passed}
    assert not idle, "cases that no known mistake fails"


@pytest.mark.parametrize("exercise", EXERCISES)
def test_the_golden_data_are_those_of_the_solution_and_the_bank(exercise):
    known, new = read_golden(exercise), golden.golden_data(exercise)
    stale = "run python solutions/golden.py"
    assert list(known.expected) == list(new["expected"]), stale
    assert list(known.mistakes) == list(new["mistakes"]), stale
    for case in CASES[exercise]:
        right, old_right = new["expected"][case.name], known.expected[case.name]
        assert first_difference(right, old_right, case.tolerance) is None, f"{case.name}: {stale}"
    tolerances = {case.name: case.tolerance for case in CASES[exercise]}
    for name, outcomes in new["mistakes"].items():
        assert outcomes.keys() == known.mistakes[name].keys(), f"{name}: {stale}"
        for case, outcome in outcomes.items():
            old = known.mistakes[name][case]
            same = outcome is old is None or first_difference(outcome, old, tolerances[case]) is None
            assert same, f"{name}, {case}: {outcome}, recorded {old}; {stale}"


def test_writing_the_golden_data_again_changes_nothing(monkeypatch, tmp_path):
    shutil.copy(golden.SCRIPTED_MODEL, tmp_path)
    monkeypatch.setattr(golden, "FOLDER", tmp_path)
    monkeypatch.setattr(golden, "CASES", {"sum_weights": CASES["sum_weights"]})
    golden.write()
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    golden.write()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == written
    assert sorted(written) == ["scripted.safetensors", "sum_weights.json"]


def test_the_golden_data_hold_no_code():
    for exercise in EXERCISES:
        text = (golden.FOLDER / f"{exercise}.json").read_text(encoding="utf-8")
        json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
        assert "def " not in text
        assert "lambda" not in text


def test_the_script_is_certain():
    """The false-alarm rates that the checks state rest on these probabilities."""
    model, problems, responses = scripted_model(), scripted_problems(), scripted_responses()
    sequences, mask = torch.cat([encode_prompts(problems), responses], 1)[:, :-1], response_mask(responses)
    log_probs = model(sequences)[:, 8:][mask].log_softmax(-1)
    others = torch.ones_like(log_probs, dtype=torch.bool).scatter_(1, responses[mask][:, None], False)
    assert log_probs[others].max() < math.log(5e-10)
    assert (log_probs[:, UNUSED].exp().sum(1) < 1.2e-9).all()
    assert log_probs[:, UNUSED].min() > -26, "the gradients would be lost in rounding"
    assert set(responses[mask].tolist()).isdisjoint(UNUSED)


# What a report says -----------------------------------------------------------------------------------------------


def own_reward(rewards):
    return rewards - rewards.mean(1, keepdim=True)


def named(exercise, function):
    function.__name__ = exercise
    return function


def failed(exercise, function):
    """The report on a function, which must be a failed one."""
    report = check(named(exercise, function))
    assert not report.passed, str(report)
    assert report.score < 1
    return report


def test_a_known_mistake_is_named_with_got_and_expected():
    report = failed("rloo_advantages", own_reward)
    assert report.diagnosis == "the baseline contains the response's own reward: got 0.5, expected 0.6667"
    assert "rewards =\n[1, 0, 0, 1]" in report.example
    assert "expected =\n[0.6667, -0.6667" in report.example
    assert "got =\n[0.5, -0.5" in report.example


def test_an_unknown_mistake_is_shown_by_its_first_failing_case():
    report = failed("dr_grpo_advantages", lambda rewards: rewards - 0.123)
    assert re.fullmatch(r"three groups of four: got 0\.877, expected 0\.5", report.diagnosis)
    assert report.cases[0] == ("three groups of four", False)


def rloo_advantages(rewards):
    raise NotImplementedError


def test_the_empty_stub_is_not_written_yet():
    report = failed("rloo_advantages", rloo_advantages)
    assert report.diagnosis == "rloo_advantages is not written yet"
    assert report.score == 0
    assert "Traceback" not in str(report)


def test_a_stub_that_the_function_calls_is_named():
    report = failed("dr_grpo_advantages", lambda rewards: rloo_advantages(rewards) / 2)
    assert report.diagnosis == "rloo_advantages is not written yet"


@pytest.mark.parametrize(
    "function",
    [lambda rewards: torch.nn.Module()(rewards), lambda rewards: torch.empty(2, device="meta").tolist()],
    ids=["in Python", "in compiled code"],
)
def test_a_library_that_has_not_implemented_something_is_an_error_like_others(function):
    report = failed("rloo_advantages", function)
    assert "raised NotImplementedError" in report.diagnosis
    assert "not written yet" not in str(report)


def test_a_report_shows_as_text_html_and_data():
    report = failed("rloo_advantages", lambda rewards: f"<b>{len(rewards)}</b>" and {"<script>": 1}["&"])
    bundle = report._repr_mimebundle_()
    assert bundle["text/plain"] == str(report)
    assert bundle[CHECK_MIME] == {
        "exercise": "rloo_advantages", "passed": False, "score": 0.0, "diagnosis": report.diagnosis,
    }  # fmt: skip
    json.dumps(bundle[CHECK_MIME], allow_nan=False)
    page = bundle["text/html"]
    assert "<b>" not in page
    assert "<script>" not in page
    assert "✗ failed" in page, "colour alone does not tell"
    assert "✓ passed" in check(lab16_llm_rl.rloo_advantages)._repr_html_()


def test_a_name_that_is_no_exercise_is_refused():
    with pytest.raises(LabError, match="'own_rewards' has no self-check; allowed are functions called running_states"):
        check(named("own_rewards", lambda rewards: rewards))
    with pytest.raises(LabError, match="has no self-check"):
        check(5)


# Functions that do anything ---------------------------------------------------------------------------------------


def loop_for_ever(rewards):
    while True:
        pass


def loop_that_catches(rewards):
    while True:
        with contextlib.suppress(Exception):
            time.sleep(0.001)


def loop_that_catches_everything(rewards):
    while True:
        try:  # noqa: SIM105
            time.sleep(1000)
        except:  # noqa: E722
            pass


def loop_in_a_library(rewards):
    while True:
        fractions.Fraction("3.1415926535897932").limit_denominator(1000)


@pytest.mark.parametrize(
    "function",
    [
        loop_for_ever,
        loop_that_catches,
        loop_that_catches_everything,
        loop_in_a_library,
        lambda rewards: time.sleep(1000),
        lambda rewards: threading.Event().wait(1000),
    ],
    ids=["loop", "catches", "catches everything", "library", "sleeps", "waits in a library"],
)
def test_what_does_not_end_is_stopped(function, monkeypatch):
    monkeypatch.setattr(checks, "SECONDS", 0.2)
    handler, tracing, threads = signal.getsignal(signal.SIGINT), sys.gettrace(), threading.enumerate()
    report = failed("rloo_advantages", function)
    assert "did not finish within 0.2 seconds of computing, or 1.2 in all, and was stopped" in report.diagnosis
    assert signal.getsignal(signal.SIGINT) is handler
    assert sys.gettrace() is tracing
    assert threading.enumerate() == threads


def test_only_time_to_compute_counts(monkeypatch):
    """A machine that is busy with other things stops no function that is right."""
    monkeypatch.setattr(checks, "SECONDS", 1.0)
    monkeypatch.setattr(guard, "WAIT", 1000)
    waits = [1.5]

    def wait(rewards):
        time.sleep(waits.pop() if waits else 0)
        return lab16_llm_rl.rloo_advantages(rewards)

    report = check(named("rloo_advantages", wait))
    assert report.passed, str(report)


def test_a_library_is_not_stopped_half_way(monkeypatch):
    monkeypatch.setattr(checks, "SECONDS", 0.2)
    monkeypatch.setattr(guard, "WAIT", 1000)
    library = {"begun": [], "ended": []}
    exec("def work():\n    begun.append(1)\n    for _ in range(10**5): pass\n    ended.append(1)\n", library)

    def loop(rewards):
        while True:
            library["work"]()

    assert "was stopped" in failed("rloo_advantages", loop).diagnosis
    assert len(library["begun"]) == len(library["ended"]) > 0


def test_ctrl_c_is_let_through():
    def interrupt(rewards):
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        check(named("rloo_advantages", interrupt))


def test_a_check_works_in_another_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(check(named("rloo_advantages", own_reward))))
    thread.start()
    thread.join()
    assert "own reward" in found[0].diagnosis


ASKED = []  # methods of a student's objects that were called


def asked(name, answer):
    def method(*_):
        ASKED.append(name)
        return answer

    return method


class OddClass(type):
    __eq__ = asked("type ==", True)
    __hash__ = type.__hash__
    __name__ = property(asked("type name", "Tensor"))
    __mro__ = property(asked("type mro", ()))
    __instancecheck__ = asked("isinstance", True)


class EqualToEverything(metaclass=OddClass):
    __class__ = property(asked("class", float))
    __eq__ = asked("==", True)
    __hash__ = asked("hash", hash("accuracy"))
    __float__ = asked("float", 0.5)
    __int__ = __index__ = __len__ = asked("int", 1)
    __iter__ = asked("iter", iter([1]))
    __repr__ = __str__ = asked("text", "0.5")
    __getattr__ = asked("getattr", None)


class OddTensor(torch.Tensor):
    tolist = asked("tolist", [[0.6667]])
    __torch_function__ = classmethod(asked("torch function", torch.zeros(3, 4)))


class OddFloat(float):
    __float__ = asked("float", 0.5)


class OddList(list):
    __len__ = asked("len", 1)
    __iter__ = asked("iter", iter([1]))


class OddDict(dict):
    __getitem__ = asked("[]", 0.5)
    items = keys = asked("items", [])


class OddText(str):
    __eq__ = asked("==", True)
    __hash__ = str.__hash__


class UnprintableError(Exception):
    __str__ = asked("text", "no text")
    __class__ = property(asked("class", SystemExit))
    __traceback__ = property(asked("traceback", None))
    args = property(asked("args", ()))


def lying_tensor(rewards):
    """An ordinary tensor, whose attributes hide its methods."""
    right, result = lab16_llm_rl.rloo_advantages(rewards), torch.zeros_like(rewards)
    for name in ("detach", "double", "clone", "sum"):
        setattr(result, name, asked(name, right))
    result.tolist, result.numel = asked("tolist", right.tolist()), asked("numel", right.numel())
    return result


@pytest.mark.parametrize(
    ("exercise", "result", "words"),
    [
        ("rloo_advantages", EqualToEverything, "an EqualToEverything where a tensor belongs"),
        ("rloo_advantages", lambda: torch.zeros(3, 4).as_subclass(OddTensor), "an OddTensor where a tensor belongs"),
        ("rloo_advantages", lambda: lying_tensor(torch.eye(4)[:3]), "got 0, expected 0.6667"),
        ("kl_per_response", EqualToEverything, "an EqualToEverything where a number belongs"),
        ("pass_at_k", EqualToEverything, "an EqualToEverything where a number belongs"),
        ("pass_at_k", lambda: OddFloat(0.9), "an OddFloat where a number belongs"),
        ("running_states", EqualToEverything, "an EqualToEverything where a list belongs"),
        ("running_states", lambda: [EqualToEverything()], "holds an EqualToEverything where ints belong"),
        ("running_states", lambda: OddList([4, 9, 8]), "an OddList where a list belongs"),
        ("summarize", EqualToEverything, "an EqualToEverything where a dict belongs"),
        ("summarize", lambda: OddDict(accuracy=0.5), "an OddDict where a dict belongs"),
        ("summarize", lambda: {OddText("accuracy"): 0.5}, "a dict without the key 'accuracy'"),
        ("summarize", lambda: {"accuracy": EqualToEverything()}, "without the key 'writes_states'"),
        ("sample_responses", EqualToEverything, "an EqualToEverything where a tensor belongs"),
        ("response_log_probs", lambda: lying_tensor(torch.eye(12)[:2]), "got 0, expected -"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_nothing_is_asked_of_an_unknown_object(exercise, result, words):
    results = [result() for _ in range(40)]
    ASKED.clear()
    report = failed(exercise, lambda *_, **__: results.pop())
    assert ASKED == [], "methods of the student's objects were called"
    assert words in report.diagnosis


def test_nothing_is_asked_of_an_exception():
    ASKED.clear()
    report = failed("rloo_advantages", raising(UnprintableError(EqualToEverything(), "the text")))
    assert "raised Exception (the text), in line" in report.diagnosis
    assert ASKED == []


def test_a_changed_argument_cannot_hide_it():
    def function(rewards):
        right, before = lab16_llm_rl.rloo_advantages(rewards), rewards.clone()
        rewards.add_(1)
        rewards.detach = asked("detach", before)
        return right

    ASKED.clear()
    report = failed("rloo_advantages", function)
    assert "the argument `rewards` changed" in report.diagnosis
    assert ASKED == []


def step_that_shows(shown):
    """A step that is right, but for what the estimator gets."""

    def function(policy, optimizer, problems, estimator, generator):
        def advantages(rewards):
            return estimator.advantages(shown(rewards))

        other = dataclasses.replace(estimator, advantages=advantages)
        return lab16_llm_rl.policy_gradient_step(policy, optimizer, problems, other, generator)

    return function


@pytest.mark.usefixtures("patient")
def test_what_the_estimator_gets_is_read_by_exact_type():
    assert check(named("policy_gradient_step", step_that_shows(lambda rewards: rewards))).passed

    class Odd(torch.Tensor):
        pass

    report = failed("policy_gradient_step", step_that_shows(lambda rewards: rewards.as_subclass(Odd)))
    assert "an Odd where a tensor belongs" in report.diagnosis


def nan_gradient(tensor):
    """0, with a gradient that is NaN."""
    return 0 * (tensor * 0).sqrt()


def nan_loss(log_probs, responses):
    return lab16_llm_rl.pretraining_loss(log_probs, responses) + nan_gradient(log_probs).sum()


def nan_loss_beyond_end(log_probs, responses):
    beyond = log_probs[~response_mask(responses)]
    return lab16_llm_rl.pretraining_loss(log_probs, responses) + nan_gradient(beyond).sum()


def nan_policy_loss(log_probs, advantages, weights):
    return lab16_llm_rl.policy_loss(log_probs, advantages, weights) + nan_gradient(log_probs).sum()


def nan_log_probs(model, prompts, responses):
    log_probs = lab16_llm_rl.response_log_probs(model, prompts, responses)
    return log_probs + nan_gradient(log_probs)


@pytest.mark.parametrize(
    ("exercise", "function"),
    [
        ("pretraining_loss", nan_loss),
        ("pretraining_loss", nan_loss_beyond_end),
        ("policy_loss", nan_policy_loss),
        ("response_log_probs", nan_log_probs),
    ],
)
def test_a_gradient_that_is_nan_fails(exercise, function):
    report = failed(exercise, function)
    assert re.match(r"the gradient at .*: got NaN, expected ", report.diagnosis), report.diagnosis


def test_a_loss_that_is_nan_is_a_single_number():
    def function(log_probs, advantages, weights):
        return lab16_llm_rl.policy_loss(log_probs, advantages, weights) * float("nan")

    outcomes = checks.observe(named("policy_loss", function), 30.0).outcomes
    assert outcomes["the gradient at the log-probs"][0] == ["NaN"] * 4


@pytest.mark.usefixtures("patient")
def test_a_step_with_nan_in_any_gradient_fails():
    def function(policy, *arguments):
        policy.token_embedding.weight.register_hook(lambda gradient: gradient * float("nan"))
        return lab16_llm_rl.policy_gradient_step(policy, *arguments)

    report = failed("policy_gradient_step", function)
    assert report.diagnosis == "the gradient of the step: a gradient with NaN or infinity in it"


def raising(error):
    def function(rewards):
        raise error

    return function


def change(action):
    """A right answer, after doing something that it must not."""

    def function(rewards):
        right = lab16_llm_rl.rloo_advantages(rewards)
        action(rewards)
        return right

    return function


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda rewards: None, "None (a return is missing) where a tensor belongs"),
        (lambda rewards: 1.5, "a float where a tensor belongs"),
        (lambda rewards: rewards.tolist(), "a list where a tensor belongs"),
        (lambda rewards: rewards.long(), "a tensor of torch.int64 where floating-point numbers belong"),
        (lambda rewards: rewards[0], "got shape (4,), expected shape (3, 4)"),
        (lambda rewards: rewards.sum(), "got a single number, expected shape (3, 4)"),
        (lambda rewards: rewards * float("nan"), "got NaN, expected 0.6667"),
        (lambda rewards: rewards / 0, "got infinity, expected 0.6667"),
        (lambda rewards: rewards.to_sparse(), "a tensor that is sparse"),
        (lambda rewards: torch.zeros(200, 200), "a tensor of shape (200, 200), far too large"),
        (lambda rewards: rewards.oops, "raised AttributeError ('Tensor' object has no attribute 'oops'), in line"),
        (lambda: 0, "raised TypeError"),
        (raising(KeyboardInterrupt()), "raised KeyboardInterrupt"),
        (raising(SystemExit(0)), "called exit()"),
        (lambda rewards: sys.exit(0), "called exit()"),
        (lambda rewards: input("?"), "raised RuntimeError (input() has nobody to ask here)"),
        (change(lambda rewards: rewards.add_(1)), "the argument `rewards` changed"),
        (change(lambda rewards: torch.manual_seed(0)), "changed the state of the global random numbers"),
        (change(lambda rewards: random.random()), "changed the state of the global random numbers"),
        (change(lambda rewards: np.random.random()), "changed the state of the global random numbers"),
        (change(lambda rewards: torch.set_num_threads(2)), "changed PyTorch's number of threads"),
        (change(lambda rewards: torch.set_default_dtype(torch.float64)), "changed PyTorch's default dtype"),
        (change(lambda rewards: torch.set_grad_enabled(False)), "switched gradients on or off"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_else_a_function_does_is_said_in_words(function, words):
    before = (torch.get_rng_state(), random.getstate(), torch.get_num_threads(), torch.get_default_dtype())
    report = failed("rloo_advantages", function)
    assert words in report.diagnosis
    assert words in str(report)
    after = (torch.get_rng_state(), random.getstate(), torch.get_num_threads(), torch.get_default_dtype())
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]
    assert torch.is_grad_enabled()


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited on Linux only")
@pytest.mark.parametrize("take", [lambda _: torch.ones(10**10), lambda _: [0] * 10**10])
def test_a_function_that_takes_too_much_memory_fails(take):
    import resource

    before = resource.getrlimit(resource.RLIMIT_AS)
    assert "raised" in failed("rloo_advantages", take).diagnosis
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_what_is_printed_is_kept_out_of_the_page_and_said(capsys):
    def chatty(rewards):
        for _ in range(1000):
            print("looking at", rewards.shape)
        return lab16_llm_rl.rloo_advantages(rewards)

    report = check(named("rloo_advantages", chatty))
    assert report.passed
    assert "It printed: looking at" in str(report)
    assert len(str(report)) < 1500
    assert capsys.readouterr().out == ""


def test_a_notebooks_exit_only_raises():
    """In a notebook `exit` is an object of the page that ends the kernel, not Python's own."""
    ended = []
    page = {"exit": lambda: ended.append(True)}
    exec("def rloo_advantages(rewards):\n    exit()\n", page)
    assert "called exit()" in check(page["rloo_advantages"]).diagnosis
    page["exit"]()
    assert ended == [True], "only what is called after the check"


def test_lists_numbers_and_dicts_are_read_by_exact_type():
    assert (
        "a tensor where a list belongs"
        in failed("running_states", lambda digits: torch.tensor(digits)).diagnosis.lower()
    )
    assert "holds a float where ints belong" in failed("running_states", lambda digits: [1.0, 2.0]).diagnosis
    huge = failed("running_states", lambda digits: [10**400] * len(digits)).diagnosis
    assert "holds an int that is far too large" in huge
    assert check(named("running_states", lambda d: tuple(np.int64(s) for s in lab16_llm_rl.running_states(d)))).passed
    assert "without the key 'accuracy'" in failed("summarize", lambda problems, responses: {}).diagnosis
    half = {"accuracy": torch.tensor(0.5), "writes_states": 0.5, "length": 3.0}
    assert "a Tensor where a number belongs, under the key 'accuracy'" in failed("summarize", lambda *_: half).diagnosis
    assert "a bool where a number belongs" in failed("pass_at_k", lambda n, c, k: True).diagnosis


def test_a_step_that_is_replaced_by_its_result_is_found_out():
    """No reward or loss can be guessed: gradients are looked at where they arrive."""
    report = failed("policy_gradient_step", lambda *_: {"reward": 1 / 3, "loss": 0.0})
    assert not any(passed for _, passed in report.cases)


FIRST_CHECK = """
import contextlib, sys
import lab16_llm_rl, torch
from labutils import checks

limits = checks.limits

@contextlib.contextmanager
def watched(*arguments):
    before = set(sys.modules)
    with limits(*arguments) as output:
        yield output
    print("loaded:", *sorted(set(sys.modules) - before))

checks.limits = watched
state = torch.get_rng_state()
checks.observe(lab16_llm_rl.policy_gradient_step, 30.0)
print("random numbers:", "as before" if torch.equal(state, torch.get_rng_state()) else "drawn")
"""


def test_the_first_step_of_a_process_loads_nothing_within_its_time():
    """Nor does the warm-up, which is outside of it, draw a student's random numbers."""
    environment = {**os.environ, "PYTHONPATH": str(Path(golden.__file__).parent)}
    process = subprocess.run([sys.executable, "-c", FIRST_CHECK], env=environment, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines() == ["loaded:", "random numbers: as before"]


@pytest.mark.usefixtures("patient")
def test_a_sampler_gets_models_that_it_can_only_ask():
    """The fast engine works on them, too, since they are transformers like any other."""
    from labutils import rollout

    def sample_responses(model, prompts, temperature=1.0, generator=None):
        return rollout.generate(model, prompts, 1, temperature, generator)

    report = check(sample_responses)
    assert report.passed, str(report)
    assert all(abs(sum(row.values()) - 1) < 1e-9 for row in LANGUAGE.values())
