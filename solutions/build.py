"""Builds everything that is generated: `make notebooks`.

notebooks/NAME.ipynb             what a student opens: the exercises are stubs
solutions/notebooks/NAME.ipynb   solved, and executed at the full size
labutils/data/notebooks.json     the reference: the code cells, their order, and what they must show
labutils/data/checks/            the numbers of the self-checks

Sources are solutions/sources/NAME.py (Jupytext's percent format) and the functions of lab16_llm_rl.py. A cell's
header holds its id; `exercise="f"` puts function f there, and a cell that checks it below; `table="part2"` says that
the cell shows this table; `role="free"` that a student may change it; `seconds=300` is its time limit at full size;
`solved=true` keeps a cell out of the student's notebook. In prose `<< course("part2.*.25.accuracy") >>` stands for
the course's numbers, `<< band(...) >>` for the calibrated band, and `<< seeds("kl", "accuracy", kl="none") >>` for what
the course's runs of an experiment gave, from the lowest to the highest seed; `<< gap(...) >>` for a difference of two.
"""

from __future__ import annotations

import ast
import copy
import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import click
import golden
import jinja2
import jupytext
import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from labutils.checkpoints import read_json, write_atomically, write_json
from labutils.experiments import RunSettings
from labutils.going_further import EXPERIMENTS, RECORD, course_rows, groups
from labutils.grading.reference import source_digest
from labutils.results import TABLE_MIME, course_tables, notebook_view
from labutils.tolerance import bands

HERE = Path(__file__).parent
ROOT = HERE.parent
REFERENCE = ROOT / "labutils" / "data" / "notebooks.json"
NAMES = ("part1_pretraining", "part2_reinforcement_learning", "part3_what_rl_changed", "going_further", "find_the_bug")
STUB = "    raise NotImplementedError\n"
DEFAULT_SECONDS = 300
WIDGET_MIME = "application/vnd.jupyter.widget-view+json"
DECIMALS = {"length": 2, "kl": 1, "pass_at_k": 3, "take_off": 0}  # 2 where nothing is said


@click.command()
@click.option(
    "--execute", is_flag=True, help="Execute every solved notebook, not only those whose code or bands have changed."
)
def main(execute: bool) -> None:
    """Write all that is generated."""
    golden.write()
    for name in NAMES:
        write_notebook(student_path(name), student_notebook(name))
        solved, before = solved_notebook(name), read_notebook(solved_path(name))
        if execute or before is None or code(before) != code(solved):
            click.echo(f"executing {name}")
            solved = executed(solved)
        else:
            copy_outputs(before, solved)
        write_notebook(solved_path(name), solved)
    write_json(REFERENCE, {name: reference(name) for name in NAMES})


def student_path(name: str) -> Path:
    """Where the student's notebook stands."""
    return ROOT / "notebooks" / f"{name}.ipynb"


def solved_path(name: str) -> Path:
    """Where the solved notebook stands."""
    return HERE / "notebooks" / f"{name}.ipynb"


def student_notebook(name: str) -> NotebookNode:
    """The notebook with stubs for exercises and without the answers."""
    return _notebook(name, solved=False)


def solved_notebook(name: str) -> NotebookNode:
    """The notebook with every exercise solved, not executed."""
    return _notebook(name, solved=True)


def reference(name: str) -> dict[str, Any]:
    """What the comparison of a notebook needs to know of its code cells, in order."""
    cells = []
    for cell in student_notebook(name).cells:
        if cell.cell_type == "code":
            cells.append({"id": cell.id, "sha256": source_digest(cell.source), **cell.metadata["lab16"]})
    return {"cells": cells}


def _notebook(name: str, solved: bool) -> NotebookNode:
    cells = [cell for source in source_cells(name) for cell in _cells(source, solved)]
    ids = [cell.id for cell in cells]
    if twice := {cell_id for cell_id in ids if ids.count(cell_id) > 1}:
        raise ValueError(f"{name}: cells with the same id: {', '.join(sorted(twice))}")
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    language = {"name": "python", "file_extension": ".py"}
    metadata = {"kernelspec": kernel, "language_info": language, "lab16": {"notebook": name}}
    return new_notebook(cells=cells, metadata=metadata)


