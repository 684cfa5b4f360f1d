"""Many runs at once: one process of one thread each, which finishes more per hour than one run on all threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, cast

import joblib
from tqdm.auto import tqdm

from labutils.training import delayed_interrupt, one_thread

Result = TypeVar("Result")


def run_all(name: str, tasks: Mapping[str, Callable[[], Result]], processes: int) -> dict[str, Result]:
    """The results of all tasks under their names, computed by up to `processes` processes, with a progress bar.

    An interruption lets the tasks under way save their state, starts no other, and raises `KeyboardInterrupt`.
    """
    results: dict[str, Result | None] = {}
    with delayed_interrupt() as interrupted:

        def pending() -> Iterator[Any]:
            for key, task in tasks.items():
                if interrupted() or None in results.values():
                    return
                yield joblib.delayed(_run)(key, task)

        parallel = joblib.Parallel(n_jobs=processes, return_as="generator_unordered", pre_dispatch=processes)
        try:
            with tqdm(desc=name, total=len(tasks)) as bar:
                for key, result in parallel(pending()):
                    results[key] = result
                    bar.update(result is not None)
        except Exception:
            if not interrupted():  # else a worker died of the signal while it had no task
                raise
    finished = {key: results[key] for key in tasks if results.get(key) is not None}
    if len(finished) < len(tasks):
        raise KeyboardInterrupt(f"{name} stopped with {len(finished)} of {len(tasks)} runs finished")
    return cast("dict[str, Result]", finished)


def _run(key: str, task: Callable[[], Result]) -> tuple[str, Result | None]:
    try:
        with one_thread():
            return key, task()
    except KeyboardInterrupt:
        return key, None  # raised here it would have joblib kill the other workers before they have saved
