"""A notebook of the lab as nbval collects it, and its cells as nbval runs them, compared with the reference."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import nbformat.reader
import pytest
from nbval.kernel import CURRENT_ENV_KERNEL_NAME
from nbval.plugin import IPyNbCell, IPyNbFile

from labutils.grading.comparison import output_problems
from labutils.grading.execution import execute
from labutils.grading.reference import Reference, ReferenceCell, cell_problems, notebook_problems

EXTRA_CELL_SECONDS = 600.0  # time limit of a cell that the student has added
CELL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")  # nbformat's


class LabNotebook(IPyNbFile):  # type: ignore[misc]
    """A file of the lab: an item for each code cell in the file's order, and one for each departure of the whole.

    lost: None, or one line that says in which cell the kernel was lost and how.
    """

    lost: str | None = None

    def __init__(self, *, reference: Reference, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.reference = reference

    def setup(self) -> None:
        """Starts the kernel, where there is something to run."""
        if self.nb.cells:
            super().setup()

    def collect(self) -> Iterator[pytest.Item]:
        """The items. A file that cannot be read is one failing item, so that other notebooks still run."""
        self.nb = nbformat.from_dict({"metadata": {}, "cells": []})
        try:
            self.nb.cells = _read_cells(self.path.read_bytes())
        except Exception as error:  # whatever a broken file provokes in the reader
            problem = f"{self.path.name} cannot be read as a notebook: {type(error).__name__}: {error}"
            yield Departure.from_parent(self, name="notebook", problem=problem[:300])
            return
        # The tests' own environment holds the lab; the file may name a kernel that this machine does not have.
        self.nb.metadata.kernelspec = {"name": CURRENT_ENV_KERNEL_NAME}
        for name, problem in notebook_problems(self.nb.cells, self.reference).items():
            yield Departure.from_parent(self, name=name, problem=problem)
        yield from self._cells()

    def _cells(self) -> Iterator[pytest.Item]:
        code = [cell for cell in self.nb.cells if cell.cell_type == "code"]
        ids = [cell.get("id") for cell in self.nb.cells]
        seen: Counter[str] = Counter()
        for number, cell in enumerate(code):
            reference = self.reference.cells.get(cell.get("id"))
            problems = cell_problems(cell, ids, reference) if reference else []
            name = _cell_name(cell, number)
            seen[name] += 1
            yield LabCell.from_parent(
                self,
                name=name if seen[name] == 1 else f"{name} ({seen[name]})",
                cell_num=number,
                cell=cell,
                options={},
                reference=reference,
                problems=problems,
            )


def _read_cells(content: bytes) -> list[Any]:
    """The cells, unrepaired: nbformat's validation would give a second cell of the same id a new one."""
    notebook = nbformat.reader.reads(content.decode())
    if notebook.nbformat != 4:
        raise ValueError(f"notebook format {notebook.nbformat}; expected 4")
    for cell in notebook.cells:
        if not isinstance(cell.source, str) or not isinstance(cell.cell_type, str):
            raise ValueError("a cell's source or type is no string")
        if not isinstance(cell.get("id", ""), str):
            raise ValueError("a cell's id is no string")
    return notebook.cells


def _cell_name(cell: Any, number: int) -> str:
    name = cell.get("id", "")
    return name if CELL_ID.fullmatch(name) else f"Cell {number}"


class LabCell(IPyNbCell):  # type: ignore[misc]
    """A code cell: runs in the notebook's kernel, and fails for each problem with one line."""

    def __init__(self, *, reference: ReferenceCell | None, problems: list[str], **arguments: Any) -> None:
        super().__init__(**arguments)
        self.reference = reference
        self.problems = problems

    def runtest(self) -> None:
        """Runs the cell, unless the kernel was lost before."""
        problems = [f"not run: {self.parent.lost}"] if self.parent.lost else self._run()
        if self.problems or problems:
            pytest.fail("\n".join([*self.problems, *problems]), pytrace=False)

    def _run(self) -> list[str]:
        limit = self.reference.seconds if self.reference else EXTRA_CELL_SECONDS
        execution = execute(self.parent.kernel, self.cell.source, min(limit, self.config.option.nbval_cell_timeout))
        if execution.kernel_lost:
            self.parent.lost = f"{execution.error} in cell '{self.name}'"
        if execution.error:
            return [execution.error, *filter(None, [execution.details])]
        if self.reference is None:
            return []
        return output_problems(self.reference, self.parent.reference, execution.bundles)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> Any:
        """The failure as pytest shows it, so that its first line also stands in the summary."""
        return pytest.Item.repr_failure(self, excinfo)

    def reportinfo(self) -> tuple[Any, int | None, str]:
        """Where the item stands: its file and its name."""
        return self.path, None, self.name


class Departure(pytest.Item):
    """What is wrong with a notebook as a whole, such as a cell that is missing: an item that fails."""

    def __init__(self, *, problem: str, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.problem = problem

    def runtest(self) -> None:
        """Fails with the line that says what is wrong."""
        pytest.fail(self.problem, pytrace=False)

    def reportinfo(self) -> tuple[Any, int | None, str]:
        """Where the item stands: its file and its name."""
        return self.path, None, self.name
