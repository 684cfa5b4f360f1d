"""Grids of runs: what is kept, what is not repeated, and what happens when a process dies."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import lab16_llm_rl as solution
import pytest
from PIL import Image

from labutils import experiments, sweep, sweep_report
from labutils.errors import LabError
from labutils.experiments import Exercises, Outcome, RunSettings
from labutils.sweep import Database, Row

ROOT = Path(__file__).parents[1]
EXERCISES = Exercises.of_module(solution)
SECONDS = 120  # that anything may take


def tiny(seeds, **more):
    sizes = {"steps": [2], "problems": [2], "evaluation_problems": [1], "evaluate_every": [1]}
    return sweep.grid({**sizes, "seed": list(range(seeds)), **more})


def command(out, *options):
    """`lab16 sweep` in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "labutils", "sweep", "--out", str(out), "--steps", "2", *options],
        cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def finish(process, code=0):
    out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == code, err
    assert "Traceback" not in err, err
    return out, err


def seeds_in(path):
    return sorted(row.settings.seed for row in Database(path).rows())


def wait_for_runs(path, count, process):
    end = time.monotonic() + SECONDS
    while not (path.exists() and len(seeds_in(path)) >= count):
        assert process.poll() is None, "the sweep ended before it was disturbed"
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_grid_holds_every_combination_once():
    runs = sweep.grid({"estimator": ["rloo", "grpo"], "length_cost": [0.0, 0.1, 0.2], "seed": [3]})
    assert len(set(runs)) == len(runs) == 6
    assert RunSettings(estimator="grpo", length_cost=0.1, seed=3) in runs
    with pytest.raises(LabError, match="a grid of 1000000 runs; allowed are at most 100000"):
        sweep.grid({"seed": range(10**6)})


def test_runs_are_kept_with_what_they_ran_with_and_can_be_run_again(tmp_path):
    database = Database(tmp_path / "new" / "runs.sqlite")
    runs = tiny(2, kl=["k3-loss"], kl_strength=[0.1])
    returned = sweep.sweep(runs, EXERCISES, database, jobs=1)
    rows = database.rows()
    assert [row.settings for row in returned] == runs
    assert {row.settings for row in rows} == set(runs)
    for row in rows:
        assert {"seconds", "seed", "threads", "machine", "python", "torch", "lab16"} == row.about.keys()
        assert (row.about["seed"], row.about["threads"]) == (row.settings.seed, 1)
        assert list(row.history) == [0, 1, 2]
        again = experiments.run(row.settings, EXERCISES, experiments.starting_model(row.settings, tmp_path))
        assert again == row.outcome


def test_a_finished_run_is_not_repeated_and_a_changed_function_is(tmp_path, monkeypatch):
    database = Database(tmp_path / "runs.sqlite")
    sweep.sweep(tiny(2), EXERCISES, database, jobs=1)
    monkeypatch.setattr(
        sweep, "_compute", lambda settings, *_: Row(settings, {"computed": "again"}, Outcome({0: {}}, []))
    )

    def computed_again():
        return sorted(row.settings.seed for row in database.rows() if "computed" in row.about)

    sweep.sweep(tiny(3), EXERCISES, database, jobs=1)
    assert computed_again() == [2]
    other = Exercises(**{**vars(EXERCISES), "kl_per_response": lambda *arguments: 0.0})
    sweep.sweep(tiny(1), other, database, jobs=1)
    assert computed_again() == [0, 2]
    assert len(database.rows()) == 4


def test_nothing_is_trained_where_one_setting_makes_no_sense(tmp_path, monkeypatch):
    monkeypatch.setattr(sweep, "_compute", lambda *_: pytest.fail("a run was computed"))
    with pytest.raises(LabError, match="estimator 'ppo'"):
        sweep.sweep([*tiny(1), RunSettings(estimator="ppo")], EXERCISES, Database(tmp_path / "runs.sqlite"), jobs=1)


def test_a_rate_without_a_model_of_the_lab_gets_one_that_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(experiments, "pretrained_at", lambda *_: experiments.shipped_model("rare_1"))
    database = Database(tmp_path / "runs.sqlite")
    runs = tiny(1, pretraining=["onward"], worked_rate=[0.03, 0.1])
    sweep.sweep(runs, EXERCISES, database, jobs=1)
    assert [path.name for path in (tmp_path / "runs.models").iterdir()] == ["onward-0.03.safetensors"]
    monkeypatch.setattr(experiments, "pretrained_at", lambda *_: pytest.fail("it was trained again"))
    sweep.sweep(runs, EXERCISES, database, jobs=1)
    rows = {row.settings.worked_rate: row.history[0]["writes_states"] for row in database.rows()}
    assert rows[0.03] < 0.02 < rows[0.1]


