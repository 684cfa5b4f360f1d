"""How fast the lab is, beside the straightforward implementation, TRL, and the floor; `make bench` runs it.

The straightforward path, the lab and the floor take turns in one process, so that a busy moment falls on all of them;
TRL follows in a process of its own. Each group of measurements has its own process, whose peak memory is reported.
"""

from __future__ import annotations

import platform
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click
import floor
import joblib
import lab16_llm_rl as lab
import straightforward
import torch
import trl_baseline
from machine import machine

from labutils import rollout
from labutils.checkpoints import write_json
from labutils.lab import Lab, shipped_model
from labutils.task import encode_prompts, encode_responses, sample_problems
from labutils.training import Estimator, count_correct, evaluate_policy, evaluation_set

ROUNDS = 15
GROUP_SIZES = (8, 16, 32, 64)
PRETRAINING_STEPS, RUNS, RUN_STEPS, RUN_EVALUATIONS = 4000, 10, 200, 9
# The writing rate passes one half within 25 of 200 steps: that share of a run costs as much as its first step.
EARLY_SHARE = 25 / RUN_STEPS
HERE = Path(__file__).parent

Times = dict[str, float]


def take_turns(contestants: dict[str, Callable[[], object]], rounds: int = ROUNDS) -> Times:
    """Median seconds of each, over rounds in which each runs once; two rounds of warm-up are not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(rounds + 2):
        for name, run in contestants.items():
            began = time.perf_counter()
            run()
            if turn >= 2:
                seconds[name].append(time.perf_counter() - began)
    return {name: statistics.median(values) for name, values in seconds.items()}


def peak_memory() -> float:
    """MB at most so far, of this process."""
    scale = 1 if platform.system() == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale / 1e6


def pretraining_step(threads: int) -> Times:
    """Seconds per step, of both paths and the floor, on the same batches."""
    torch.set_num_threads(threads)
    model = shipped_model("pretrained")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, fused=True)
    generator = torch.Generator().manual_seed(0)

    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        problems = sample_problems(256, generator)
        worked = torch.rand(256, generator=generator) < 0.1
        return encode_prompts(problems), encode_responses(problems, worked)

    def step(log_probs: Callable[..., torch.Tensor]) -> None:
        prompts, responses = batch()
        loss = lab.pretraining_loss(log_probs(model, prompts, responses), responses)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    fast = partial(step, rollout.response_log_probs)
    least = floor.products(floor.linear_shapes(model, fast))
    take_turns({"lab": fast}, rounds=5)
    memory = {"memory lab": peak_memory()}  # before the straightforward path adds to it
    slow = partial(step, straightforward.response_log_probs)
    return take_turns({"straightforward": slow, "lab": fast, "floor": least}) | memory | {"memory": peak_memory()}


def policy_steps(policy_name: str, threads: int, group_sizes: tuple[int, ...], rounds: int) -> dict[str, Times]:
    """Group size -> seconds per RL step of the named policy, whose parameters stay as they are (step size 0).

    The straightforward path takes part with the smallest and the largest group.
    """
    torch.set_num_threads(threads)
    policy = shipped_model(policy_name)
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.0, fused=True)
    generator = torch.Generator().manual_seed(0)
    contestants: dict[str, Callable[[], object]] = {}
    for size in group_sizes:
        estimator = Estimator(lab.dr_grpo_advantages, lab.constant_weights, group_size=size)

        def fast(estimator: Estimator = estimator) -> None:
            lab.policy_gradient_step(policy, optimizer, sample_problems(32, generator), estimator, generator)

        def slow(size: int = size) -> None:
            straightforward.policy_gradient_step(policy, optimizer, sample_problems(32, generator), size)

        contestants[f"lab {size}"] = fast
        contestants[f"floor {size}"] = floor.products(floor.linear_shapes(policy, fast))
        if size in (min(group_sizes), max(group_sizes)):
            contestants[f"straightforward {size}"] = slow
    for _ in range(rounds):
        contestants[f"lab {min(group_sizes)}"]()
    memory = {"memory lab": peak_memory()}  # before the straightforward path adds to it
    times = take_turns(contestants, rounds)
    return {str(size): _of_size(times, size) | memory for size in group_sizes}


def _of_size(times: Times, size: int) -> Times:
    return {name.split()[0]: value for name, value in times.items() if name.endswith(f" {size}")}


def trl_steps(policy_name: str, threads: int) -> Times:
    """Seconds per step of TRL's trainer, from the same policy."""
    seconds = trl_baseline.step_seconds(shipped_model(policy_name), ROUNDS, threads)
    return {"trl": statistics.median(seconds), "memory": peak_memory()}


def evaluation(threads: int) -> Times:
    """Seconds per evaluation during RL: sampling and two scorings of the evaluation set."""
    torch.set_num_threads(threads)
    policy, reference = shipped_model("dr_grpo"), shipped_model("pretrained")
    problems, generator = evaluation_set(50), torch.Generator().manual_seed(0)

    def fast() -> None:
        evaluate_policy(policy, reference, problems, lab.summarize, lab.kl_per_response, generator)

    def slow() -> None:
        prompts = encode_prompts(problems)
        responses = straightforward.generate(policy, prompts, 1)
        with torch.no_grad():
            for model in (policy, reference):
                straightforward.response_log_probs(model, prompts, responses)

    return take_turns({"lab": fast, "straightforward": slow}, 5)


def pass_at_k(samples: int, threads: int) -> Times:
    """Seconds to sample and verify so many responses to each of 100 problems of 8 digits, pretrained model."""
    torch.set_num_threads(threads)
    model, generator = shipped_model("pretrained"), torch.Generator().manual_seed(0)
    problems = sample_problems(100, generator, 8)
    return take_turns({"lab": lambda: count_correct(model, problems, samples, generator)}, 5) | {
        "memory": peak_memory()
    }


