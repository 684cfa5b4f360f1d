"""What a notebook of the lab was when it was handed out, and in what a student's file departs from it."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labutils.errors import LabError
from labutils.tolerance import DATA, Table, bands, notebook_profile

RESTORE = "restore it from the notebook that was handed out"


@dataclass(frozen=True)
class ReferenceCell:
    """A code cell as it was handed out.

    id: its nbformat id. role: "fixed" (stands as handed out), "exercise" (the student fills it in) or "free".
    sha256: hexadecimal digest of its source, stripped. exercise: the one that is filled in here. check: the exercise
    whose report it shows. table: the part whose table it shows. seconds: its time limit.
    """

    id: str
    role: str
    sha256: str
    exercise: str | None
    check: str | None
    table: str | None
    seconds: float


@dataclass(frozen=True)
class Reference:
    """A notebook as it was handed out: its code cells by id, in order, and the folder that holds its bands."""

    name: str
    cells: Mapping[str, ReferenceCell]
    folder: Path

    def bands(self, part: str) -> Table | None:
        """The bands of a part's table in this run's profile; None where there are none."""
        return bands(notebook_profile(), part, self.folder)


def read_reference(path: Path, name: str | None = None, folder: Path | None = None) -> Reference | None:
    """The reference of the notebook at `path`; None for a notebook that is not the lab's.

    name: which one, where the caller knows better than the file. folder: holds notebooks.json and bands.json.
    Raises LabError where there is no reference of that name.
    """
    if folder is not None and not (folder / "notebooks.json").is_file():
        raise LabError(f"reference folder {folder}; it must hold a notebooks.json")
    folder = folder or DATA
    notebooks = _notebooks(folder / "notebooks.json")
    if name is not None and name not in notebooks:
        raise LabError(f"notebook {name!r}; allowed are {', '.join(notebooks) or 'none'}")
    name = name or _recognised(path, notebooks)
    if name is None:
        return None
    # A notebook that says it is the lab's and that nobody knows has no cells here, and fails for that.
    return Reference(name, {cell.id: cell for cell in notebooks.get(name, [])}, folder)


def _notebooks(file: Path) -> dict[str, list[ReferenceCell]]:
    content = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return {name: [ReferenceCell(**cell) for cell in notebook["cells"]] for name, notebook in content.items()}


def _recognised(path: Path, notebooks: Mapping[str, Sequence[ReferenceCell]]) -> str | None:
    """The lab's notebook that a file is: by its name, else by its metadata, else by the most cell ids in common."""
    if path.stem in notebooks:
        return path.stem
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None  # no notebook at all: nbval says so
    named = _entry(content, "metadata", "lab16", "notebook")
    if isinstance(named, str):
        return named
    cells = _entry(content, "cells")
    found = [_entry(cell, "id") for cell in cells] if isinstance(cells, list) else []
    common = {name: sum(cell.id in found for cell in reference) for name, reference in notebooks.items()}
    best = max(common, key=lambda name: common[name], default=None)
    return best if best is not None and common[best] > 0 else None


def _entry(content: Any, *keys: str) -> Any:
    """What the keys lead to in a file that may hold anything; None where they lead nowhere."""
    for key in keys:
        content = content.get(key) if isinstance(content, Mapping) else None
    return content


def cell_problems(cell: Any, ids: Sequence[str | None], reference: ReferenceCell) -> list[str]:
    """In what a code cell departs from the reference: one line for each. ids: those of the notebook's cells."""
    problems = []
    if ids.count(reference.id) > 1:
        problems.append(f"{ids.count(reference.id)} cells have the id '{reference.id}'; delete the copies")
    if reference.role == "fixed" and source_digest(cell.source) != reference.sha256:
        problems.append(
            f"cell '{reference.id}' differs from the notebook that was handed out; "
            "restore it, or put your own code into a new cell"
        )
    return problems


def source_digest(source: str) -> str:
    """The hexadecimal SHA-256 digest of a cell's source, stripped."""
    # A lone surrogate is valid JSON; it must give a digest like anything else.
    return hashlib.sha256(source.strip().encode("utf-8", "surrogatepass")).hexdigest()


def notebook_problems(cells: Sequence[Any], reference: Reference) -> dict[str, str]:
    """In what a notebook's cells depart from the reference as a whole: what is wrong -> one line that says it."""
    if not reference.cells:
        return {"reference": f"this lab has no notebook {reference.name[:80]!r} to compare with"}
    types = {cell.get("id"): cell.cell_type for cell in cells if cell.cell_type != "code"}
    code = [cell.get("id") for cell in cells if cell.cell_type == "code"]
    problems = {}
    for name in reference.cells:
        if name in types:
            problems[name] = f"cell '{name}' is a {types[name]} cell; make it a code cell"
        elif name not in code:
            problems[name] = f"cell '{name}' is missing: {RESTORE} (a copied or split cell is a new one)"
    return problems | _order_problem([name for name in code if name in reference.cells], list(reference.cells))


def _order_problem(found: Sequence[str], cells: Sequence[str]) -> dict[str, str]:
    once = list(Counter(found))  # copies are reported as copies
    expected = [name for name in cells if name in once]
    for here, there in zip(once, expected, strict=True):
        if here != there:
            line = f"the order of the cells was changed: '{there}' should come before '{here}'"
            return {"order of the cells": line}
    return {}
