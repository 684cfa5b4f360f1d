"""The nbval plugin: honest notebooks pass whatever else they show, and every way around the comparison fails."""

import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass

import pytest

from labutils.errors import LabError
from labutils.grading.comparison import output_problems
from labutils.grading.reference import ReferenceCell, read_reference, source_digest
from labutils.results import CHECK_MIME, TABLE_MIME

NAME = "part1_pretraining"
BANDS = {"accuracy": {"2": [0.9, 1.0], "3": [0.3, 0.6]}, "length": {"2": [3.0, 3.5]}}
GOOD_TABLE = {"accuracy": {"2": 0.95, "3": 0.4}, "length": {"2": 3.2}}

# The tiny notebook that was handed out: id -> (role, source, what it shows, seconds).
SETUP = f"""import os
from IPython.display import display

def show_table(table):
    profile = os.environ.get("LAB16_PROFILE", "full")
    numbers = {{"part": "part1", "profile": profile, "table": table}}
    display({{"{TABLE_MIME}": numbers, "text/plain": "a table"}}, raw=True)

def check(function):
    passed = function() == 1
    report = {{"exercise": function.__name__, "passed": passed, "diagnosis": None if passed else "you started at 7"}}
    display({{"{CHECK_MIME}": report, "text/plain": "a report"}}, raw=True)"""
NOISE = """import sys, time
for step in range(3):
    print(f"\\r{step} of 3, {time.perf_counter_ns()}", end="", file=sys.stderr)
    print("loss", time.time())
live = display({"text/plain": "0 %"}, raw=True, display_id="live")
display({"text/plain": str(time.time())}, raw=True, display_id="live", update=True)
display({"image/png": "iVBORw0KGgo=", "text/plain": f"<Figure at {id(live):#x}>"}, raw=True)
display({"application/vnd.jupyter.widget-view+json": {"model_id": str(time.time())}}, raw=True)
object()"""
REFERENCE = {
    "setup": ("fixed", SETUP, {}, 60),
    "running-states": ("exercise", "def running_states():\n    return 1", {"exercise": "running_states"}, 60),
    "check-running-states": ("fixed", "check(running_states)", {"check": "running_states"}, 60),
    "measure": ("exercise", f"def measure():\n    return {GOOD_TABLE}", {"exercise": "measure"}, 2),
    "train": ("fixed", NOISE, {}, 60),
    "notes": ("free", "print('your own notes')", {}, 60),
    "table": ("fixed", "show_table(measure())", {"table": "part1"}, 60),
}
HONEST = {name: source for name, (_, source, _, _) in REFERENCE.items()}


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reference")
    cells = [
        {"id": name, "role": role, "sha256": source_digest(source), "exercise": None, "check": None, "table": None}
        | {"seconds": seconds} | shows
        for name, (role, source, shows, seconds) in REFERENCE.items()
    ]  # fmt: skip
    (folder / "notebooks.json").write_text(json.dumps({NAME: {"cells": cells}}))
    quick = {"accuracy": {"2": [0.0, 0.1], "3": [0.0, 0.1]}, "length": {"2": [3.0, 3.5]}}
    (folder / "bands.json").write_text(json.dumps({"full": {"part1": BANDS}, "quick": {"part1": quick}}))
    return folder


def code(name, source, **fields):
    cell = {"cell_type": "code", "id": name, "source": source, "metadata": {}, "outputs": [], "execution_count": None}
    return cell | fields


def notebook(cells, **metadata):
    """A notebook's text, of ready cells or of id -> source."""
    cells = cells if isinstance(cells, list) else [code(name, source) for name, source in cells.items()]
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": cells})


def changed(**sources):
    """The honest notebook with other sources, by id with underscores."""
    return notebook(HONEST | {name.replace("_", "-"): source for name, source in sources.items()})


@dataclass
class Case:
    """One notebook's run. failures: item -> text. passed: items; a skipped one is in neither. seconds: item -> time."""

    failures: dict
    passed: list
    seconds: dict

    def only(self, *items):
        """The failure of the first item, after a look that just these items failed."""
        assert list(self.failures) == list(items), self.failures
        return self.failures[items[0]]


