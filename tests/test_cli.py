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

ROOT = Path(__file__).parents[1]


def command(*arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "labutils.cli", *map(str, arguments)],
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
        (["run", "--jobs", "0"], "0", "x>=1"),
        (["run", "--solution", "nowhere.py"], "nowhere.py", "--solution"),
        (["run", "--out", "README.md"], "README.md", "choose another folder"),
        (["walk"], "'walk'", "No such command"),
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


def test_help_names_every_option():
    code, out, _ = run("run", "--help")
    assert code == 0
    for option in ("--part", "--profile", "--seed", "--out", "--jobs", "--solution"):
        assert option in out


def test_the_quick_profile_runs_from_end_to_end_and_goes_on_after_ctrl_c(tmp_path):
    """Interrupted in pretraining, the same command finishes the lab from there; a third call repeats nothing."""
    arguments = ["run", "--profile", "quick", "--out", tmp_path]
    process = command(*arguments, start_new_session=True)
    state = tmp_path / "state" / "pretraining.safetensors"
    deadline = time.monotonic() + 240
    while not state.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    last = err.strip().splitlines()[-1]
    stopped = re.search(r"lab16: pretraining stopped after step (\d+); the same command goes on", last)
    assert stopped, err
    assert "Traceback" not in err

    code, out, err = run(*arguments)
    assert code == 0, err
    assert next(line for line in out.splitlines() if line.startswith("===")).startswith("=== Part 1")
    assert out.count("===") == 6
    assert re.search(rf"pretraining:.*\b{stopped[1]}/", err), "it did not go on from the step it stopped at"
    tables = json.loads((tmp_path / "tables.json").read_text())
    assert sorted(tables) == ["part1", "part2", "part3"]
    assert len(list((tmp_path / "figures").glob("*.png"))) == 3
    assert not list(tmp_path.rglob(".*")), "a half-written file was left behind"

    began = time.monotonic()
    code, again, _ = run(*arguments)
    assert code == 0
    assert again == out, f"a finished run printed something else, after {time.monotonic() - began:.0f} s"
