"""Functions that a student has written in an earlier notebook, for one that goes on from there."""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

import cloudpickle
import nbformat

from labutils.errors import LabError


def functions_of(path: str | Path, names: Iterable[str]) -> ModuleType:
    """A module with the named functions of a notebook, and the imports of all its cells. Nothing else of it is run.

    Of a function that is defined twice the last counts. It reaches other processes by value, like one of the notebook
    that asks for it. Raises `LabError` where the file is no notebook, or holds no such function, or one that cannot be
    read.
    """
    path = Path(path)
    try:
        cells = nbformat.read(path, as_version=4).cells
    except FileNotFoundError:
        raise LabError(f"there is no notebook {path}; it must stand beside this one") from None
    except Exception as error:  # whatever a broken file provokes in the reader
        raise LabError(f"{path} cannot be read as a notebook: {type(error).__name__}") from error
    module = ModuleType(f"notebook {path.stem}")  # no name that something else is imported by
    sys.modules[module.__name__] = module
    cloudpickle.register_pickle_by_value(module)
    wanted = set(names)
    for number, cell in enumerate(cells):
        if cell.cell_type == "code":
            _run(cell.source, f"{path}, cell {cell.get('id', number)}", wanted, module)
    if missing := sorted(wanted - vars(module).keys()):
        raise LabError(f"{path} has no function {', '.join(missing)}; write it there first")
    return module


def _run(source: str, place: str, wanted: set[str], module: ModuleType) -> None:
    """Run the cell's imports and the functions that are wanted. A cell that is no Python is passed over."""
    try:
        statements = list(_chosen(ast.parse(source), wanted))
    except SyntaxError:
        return
    # By which tracebacks and `inspect` find the lines.
    linecache.cache[place] = (len(source), None, source.splitlines(keepends=True), place)
    try:
        exec(compile(ast.Module(statements, []), place, "exec"), vars(module))
    except Exception as error:
        raise LabError(f"{place} raised {type(error).__name__}: {error}") from error


def _chosen(tree: ast.Module, wanted: set[str]) -> Iterator[ast.stmt]:
    for statement in tree.body:
        is_import = isinstance(statement, (ast.Import, ast.ImportFrom))
        if is_import or (isinstance(statement, ast.FunctionDef) and statement.name in wanted):
            yield statement