def run(folder, notebooks, *options, **environment):
    """Runs notebooks (file name -> text) in one pytest; file name -> Case."""
    folder.mkdir(exist_ok=True)
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    for file, text in notebooks.items():
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--junitxml=out.xml", *options, *notebooks]
    environment = {name: value for name, value in os.environ.items() if name != "LAB16_PROFILE"} | environment
    process = subprocess.run(
        list(map(str, command)), cwd=folder, text=True, capture_output=True, timeout=500, env=environment
    )
    assert process.returncode in (0, 1), process.stdout + process.stderr
    cases = {file: Case({}, [], {}) for file in notebooks}
    for item in ElementTree.parse(folder / "out.xml").iter("testcase"):
        case = cases[next(file for file in notebooks if file.replace("/", ".") == item.get("classname"))]
        case.seconds[item.get("name")] = float(item.get("time"))
        outcomes = {outcome.tag: outcome.get("message") for outcome in item}
        if not outcomes:
            case.passed.append(item.get("name"))
        elif "skipped" not in outcomes:
            case.failures[item.get("name")] = outcomes.get("failure") or outcomes["error"]
    return cases, process


OLD_OUTPUTS = [{"output_type": "stream", "name": "stdout", "text": "loss 1.0, written by hand"}]
MARKERS = "# NBVAL_SKIP\n# NBVAL_IGNORE_OUTPUT\n# NBVAL_RAISES_EXCEPTION\n#PYTEST_VALIDATE_IGNORE_OUTPUT\n"
TAGS = {"tags": ["nbval-skip", "nbval-ignore-output", "raises-exception"]}
HIDDEN = "get_ipython().showtraceback = lambda *arguments, **options: None\n"
STUBBORN = "import time\nwhile True:\n    try:\n        time.sleep(1)\n    except BaseException:\n        pass"
FORGED = f'display({{"{TABLE_MIME}": {{"part": "part1", "profile": "full", "table": {GOOD_TABLE}}}}}, raw=True)'


def with_markers():
    wrong = HONEST | {"running-states": MARKERS + "def running_states():\n    return 7"}
    return notebook([code(name, source, metadata=TAGS) for name, source in wrong.items()])


def altered():
    """A check deleted, a fixed cell edited, an exercise turned to text; a free cell edited and two cells added."""
    cells = [
        code("own-1", "mine = 1"),
        *(code(name, source) for name, source in HONEST.items()),
        code("own-2", "1 / 0"),
    ]
    del cells[3]
    cells[3] = {"cell_type": "markdown", "id": "measure", "metadata": {}, "source": HONEST["measure"]}
    cells[4]["source"] += "\n"  # stripped before it is compared
    cells[5]["source"] = "'other notes'"
    cells[6]["source"] = FORGED
    return notebook(cells)


def copied():
    """A cell twice, and the last two the other way round."""
    cells = [code(name, source) for name, source in HONEST.items()]
    return notebook([*cells[:2], cells[1], *cells[2:5], cells[6], cells[5]])


CASES = {
    "honest": notebook([code(name, source, outputs=OLD_OUTPUTS, execution_count=3) for name, source in HONEST.items()]),
    "unrun": notebook(HONEST, kernelspec={"name": "no-such-kernel"}),
    "markers": with_markers(),
    "altered": altered(),
    "copied": copied(),
    "renamed": notebook({"own" if name == "running-states" else name: text for name, text in HONEST.items()}),
    "raises": changed(running_states=HIDDEN + "1 / 0", measure="import sys\nsys.exit(0)", notes="input('y/n')"),
    "nan": changed(measure="measure = lambda: {'accuracy': {'2': float('nan'), '3': True}, 'length': {'2': 9}}"),
    "printed": changed(measure=f"def measure():\n    {FORGED}\n    return {GOOD_TABLE}"),
    "killed": changed(notes="import os, signal\nprint('on')\nos.kill(os.getpid(), signal.SIGKILL)"),
    "segfault": changed(running_states="import ctypes\nctypes.string_at(0)"),
    "_exit": changed(measure="import os\nos._exit(0)"),
    "exit": changed(notes="exit()"),
    "endless": changed(measure="while True:\n    pass"),
    "stubborn": changed(measure=STUBBORN),
    "flood": changed(measure="while True:\n    print('x' * 1000)"),
    "not_json": "{",
    "format_3": json.dumps({"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": []}),
    "no_cells": notebook([]),
    "odd_cells": notebook([{"cell_type": "code", "id": 7, "source": "1", "metadata": {}, "outputs": []}]),
}  # fmt: skip