def ten_runs() -> Times:
    """Seconds of part 2 as the lab runs it: ten runs in as many processes as there are cores, evaluations included."""
    with tempfile.TemporaryDirectory() as folder:
        lab_run = Lab.open(Path(folder), parts=(2,))
        began = time.perf_counter()
        lab.part_2(lab_run)
        return {"lab": time.perf_counter() - began}


def alone(measure: Callable[..., Any], *arguments: Any) -> Any:
    """The measurement, made in a fresh process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        times = pool.submit(measure, *arguments).result()
    click.echo(f"{measure.__name__}{arguments}: {times}", err=True)
    return times


def measure_all(threads: int) -> dict[str, Any]:
    """Every measurement, in seconds and MB, by name."""
    result: dict[str, Any] = {"pretraining step": alone(pretraining_step, threads)}
    phases = {"early": "pretrained", "late": "dr_grpo"}
    for phase, policy in phases.items():
        times = alone(policy_steps, policy, threads, (8,), ROUNDS)["8"]
        trl = alone(trl_steps, policy, threads)
        result[f"RL step, {phase}"] = times | {"trl": trl["trl"], "memory trl": trl["memory"]}
    result["evaluation"] = alone(evaluation, threads)
    result["ten RL runs"] = ten_runs()
    result["samples per prompt"] = {
        phase: alone(policy_steps, policy, threads, GROUP_SIZES, 5) for phase, policy in phases.items()
    }
    result["pass@k samples"] = {str(s): alone(pass_at_k, s, threads) for s in (64, 128, 256, 512, 1024)}
    return result


def whole_lab(result: dict[str, Any]) -> dict[str, Times]:
    """Seconds of ten RL runs and of the whole lab. The lab's ten runs are timed; the rest is steps times their cost."""
    early, late = result["RL step, early"], result["RL step, late"]
    pretraining = result["pretraining step"]
    steps = RUNS * RUN_STEPS

    def of_steps(path: str) -> float:
        return float(steps * (EARLY_SHARE * early[path] + (1 - EARLY_SHARE) * late[path]))

    runs = {path: of_steps(path) for path in ("straightforward", "trl", "floor")}
    runs["straightforward"] += RUNS * RUN_EVALUATIONS * result["evaluation"]["straightforward"]
    runs["lab"] = result["ten RL runs"]["lab"]
    whole = {path: PRETRAINING_STEPS * pretraining[path] + runs[path] for path in ("straightforward", "lab", "floor")}
    return {"ten RL runs": runs, "whole lab": whole}


def table(result: dict[str, Any]) -> str:
    """The result as a table in Markdown: times, and the lab's ratio to each of the others."""
    rows = {
        "pretraining step (ms)": (result["pretraining step"], 1000),
        "RL step, early (ms)": (result["RL step, early"], 1000),
        "RL step, late (ms)": (result["RL step, late"], 1000),
        **{f"{name} (s)": (times, 1) for name, times in whole_lab(result).items()},
    }
    lines = [
        "| | straightforward | TRL | lab | floor | straightforward / lab | TRL / lab | lab / floor |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, (times, scale) in rows.items():
        cells = [_number(times.get(path), scale) for path in ("straightforward", "trl", "lab", "floor")]
        ratios = [
            _ratio(times, "straightforward", "lab"),
            _ratio(times, "trl", "lab"),
            _ratio(times, "lab", "floor"),
        ]
        lines.append(f"| {name} | " + " | ".join(cells + ratios) + " |")
    head = "| samples per prompt | early, lab (ms) | straightforward (ms) | late, lab (ms) | straightforward (ms) |"
    lines += ["", head, "|---|---|---|---|---|"]
    growth = result["samples per prompt"]
    for size in growth["early"]:
        times = [growth[phase][size].get(path) for phase in growth for path in ("lab", "straightforward")]
        lines.append(f"| {size} | " + " | ".join(_number(seconds, 1000) for seconds in times) + " |")
    lines += ["", "| samples per problem, pass@k | 100 problems of 8 digits (s) |", "|---|---|"]
    lines += [f"| {s} | {_number(times['lab'], 1, 2)} |" for s, times in result["pass@k samples"].items()]
    return "\n".join(lines)


def memory_text(result: dict[str, Any]) -> str:
    """Peak memory in MB, of the lab's own path and of the others."""
    late = result["RL step, late"]
    return (
        f"peak memory (MB): lab pretraining {result['pretraining step']['memory lab']:.0f}, lab RL "
        f"{late['memory lab']:.0f}, pass@k with 1,024 samples {result['pass@k samples']['1024']['memory']:.0f}, "
        f"straightforward pretraining {result['pretraining step']['memory']:.0f}, TRL {late['memory trl']:.0f}"
    )


def _number(seconds: float | None, scale: float, digits: int = 0) -> str:
    return "-" if seconds is None else f"{seconds * scale:.{digits}f}"


def _ratio(times: Times, over: str, under: str) -> str:
    return f"{times[over] / times[under]:.1f}" if over in times and under in times else "-"


@click.command()
@click.option("--out", type=click.Path(path_type=Path), default=HERE / "speed.json", show_default=True)
def main(out: Path) -> None:
    """Measure everything, print the tables and keep the numbers."""
    result = {"machine": machine(), **measure_all(joblib.cpu_count())}
    write_json(out, result)
    click.echo(f"{result['machine']}\n\n{table(result)}\n\n{memory_text(result)}")


if __name__ == "__main__":
    main()