def source_cells(name: str) -> list[NotebookNode]:
    """The cells of a notebook's source."""
    return list(jupytext.read(HERE / "sources" / f"{name}.py", fmt="py:percent").cells)


def _cells(source: NotebookNode, solved: bool) -> Iterator[NotebookNode]:
    """The cells that one cell of a source becomes: two for an exercise, none for an answer that students do not see."""
    about = source.metadata
    if about.get("solved") and not solved:
        return
    if source.cell_type == "markdown":
        yield new_markdown_cell(_filled(source.source), id=about["id"])
    elif exercise := about.get("exercise"):
        dashed = exercise.replace("_", "-")
        yield _code_cell(dashed, function_source(exercise, solved), "exercise", exercise=exercise)
        yield _code_cell(f"check-{dashed}", f"check({exercise})", "fixed", check=exercise)
    else:
        options = {key: about[key] for key in ("table", "seconds") if key in about}
        yield _code_cell(about["id"], source.source, about.get("role", "fixed"), **options)


def _code_cell(cell_id: str, source: str, role: str, **options: Any) -> NotebookNode:
    about = {"role": role, "exercise": None, "check": None, "table": None, "seconds": DEFAULT_SECONDS, **options}
    # What the comparison needs cannot be deleted by a slip, and what must stay as it is cannot be edited by one.
    locks = {} if role == "free" else {"deletable": False} | ({"editable": False} if role == "fixed" else {})
    return new_code_cell(source, id=cell_id, metadata={**locks, "lab16": about})


@cache
def _solution() -> str:
    return (HERE / "lab16_llm_rl.py").read_text(encoding="utf-8")


def function_source(name: str, solved: bool) -> str:
    """A function of the reference solution: as a stub, or without the markers around its solution."""
    (node,) = [node for node in ast.parse(_solution()).body if isinstance(node, ast.FunctionDef) and node.name == name]
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    head, _, rest = "\n".join(_solution().splitlines()[first - 1 : (node.end_lineno or 0) + 1]).partition(
        "    ### BEGIN SOLUTION\n"
    )
    body = rest.partition("    ### END SOLUTION")[0]
    return (head + (body if solved else STUB)).rstrip()


def _filled(text: str) -> str:
    environment = jinja2.Environment(
        variable_start_string="<<", variable_end_string=">>", block_start_string="<%%", comment_start_string="<##",
        undefined=jinja2.StrictUndefined, keep_trailing_newline=True,
    )  # fmt: skip
    return environment.from_string(text).render(course=_course, band=_band, seeds=_seeds, gap=_gap, alarms=_alarms)


def _course(path: str, percent: bool = False) -> str:
    """The course's number at the path, or the range over `*`."""
    values = list(find(course_tables(), path.split(".")))
    return _range(min(values), max(values), path, percent)


def _band(path: str, percent: bool = False) -> str:
    """What correct runs of the full profile give: the calibrated band at the path, or what bands span over `*`."""
    part, *keys = path.split(".")
    found = list(find(bands("full", part), keys))
    return _range(min(low for low, *_ in found), max(high for _, high, *_ in found), path, percent)


def _seeds(experiment: str, metric: str, step: int | None = None, **settings: Any) -> str:
    """What the runs with these settings gave after the step, the last one if none is named: lowest to highest."""
    values = seed_values(experiment, metric, step, **settings).values()
    return _range(min(values), max(values), metric, percent=False)


def _gap(experiment: str, metric: str, one: dict[str, Any], other: dict[str, Any], step: int | None = None) -> str:
    """The mean over seeds of the difference of two settings, with its standard error."""
    pair = seed_values(experiment, metric, step, **one), seed_values(experiment, metric, step, **other)
    found = [pair[0][seed] - pair[1][seed] for seed in pair[0]]
    decimals = DECIMALS.get(metric, 2) + 1
    error = stdev(found) / len(found) ** 0.5
    return f"{mean(found):+.{decimals}f} ± {error:.{decimals}f}".replace("-", "\N{MINUS SIGN}")