@pytest.fixture(scope="module")
def cases(tmp_path_factory, reference):
    files = {f"{case}/{NAME}.ipynb": text for case, text in CASES.items()}
    found, process = run(tmp_path_factory.mktemp("cases"), files, "--nbval", "--lab16-reference", reference)
    return {file.split("/")[0]: case for file, case in found.items()} | {"output": process.stdout}


@pytest.mark.parametrize("case", ["honest", "unrun"])
def test_honest_notebook_passes_whatever_else_it_shows(cases, case):
    assert cases[case].failures == {}
    assert cases[case].passed == list(HONEST), "items are named by cell id, in the notebook's order"


def test_markers_and_tags_change_nothing(cases):
    failure = cases["markers"].only("check-running-states")
    assert "running_states did not pass its check: you started at 7" in failure


def test_altered_cells_fail_by_name_and_free_cells_do_not(cases):
    failures = cases["altered"].failures
    assert "cell 'check-running-states' is missing" in failures["check-running-states"]
    assert "cell 'measure' is a markdown cell; make it a code cell" in failures["measure"]
    assert "cell 'table' differs from the notebook that was handed out" in failures["table"]
    assert "the cell raised ZeroDivisionError: division by zero" in failures["own-2"]
    assert len(failures) == 4
    assert cases["altered"].passed == ["own-1", "setup", "running-states", "train", "notes"]


def test_copies_and_another_order_fail(cases):
    failures = cases["copied"].failures
    assert list(failures) == ["order of the cells", "running-states", "running-states (2)"]
    assert "'notes' should come before 'table'" in failures["order of the cells"]
    assert "2 cells have the id 'running-states'; delete the copies" in failures["running-states (2)"]


def test_renamed_exercise_is_missing(cases):
    assert "cell 'running-states' is missing" in cases["renamed"].only("running-states")
    assert "own" in cases["renamed"].passed


def test_exception_fails_even_with_its_traceback_hidden_and_later_cells_run(cases):
    failure = cases["raises"].only("running-states", "check-running-states", "measure", "notes", "table")
    assert failure.startswith("Failed: the cell raised ZeroDivisionError: division by zero")
    assert "the cell raised NameError" in cases["raises"].failures["check-running-states"]
    assert "the cell raised SystemExit: 0" in cases["raises"].failures["measure"]
    assert "StdinNotImplementedError" in cases["raises"].failures["notes"], "input() must not wait for an answer"


def test_wrong_numbers_are_listed_with_their_bands(cases):
    failure = cases["nan"].only("table")
    assert "3 entries of the table of part1 are wrong:" in failure
    assert "expected 0.9 to 1" in failure, "NaN is no number"
    assert "accuracy 3: True; expected 0.3 to 0.6" in failure
    assert "length 2: 9; expected 3 to 3.5" in failure


def test_a_second_table_is_no_table(cases):
    assert "the cell shows 2 tables of numbers; expected exactly one, of part1" in cases["printed"].only("table")


@pytest.mark.parametrize(
    ("case", "cell", "reason"),
    [
        ("killed", "notes", "the kernel died"),
        ("segfault", "running-states", "the kernel died"),
        ("_exit", "measure", "the kernel died"),
        ("exit", "notes", "exit() or quit() ended the kernel"),
        ("endless", "measure", "the time limit of 2 s was exceeded"),
        ("stubborn", "measure", "the time limit of 2 s was exceeded"),
        ("flood", "measure", "the time limit of 2 s was exceeded"),
    ],
)
def test_lost_kernel_is_noticed_soon_and_fails_every_later_cell(cases, case, cell, reason):
    later = list(HONEST)[list(HONEST).index(cell) + 1 :]
    assert reason in cases[case].only(cell, *later)
    for name in later:
        assert f"not run: {reason} in cell '{cell}'" in cases[case].failures[name]
    assert cases[case].seconds[cell] < 60, "stock nbval waits for 2000 s"
    assert sum(cases[case].seconds[name] for name in later) < 30


def test_time_out_shows_the_line_that_did_not_end(cases):
    assert "while True" in cases["endless"].failures["measure"]


def test_file_that_is_no_notebook_fails_and_stops_no_other(cases):
    for case in ("not_json", "format_3", "odd_cells"):
        assert "cannot be read as a notebook" in cases[case].only("notebook")
    assert list(cases["no_cells"].failures) == list(HONEST), "every cell is missing"


