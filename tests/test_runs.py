"""Following runs that write their states elsewhere: the bar, the curves, and the end of the thread."""

import threading

import pytest
import torch

from labutils import runs
from labutils.checkpoints import save_checkpoint
from labutils.errors import LabError


def save(path, step):
    history = {str(s): {"accuracy": s / 10} for s in range(step + 1)}
    save_checkpoint(path, {"x": torch.zeros(1)}, {"history": history})


@pytest.fixture
def bars(monkeypatch):
    made = []

    class Bar(runs.tqdm):
        def __init__(self, **arguments):
            super().__init__(**arguments)
            self.start = self.n
            made.append(self)

    monkeypatch.setattr(runs, "tqdm", Bar)
    monkeypatch.setattr(runs, "FOLLOWED_EVERY", 0.01)
    return made


def test_the_bar_starts_at_what_is_done_and_ends_at_what_was_done_inside(tmp_path, bars):
    paths = [tmp_path / "a", tmp_path / "b"]
    save(paths[0], 4)
    seen = []
    with runs.followed("runs", paths, 10, seen.append):
        save(paths[0], 10)
        save(paths[1], 7)
    assert (bars[0].start, bars[0].n, bars[0].total) == (4, 17, 20)
    assert [max(seen[-1][path]) for path in paths] == [10, 7]


def test_curves_of_runs_that_were_finished_before_are_shown_once(tmp_path, bars):
    save(tmp_path / "a", 10)
    seen = []
    with runs.followed("runs", [tmp_path / "a"], 10, seen.append):
        pass
    assert [max(histories[tmp_path / "a"]) for histories in seen] == [10]
    assert bars[0].start == 10


def test_nothing_follows_on_after_an_interruption(tmp_path, bars):
    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt), runs.followed("runs", [tmp_path / "a"], 10, None):
        raise KeyboardInterrupt
    assert threading.active_count() <= before + 1  # tqdm keeps a monitor of its own
    assert not [thread for thread in threading.enumerate() if "follow" in thread.name]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_stub_is_named(processes):
    def rloo_advantages(rewards):
        raise NotImplementedError

    with pytest.raises(LabError, match="^rloo_advantages is not written yet$"):
        runs.run_all("runs", {"a": lambda: rloo_advantages(1), "b": lambda: 2}, processes)