def seed_values(experiment: str, metric: str, step: int | None = None, **settings: Any) -> dict[int, float]:
    """Seed -> what the course's run with these settings gave; a setting that is not named has its default."""
    wanted = {key: settings.get(key, getattr(RunSettings(), key)) for key in EXPERIMENTS[experiment].varied}
    ((_, rows),) = groups(experiment, course_rows(experiment), **wanted).items()
    if metric == "take_off":
        return {row.settings.seed: row.take_off for row in rows}
    return {row.settings.seed: (row.last if step is None else row.history[step])[metric] for row in rows}


def _alarms() -> str:
    counts = [experiment["left_out"] for experiment in read_json(RECORD).values()]
    return f"{sum(failed for failed, _ in counts)} of {sum(count for _, count in counts)}"


def find(table: Any, keys: list[str]) -> Iterator[Any]:
    """What stands at the end of the keys, for `*` under every key. Raises `KeyError` where there is nothing."""
    if not keys:
        yield table
        return
    for key in table if keys[0] == "*" else keys[:1]:
        yield from find(table[key], keys[1:])


def _range(low: float, high: float, path: str, percent: bool) -> str:
    decimals = next((count for name, count in DECIMALS.items() if name in path.split(".")), 2)
    texts = [f"{100 * value:.0f}" if percent else f"{value:.{decimals}f}" for value in (low, high)]
    return (texts[0] if texts[0] == texts[1] else " to ".join(texts)) + (" %" if percent else "")


def code(notebook: NotebookNode) -> list[tuple[str, str]]:
    """Id and source of each code cell."""
    return [(cell.id, cell.source) for cell in notebook.cells if cell.cell_type == "code"]


def copy_outputs(source: NotebookNode, target: NotebookNode) -> None:
    """Give the code cells of `target` the outputs of those of `source`, which has the same.

    Tables are drawn anew, since the bands may have changed.
    """
    cells = {cell.id: cell for cell in source.cells if cell.cell_type == "code"}
    for cell in target.cells:
        if cell.cell_type == "code":
            cell.outputs = [_with_bands_of_now(output) for output in cells[cell.id].outputs]
            cell.execution_count = cells[cell.id].execution_count


def _with_bands_of_now(output: NotebookNode) -> NotebookNode:
    """The output; a table is drawn anew from its numbers."""
    if "data" not in output or TABLE_MIME not in output.data:
        return output
    shown = notebook_view(**output.data[TABLE_MIME])._repr_mimebundle_()
    return nbformat.from_dict({**output, "data": shown})


def executed(notebook: NotebookNode) -> NotebookNode:
    """The notebook with its outputs, run at the full size in a folder that holds only the solved ones before it."""
    environment, metadata = {**os.environ, "LAB16_PROFILE": "full"}, copy.deepcopy(notebook.metadata)
    with tempfile.TemporaryDirectory() as folder:
        for name in NAMES[: NAMES.index(metadata["lab16"]["notebook"])]:
            shutil.copy(solved_path(name), folder)
        client = NotebookClient(notebook, timeout=None, record_timing=False, store_widget_state=False,
                                resources={"metadata": {"path": folder}})  # fmt: skip
        client.execute(env=environment)
    notebook.metadata = metadata  # the kernel adds its own version
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if _remains(output)]
    return notebook


def _remains(output: NotebookNode) -> bool:
    """Whether anything is left of the output once its kernel is gone: of a widget its picture, of a bar nothing."""
    if "data" not in output or WIDGET_MIME not in output.data:
        return True
    del output.data[WIDGET_MIME]
    return "text/html" in output.data


def read_notebook(path: Path) -> NotebookNode | None:
    """The notebook in the file, None where there is none."""
    return nbformat.read(path, as_version=4) if path.exists() else None


def write_notebook(path: Path, notebook: NotebookNode) -> None:
    """Write the notebook, atomically. Raises nbformat's `ValidationError` for one that is none."""
    nbformat.validate(notebook)
    write_atomically(path, (nbformat.writes(notebook) + "\n").encode())


if __name__ == "__main__":
    main()
