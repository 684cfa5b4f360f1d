"""Many runs at once: one process of one thread each, which finishes more per hour than one run on all threads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import joblib
from tqdm.auto import tqdm

from labutils.checkpoints import read_description
from labutils.errors import LabError
from labutils.training import History, delayed_interrupt, one_thread

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")

FOLLOWED_EVERY = 0.5  # seconds between two looks at the files of the runs


def run_all(name: str, tasks: Mapping[Key, Callable[[], Result]], processes: int) -> dict[Key, Result]:
    """The results of all tasks under their names, computed by up to `processes` processes.

    An interruption lets the tasks under way save their state, starts no other, and raises `KeyboardInterrupt`.
    """
    results: dict[Key, Result | None] = {}
    with delayed_interrupt() as interrupted:

        def pending() -> Iterator[Any]:
            for key, task in tasks.items():
                if interrupted() or None in results.values():
                    return
                yield joblib.delayed(_run)(key, task)

        parallel = joblib.Parallel(n_jobs=processes, return_as="generator_unordered", pre_dispatch=processes)
        try:
            for key, result in parallel(pending()):
                results[key] = result
        except Exception:
            if not interrupted():  # else a worker died of the signal while it had no task
                raise
    finished = {key: results[key] for key in tasks if results.get(key) is not None}
    if len(finished) < len(tasks):
        raise KeyboardInterrupt(f"{name} stopped with {len(finished)} of {len(tasks)} runs finished")
    return cast("dict[Key, Result]", finished)


def _run(key: Key, task: Callable[[], Result]) -> tuple[Key, Result | None]:
    try:
        with one_thread():
            return key, task()
    except KeyboardInterrupt:
        return key, None  # raised here it would have joblib kill the other workers before they have saved


@contextlib.contextmanager
def followed(
    name: str, paths: Iterable[Path], steps: int, watch: Callable[[dict[Path, History]], None] | None
) -> Iterator[None]:
    """Inside the block a progress bar counts the steps that runs of `steps` steps each have saved at the paths.

    watch: called with the runs' histories as they grow. The runs may be in other processes.
    """
    paths, stop, shown = list(paths), threading.Event(), 0

    def histories() -> dict[Path, History]:
        return {path: history for path in paths if (history := _history(path))}

    def steps_of(found: dict[Path, History]) -> int:
        return sum(max(history) for history in found.values())

    def look() -> None:
        nonlocal shown
        found = histories()
        if (done := steps_of(found)) != shown:
            bar.update(done - bar.n)
            shown = done
            if watch is not None:
                watch(found)

    def follow() -> None:
        while not stop.wait(FOLLOWED_EVERY):
            look()

    # What earlier calls did counts as done from the start, so that the time left is that of the rest.
    bar = tqdm(desc=name, total=steps * len(paths), initial=steps_of(histories()))
    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    with bar:
        try:
            yield
        finally:
            stop.set()
            thread.join()
        look()


def _history(path: Path) -> History:
    """The evaluations saved so far; none where there is no file or no whole one."""
    try:
        return {int(step): metrics for step, metrics in read_description(path)["history"].items()}
    except (LabError, KeyError):
        return {}
