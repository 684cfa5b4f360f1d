"""Functions of an earlier notebook: only what is asked for runs, and it reaches other processes."""

import inspect

import build
import cloudpickle
import nbformat
import pytest
import torch

from labutils.earlier import functions_of
from labutils.errors import LabError
from labutils.fingerprints import code_fingerprint


def notebook(path, *sources):
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources]), path)
    return path


def test_the_solved_notebooks_functions_are_the_solutions(tmp_path):
    nbformat.write(build.solved_notebook(build.NAMES[1]), tmp_path / "part2.ipynb")
    part2 = functions_of(tmp_path / "part2.ipynb", ["rloo_advantages", "policy_loss"])
    rewards = torch.tensor([[1.0, 0.0, 0.0]])
    assert part2.rloo_advantages(rewards).tolist() == [[1.0, -0.5, -0.5]]
    assert not hasattr(part2, "lab"), "a cell that is no function was run"
    assert not hasattr(part2, "grpo_advantages"), "a function that nobody asked for was run"
    assert "rewards.sum" in inspect.getsource(part2.rloo_advantages)


def test_a_function_reaches_another_process_by_value(tmp_path):
    path = notebook(tmp_path / "mine.ipynb", "import math", "def double(x):\n    return math.floor(2 * x)")
    double = functions_of(path, ["double"]).double
    assert b"math" in cloudpickle.dumps(double)
    assert cloudpickle.loads(cloudpickle.dumps(double))(1.6) == 3


def test_the_last_definition_counts_and_magics_are_passed_over(tmp_path):
    path = notebook(
        tmp_path / "mine.ipynb",
        "%matplotlib inline\nraise SystemExit",
        "def f():\n    return 1\nprint(1 / 0)",
        "def f():\n    return 2",
    )
    assert functions_of(path, ["f"]).f() == 2


def test_a_changed_function_has_another_fingerprint(tmp_path):
    found = []
    for constant in (1, 2, 1):
        path = notebook(tmp_path / "mine.ipynb", f"def f(x):\n    return x + {constant}")
        found.append(code_fingerprint(functions_of(path, ["f"]).f))
    assert found[0] == found[2] != found[1]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "there is no notebook"),
        ("{", "cannot be read as a notebook"),
        (["x = 1"], "has no function f; write it there first"),
        (["def f(:\n"], "has no function f; write it there first"),
        (["import nothing_of_that_name"], "raised ModuleNotFoundError"),
    ],
)
def test_what_is_missing_is_one_line(tmp_path, content, line):
    path = tmp_path / "mine.ipynb"
    if isinstance(content, list):
        notebook(path, *content)
    elif content is not None:
        path.write_text(content)
    with pytest.raises(LabError) as error:
        functions_of(path, ["f"])
    assert line in str(error.value)
    assert "mine.ipynb" in str(error.value)
    assert "\n" not in str(error.value)
