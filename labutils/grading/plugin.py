"""The pytest plugin: under `pytest --nbval`, a notebook of this lab is compared with its reference.

The reference says which cells there are, which of them show a table or a check, and how long each may take; the
bands say which numbers are right. Nothing in the notebook's file decides: no marker, tag, stored output or kernel
name. Any other notebook is left to nbval.

What runs inside the notebook's kernel can also change what the kernel sends. A notebook that was written to deceive
is a matter for a grader that calls the student's functions from outside; this plugin holds against everything short
of that.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from labutils.errors import LabError


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of a notebook of the lab, all on the command line."""
    group = parser.getgroup("lab16", "Lab 16 notebooks under --nbval")
    group.addoption("--lab16-notebook", metavar="NAME", help="Compare every notebook with this one's reference.")
    group.addoption(
        "--lab16-reference",
        metavar="FOLDER",
        type=Path,
        help="Folder with notebooks.json and bands.json, in place of the ones that came with the lab.",
    )


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path, parent: pytest.Collector
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """What the other plugins collect, with nbval's file replaced where it is a notebook of the lab."""
    collectors = yield
    if file_path.suffix != ".ipynb" or not _nbval_runs(parent.config):
        return collectors
    # Imported here, so that every other pytest run starts as fast as without this plugin.
    from nbval.plugin import IPyNbFile

    return [_replaced(one, file_path, parent) if isinstance(one, IPyNbFile) else one for one in collectors]


def _nbval_runs(config: pytest.Config) -> bool:
    return bool(config.getoption("nbval", False) or config.getoption("nbval_lax", False))


def _replaced(collector: Any, path: Path, parent: pytest.Collector) -> Any:
    from labutils.grading.notebook import LabNotebook
    from labutils.grading.reference import read_reference

    try:
        reference = read_reference(path, parent.config.option.lab16_notebook, parent.config.option.lab16_reference)
    except LabError as error:
        raise pytest.UsageError(str(error)) from None
    if reference is None:
        return collector
    return LabNotebook.from_parent(parent, path=path, reference=reference)
