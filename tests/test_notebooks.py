"""The notebooks: nothing generated is stale, nothing is given away, and the prose does not contradict the output."""

import ast
import itertools
import json
import re

import build
import nbformat
import pytest

from labutils.checkpoints import read_json
from labutils.results import CHECK_MIME, TABLE_MIME, course_tables
from labutils.tolerance import bands, deviations

# `summarize` is needed in every part, and each notebook stands alone: it is copied from part 1.
EXERCISES = [
    "running_states", "encode_prompt", "encode_response", "response_log_probs", "pretraining_loss",
    "sample_responses", "summarize",
    "rewards_with_cost", "reinforce_advantages", "rloo_advantages", "grpo_advantages", "dr_grpo_advantages",
    "sum_weights", "mean_weights", "constant_weights", "policy_loss", "kl_per_response", "policy_gradient_step",
    "summarize",
    "summarize", "pass_at_k",
    "entropy_bonus", "k1_penalized_rewards", "k3_loss", "regularized_step", "verify_form", "verify_anywhere",
]  # fmt: skip
names = pytest.mark.parametrize("name", build.NAMES)


@pytest.fixture(scope="module")
def student():
    return {name: build.read_notebook(build.student_path(name)) for name in build.NAMES}


@pytest.fixture(scope="module")
def solved():
    return {name: build.read_notebook(build.solved_path(name)) for name in build.NAMES}


@names
def test_the_notebooks_are_what_their_sources_give(name, student, solved):
    assert student[name] == build.student_notebook(name), "run `make notebooks`"
    fresh = build.solved_notebook(name)
    build.copy_outputs(solved[name], fresh)
    assert solved[name] == fresh, "run `make notebooks`"


def test_the_reference_is_what_the_sources_give():
    assert read_json(build.REFERENCE) == {name: build.reference(name) for name in build.NAMES}, "run `make notebooks`"


def test_the_exercises_stand_in_order_with_their_checks_below_them():
    found = []
    for name in build.NAMES:
        cells = build.reference(name)["cells"]
        for cell, below in zip(cells, [*cells[1:], {}], strict=True):
            if cell["exercise"]:
                found.append(cell["exercise"])
                assert below["check"] == cell["exercise"]
    assert found == EXERCISES


def solution_lines():
    """The lines between the markers of the reference solution that are long enough to be telling."""
    text = (build.HERE / "lab16_llm_rl.py").read_text(encoding="utf-8")
    for body in re.findall(r"### BEGIN SOLUTION\n(.*?)    ### END SOLUTION", text, re.DOTALL):
        yield from (line.strip() for line in body.splitlines() if len(line.strip()) > 35)


@names
def test_a_students_notebook_holds_no_solution_answer_or_output(name, student):
    text = "\n".join(cell.source for cell in student[name].cells)
    assert len(list(solution_lines())) > 30
    assert [line for line in solution_lines() if line in text] == []
    assert "BEGIN SOLUTION" not in text
    assert "<summary>Answer" not in text
    assert all(not cell.outputs and cell.execution_count is None for cell in code(student[name]))
    assert "<summary>Answer" in "\n".join(cell.source for cell in build.solved_notebook(name).cells)


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@names
def test_a_stub_says_what_is_wanted_and_raises(name, student):
    for cell in code(student[name]):
        if exercise := cell.metadata["lab16"]["exercise"]:
            (function,) = ast.parse(cell.source).body
            assert function.name == exercise
            assert ast.get_docstring(function)
            assert cell.source.endswith("    raise NotImplementedError")


@names
def test_each_exercise_comes_with_two_hints_minutes_and_difficulty(name):
    cells = build.student_notebook(name).cells
    for above, cell in itertools.pairwise(cells):
        if cell.cell_type == "code" and (exercise := cell.metadata["lab16"]["exercise"]):
            assert re.search(
                rf"\*\*Exercise `{exercise}`\*\* · \d+ minutes? · difficulty ●[●○]{{4}} · \w", above.source
            )
            assert "<summary>Hint 1</summary>" in above.source
            assert "<summary>Hint 2</summary>" in above.source


@names
def test_the_solved_notebook_ran_without_an_error(name, solved):
    counts = [cell.execution_count for cell in code(solved[name])]
    assert counts == list(range(1, len(counts) + 1))
    for cell in code(solved[name]):
        assert [output for output in cell.outputs if output.output_type == "error"] == [], cell.id


@names
def test_the_tables_and_checks_of_the_solved_notebook_are_right(name, solved):
    for cell in code(solved[name]):
        shown = [output.data for output in cell.outputs if "data" in output]
        if part := cell.metadata["lab16"]["table"]:
            (table,) = [json.loads(json.dumps(data[TABLE_MIME])) for data in shown if TABLE_MIME in data]
            assert (table["part"], table["profile"]) == (part, "full")
            assert deviations(table["table"], bands("full", part)) == []
        if exercise := cell.metadata["lab16"]["check"]:
            (report,) = [data[CHECK_MIME] for data in shown]
            assert (report["exercise"], report["passed"]) == (exercise, True)


@names
def test_every_figure_has_a_description(name, solved):
    images = re.findall(r"<img [^>]*>", "\n".join(str(cell.outputs) for cell in code(solved[name])))
    assert images
    for image in images:
        assert re.search(r'alt=\\?"[^"]{20,}"', image), image[:80]


@names
def test_what_the_prose_quotes_of_the_course_lies_in_the_bands(name):
    """A number of the course's own run may be quoted only where a reader's output can show the same."""
    source = (build.HERE / "sources" / f"{name}.py").read_text(encoding="utf-8")
    for path in re.findall(r"course\(\s*\"([\w.*]+)\"", source.replace("\n# ", " ")):
        part, *keys = path.split(".")
        shown = "part1_shipped" if part == "part1" else part
        for value, (low, high, _) in zip(
            build.find(course_tables(), path.split(".")), build.find(bands("full", shown), keys), strict=True
        ):
            assert low <= value <= high, f"{path}: the course has {value}, correct runs {low} to {high}"


@names
def test_a_notebook_is_valid_and_small_enough_to_open(name):
    for path in (build.student_path(name), build.solved_path(name)):
        nbformat.validate(nbformat.read(path, as_version=4))
        assert path.stat().st_size < 3 * 2**20