def test_summary_line_names_the_cell_and_the_reason(cases):
    assert f"FAILED exit/{NAME}.ipynb::notes - Failed: exit() or quit()" in cases["output"]


def test_stock_nbval_is_fooled_by_the_markers_and_refuses_the_honest_noise(tmp_path):
    files = {f"{case}.ipynb": CASES[case] for case in ("markers", "honest")}
    found, _ = run(tmp_path, files, "--nbval", "--nbval-current-env", "-p", "no:lab16", "-W", "default")
    assert (found["markers.ipynb"].failures, found["markers.ipynb"].passed) == ({}, []), "stock nbval skips every cell"
    assert "Cell 4" in found["honest.ipynb"].failures, "the clock and the progress bar differ"


def test_recognised_by_file_name_metadata_or_ids_and_other_notebooks_are_nbvals(tmp_path, reference):
    wrong = HONEST | {"running-states": "def running_states():\n    return 7"}
    files = {
        "by_metadata.ipynb": notebook(wrong, lab16={"notebook": NAME}),
        "by_ids.ipynb": notebook(wrong, lab16=["odd"]),
        "unknown.ipynb": notebook({"a": "1"}, lab16={"notebook": "part9"}),
        "other.ipynb": notebook({"a": "# NBVAL_SKIP\n1 / 0"}),
        f"{NAME}.ipynb": notebook(wrong, lab16={"notebook": "part9"}),
    }
    found, process = run(tmp_path, files, "--nbval-lax", "--nbval-current-env", "--lab16-reference", reference)
    for file in ("by_metadata.ipynb", "by_ids.ipynb", f"{NAME}.ipynb"):
        assert "you started at 7" in found[file].only("check-running-states")
    assert "this lab has no notebook 'part9'" in found["unknown.ipynb"].only("reference")
    assert "1 skipped" in process.stdout, "nbval's own marker works in another notebook"


def test_options_force_the_notebook_and_lower_the_time_limit(tmp_path, reference):
    files = {"mine.ipynb": notebook({"a": "# NBVAL_SKIP\nimport time\ntime.sleep(60)"})}
    options = ["--nbval", "--lab16-notebook", NAME, "--nbval-cell-timeout", "1"]
    found, _ = run(tmp_path, files, *options, "--lab16-reference", reference)
    failure = found["mine.ipynb"].only(*HONEST, "a")
    assert "is missing" in failure
    assert "the time limit of 1 s was exceeded" in found["mine.ipynb"].failures["a"]


def test_profile_of_the_environment_reaches_the_kernel_and_picks_the_bands(tmp_path, reference):
    low = "def measure():\n    return {'accuracy': {'2': 0.05, '3': 0.05}, 'length': {'2': 3.2}}"
    files = {f"low/{NAME}.ipynb": changed(measure=low), f"full/{NAME}.ipynb": notebook(HONEST)}
    found, _ = run(tmp_path, files, "--nbval", "--lab16-reference", reference, LAB16_PROFILE="quick")
    assert found[f"low/{NAME}.ipynb"].failures == {}
    assert "accuracy 2: 0.95; expected 0 to 0.1" in found[f"full/{NAME}.ipynb"].only("table")


def test_unknown_forced_name_or_folder_is_refused(reference, tmp_path):
    with pytest.raises(LabError, match="notebook 'part9'; allowed are part1_pretraining"):
        read_reference(tmp_path / "x.ipynb", "part9", reference)
    with pytest.raises(LabError, match="it must hold a notebooks.json"):
        read_reference(tmp_path / "x.ipynb", folder=tmp_path)


def test_other_pytest_runs_load_nothing_heavy():
    loaded = (
        "import sys, labutils.grading.plugin; print({'torch', 'matplotlib', 'nbval', 'nbformat'} & set(sys.modules))"
    )
    start = time.monotonic()
    process = subprocess.run([sys.executable, "-c", loaded], text=True, capture_output=True, check=True, timeout=60)
    assert process.stdout.strip() == "set()", f"loaded in {time.monotonic() - start:.1f} s"


# What a cell shows, without a kernel.


def shown(table, part="part1", profile="full"):
    return {TABLE_MIME: {"part": part, "profile": profile, "table": table}}


def problems(reference, cell, *bundles):
    found = read_reference(reference / f"{NAME}.ipynb", folder=reference)
    return "\n".join(output_problems(found.cells[cell], found, bundles))


