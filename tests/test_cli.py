"""The command as a user types it, in a process of its own."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import labutils.__main__

ROOT = Path(__file__).parents[1]


def command(*arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "labutils", *map(str, arguments)],
        cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,
    )  # fmt: skip


def run(*arguments):
    process = command(*arguments)
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


@pytest.mark.parametrize(
    ("arguments", "value", "allowed"),
    [
        (["run", "--part", "4"], "'4'", "'1', '2', '3', 'all'"),
        (["run", "--profile", "huge"], "'huge'", "'full', 'quick'"),
        (["run", "--seed", "-1"], "-1", "0<=x<=65535"),
        (["run", "--seed", "one"], "'one'", "integer"),
        (["run", "--jobs", "0"], "0", "1<=x<=256"),
        (["run", "--out", ""], ".", "choose an empty folder"),
        (["run", "--solution", "nowhere.py"], "nowhere.py", "--solution"),
        (["run", "--out", "README.md"], "README.md", "choose another folder"),
        (["walk"], "'walk'", "No such command"),
        (["run", "--solution", "README.md", "--out", "nowhere"], "README.md", "Python file"),
        (["sweep", "--estimator", "rloo,ppo"], "'ppo'", "reinforce, rloo, grpo, dr_grpo"),
        (["sweep", "--length-cost", "-0.1"], "-0.1", "0 to 1000"),
        (["sweep", "--worked-rate", "0.1,2"], "2", "0 to 1"),
        (["sweep", "--kl", "k3-loss"], "'k3-loss' with kl_strength 0", "'none' goes with 0"),
        (["sweep", "--kl", "k3-loss:x"], "'k3-loss:x'", "number"),
        (["sweep", "--verifier", "kind"], "'kind'", "answer, form, anywhere"),
        (["sweep", "--seed", "0-x"], "'0-x'", "whole number"),
        (["sweep", "--seed", "0-999999"], "1000000 runs", "100000"),
        (["sweep", "--scheduler", "tcp://127.0.0.1:1"], "tcp://127.0.0.1:1", "does not answer"),
        (["sweep", "--scheduler", "nonsense"], "nonsense", "does not answer"),
        (["sweep", "--out", "README.md"], "README.md", "choose another file"),
        (["sweep", "--report", "--out", "nowhere.sqlite"], "nowhere.sqlite", "--out"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments, value, allowed):
    code, out, err = run(*arguments)
    assert code == 2
    assert out == ""
    assert err.startswith("lab16: ")
    assert err.count("\n") == 1
    assert value in err
    assert allowed in err


def test_an_exercise_file_that_is_no_python_is_named_with_the_line(tmp_path):
    (tmp_path / "mine.py").write_text("x = 1\ndef (\n")
    code, _, err = run("run", "--solution", tmp_path / "mine.py", "--out", tmp_path / "out")
    assert (code, err.count("\n")) == (2, 1)
    assert "mine.py, line 2: invalid syntax" in err
    assert not (tmp_path / "out").exists()


def test_ctrl_c_during_the_imports_is_quiet(monkeypatch):
    class Interrupted:
        def find_spec(self, name, *_):
            if name == "labutils.cli":
                raise KeyboardInterrupt

    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    monkeypatch.delitem(sys.modules, "labutils.cli", raising=False)
    monkeypatch.delattr(labutils, "cli", raising=False)
    with pytest.raises(SystemExit) as stop:
        labutils.__main__.main()
    assert stop.value.code == 130


def test_without_a_command_it_shows_the_commands():
    code, _, err = run()
    assert code == 2
    assert "Commands:" in err
    assert err.count("\n") > 4


def test_help_names_every_option():
    code, out, _ = run("run", "--help")
    assert code == 0
    for option in ("--part", "--profile", "--seed", "--out", "--jobs", "--solution"):
        assert option in out


def interrupt_when(folder, pattern, arguments):
    """Start the command, send Ctrl-C to it and its workers once such a file exists, and return its last line."""
    process = command(*arguments, start_new_session=True)
    deadline = time.monotonic() + 240
    while not any(folder.glob(pattern)) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    return err.strip().splitlines()[-1]


def test_the_quick_profile_runs_from_end_to_end_and_goes_on_after_ctrl_c(tmp_path):
    """Interrupted in part 1 and in part 2, the same command goes on from there; a last call repeats nothing."""
    arguments = ["run", "--profile", "quick", "--out", tmp_path, "--jobs", 2]
    last = interrupt_when(tmp_path, "state/pretraining-*.safetensors", arguments)
    stopped = re.search(r"^lab16: pretraining stopped after step (\d+); the same command goes on", last)
    assert stopped, last

    last = interrupt_when(tmp_path, "state/reinforce-seed0-*.safetensors", arguments)
    assert re.search(r"^lab16: reinforcement learning stopped with \d+ of 10 runs finished; the same", last), last
    assert not list(tmp_path.rglob(".*")), "a half-written file was left behind"

    code, out, err = run(*arguments)
    assert code == 0, err
    assert re.search(r"pretraining: 100%.*\b400/400 \[00:00<", err), "finished pretraining was not read back"
    headings = [line for line in out.splitlines() if line.startswith("===")]
    assert [heading[:10] for heading in headings] == ["=== Part 1", "=== Part 2", "=== Part 3"]
    assert sorted(json.loads((tmp_path / "tables.json").read_text())) == ["part1", "part2", "part3"]
    assert len(list((tmp_path / "figures").glob("*.png"))) == 3
    # What the shipped model is for: within 50 steps accuracy has about doubled.
    accuracy = [json.loads((tmp_path / "tables.json").read_text())["part2"]["rloo"][s]["accuracy"] for s in ("0", "50")]
    assert accuracy[1] > accuracy[0] + 0.3
    assert not list(tmp_path.rglob(".*"))