def test_a_killed_sweep_goes_on_where_it_was(tmp_path):
    out = tmp_path / "runs.sqlite"
    options = ("--seed", "0-5", "--jobs", "1")
    process = command(out, *options)
    wait_for_runs(out, 2, process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    before = Database(out).rows()
    assert 2 <= len(before) < 6
    _, err = finish(command(out, *options))
    assert seeds_in(out) == list(range(6))
    assert all(row in Database(out).rows() for row in before)
    assert re.search(rf"\| {len(before)}/6 ", err), "the bar does not start at what is done"


def test_ctrl_c_keeps_what_is_done_and_says_how_to_go_on(tmp_path):
    out = tmp_path / "runs.sqlite"
    process = command(out, "--seed", "0-30", "--jobs", "2")
    wait_for_runs(out, 1, process)
    os.killpg(process.pid, signal.SIGINT)
    _, err = finish(process, code=130)
    last = err.strip().splitlines()[-1]
    assert re.search(r"lab16: sweep stopped with \d+ of 31 runs finished; the same command goes on", last), last
    assert 1 <= len(seeds_in(out)) < 31


def test_two_sweeps_write_to_one_file(tmp_path):
    out = tmp_path / "runs.sqlite"
    both = [command(out, "--seed", seeds, "--jobs", "1") for seeds in ("0-3", "2-5")]
    for process in both:
        finish(process)
    assert seeds_in(out) == list(range(6))


@contextmanager
def dask(*arguments):
    """A process of Dask's, with its log."""
    process = subprocess.Popen([sys.executable, "-m", *arguments], stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_cluster_that_loses_a_worker_computes_every_run_once(tmp_path):
    pytest.importorskip("distributed", reason="needs Dask")
    out, file = tmp_path / "runs.sqlite", tmp_path / "scheduler.json"
    with ExitStack() as stack:
        options = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file))
        stack.enter_context(dask("distributed.cli.dask_scheduler", *options))
        end = time.monotonic() + SECONDS
        while not file.exists() and time.monotonic() < end:
            time.sleep(0.05)
        address = json.loads(file.read_text())["address"]
        options = (address, "--nthreads", "1", "--no-nanny", "--no-dashboard", "--local-directory", str(tmp_path))
        workers = [stack.enter_context(dask("distributed.cli.dask_worker", *options)) for _ in range(2)]
        time.sleep(3)  # until both have registered; with one only, the test is the easier one
        process = command(out, "--seed", "0-11", "--scheduler", address)
        wait_for_runs(out, 2, process)
        workers[0].kill()
        finish(process)
    assert seeds_in(out) == list(range(12))


def test_a_scheduler_without_workers_is_refused(tmp_path):
    distributed = pytest.importorskip("distributed", reason="needs Dask")
    with distributed.LocalCluster(
        n_workers=0, processes=False, dashboard_address=None, protocol="tcp", host="127.0.0.1"
    ) as cluster:
        address = cluster.scheduler_address
        with pytest.raises(LabError, match=f"scheduler '{address}' has no workers"), sweep.dask_cluster(address):
            pass


def test_a_file_of_another_kind_is_left_alone(tmp_path):
    for name, content in {"text": b"not a database " * 100, "folder": None, "other": "table"}.items():
        path = tmp_path / name
        if content is None:
            path.mkdir()
        elif content == "table":
            with sqlite3.connect(path) as connection:
                connection.execute("CREATE TABLE runs (x)")
        else:
            path.write_bytes(content)
        with pytest.raises(LabError, match="is no database of runs.*choose another file"):
            Database(path)
    assert (tmp_path / "text").read_bytes() == b"not a database " * 100


def example(estimator, cost, seed, accuracy):
    metrics = {"accuracy": accuracy, "writes_states": 0.5, "kl": 1.0, "length": 4.0}
    return Row(
        RunSettings(estimator=estimator, length_cost=cost, seed=seed), {}, Outcome({0: metrics, 10: metrics}, [])
    )


def test_the_report_groups_by_what_differs(tmp_path):
    database = Database(tmp_path / "runs.sqlite")
    assert sweep_report.write(database).endswith("holds no runs yet")
    for i, row in enumerate(
        [example("rloo", 0.0, 0, 0.5), example("rloo", 0.0, 1, 0.7), example("grpo", 0.1, 0, 0.25)]
    ):
        database.add(str(i), row)
    lines = sweep_report.write(database).splitlines()
    assert re.match(r"settings +seeds +accuracy +writes_states +kl +length$", lines[0])
    assert re.match(r"estimator grpo, length_cost 0.1 +1 +0.250 +0.500 +1.000 +4.000$", lines[1])
    assert re.match(r"estimator rloo, length_cost 0 +2 +0.600 ± 0.141 +0.500 ± 0.000", lines[2])
    with Image.open(tmp_path / "runs.png") as image:
        assert "a line for each of 2 settings" in image.text["Description"]
    assert (tmp_path / "runs.svg").exists()