def replaced(metric, key, value):
    return GOOD_TABLE | {metric: GOOD_TABLE[metric] | {key: value}}


@pytest.mark.parametrize("value", [0.9, 1, 1.0])
def test_a_number_on_the_edge_of_its_band_is_inside(reference, value):
    assert problems(reference, "table", shown(replaced("accuracy", "2", value))) == ""


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), -float("inf"), "NaN", "0.95", True, None, [0.95], {"": 0.95}, 10**400]
    + [0.9 - 1e-9, 1 + 1e-9],  # would be right if they were rounded
)  # fmt: skip
def test_everything_but_a_number_in_the_band_fails(reference, value):
    assert "1 entries" in problems(reference, "table", shown(replaced("accuracy", "2", value)))


@pytest.mark.parametrize(
    ("bundles", "line"),
    [
        ([], "shows 0 tables"),
        ([{TABLE_MIME: None}], "exactly one"),
        ([{"text/plain": "accuracy 0.95 0.40"}], "shows 0 tables"),
        ([shown(GOOD_TABLE, part="part2")], "the table's part is 'part2'; expected 'part1'"),
        ([shown(GOOD_TABLE, profile="quick")], "the table's profile is 'quick'; expected 'full'"),
        ([shown({})], "length 2: missing; expected 3 to 3.5"),
        ([shown([1, 2])], "3 entries"),
        ([shown({"accuracy": GOOD_TABLE["accuracy"]})], "length 2: missing"),
        ([shown(GOOD_TABLE | {"loss": {"2": 1.0}})], "loss: no such entry is expected"),
        ([shown(replaced("accuracy", "9", 0.5))], "accuracy 9: no such entry is expected"),
    ],
)
def test_a_table_that_is_not_the_expected_one_fails(reference, bundles, line):
    assert line in problems(reference, "table", *bundles)


@pytest.mark.parametrize(
    ("reports", "line"),
    [
        ([], "shows 0 check reports"),
        ([{"exercise": "running_states", "passed": True}] * 2, "shows 2 check reports"),
        ([["running_states", True]], "exactly one"),
        ([{"exercise": "measure", "passed": True}], "the check report is of 'measure'; expected 'running_states'"),
        ([{"exercise": "running_states", "passed": 1}], "did not pass"),
        ([{"exercise": "running_states", "passed": "true"}], "did not pass"),
        ([{"exercise": "running_states"}], "did not pass"),
    ],
)
def test_only_one_passed_report_of_the_right_exercise_passes(reference, reports, line):
    assert line in problems(reference, "check-running-states", *({CHECK_MIME: report} for report in reports))
    assert (
        problems(reference, "check-running-states", {CHECK_MIME: {"exercise": "running_states", "passed": True}}) == ""
    )


def test_what_the_lab_shows_is_what_the_plugin_reads(reference):
    """The tables and reports of the lab itself: their MIME types and layouts are written in other modules."""
    pytest.importorskip("torch", reason="the self-checks need PyTorch")
    from labutils.checks import Report
    from labutils.results import TableView

    table = TableView("part1", "full", GOOD_TABLE)._repr_mimebundle_()
    assert problems(reference, "table", table) == ""
    report = Report("running_states", passed=True, score=1.0)._repr_mimebundle_()
    assert problems(reference, "check-running-states", report) == ""
    report = Report("running_states", passed=False, score=0.5, diagnosis="you started at 7")._repr_mimebundle_()
    assert "you started at 7" in problems(reference, "check-running-states", report)


def test_at_most_twenty_entries_are_listed(reference):
    extra = {str(number): 0.5 for number in range(100, 150)}
    lines = problems(reference, "table", shown(GOOD_TABLE | extra)).splitlines()
    assert lines[0] == "50 entries of the table of part1 are wrong:"
    assert lines[-1] == "and 30 more"
    assert len(lines) == 22


def test_without_bands_nothing_passes(reference, monkeypatch):
    found = read_reference(reference / f"{NAME}.ipynb", folder=reference)
    cell = ReferenceCell("x", "fixed", "", exercise=None, check=None, table="part3", seconds=1)
    assert "there are no bands for part3" in output_problems(cell, found, [shown(GOOD_TABLE, "part3")])[0]
    monkeypatch.setenv("LAB16_PROFILE", "huge")
    assert "in the profile 'huge'" in problems(reference, "table", shown(GOOD_TABLE, profile="huge"))
