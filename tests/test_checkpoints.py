import contextlib
import json
import os

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labutils import checkpoints
from labutils.checkpoints import (
    LARGEST_FILE,
    DamagedFile,
    load_checkpoint,
    load_model,
    read_json,
    save_checkpoint,
    save_model,
    write_atomically,
    write_json,
)
from labutils.errors import LabError
from labutils.model import ModelConfig, Transformer


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model.safetensors"
    save_model(path, Transformer(ModelConfig(layers=1, width=8, heads=2)), {"seed": 3})
    return path


SMALL = ModelConfig(layers=1, width=8, heads=2)


def test_a_model_comes_back_as_it_was(tmp_path):
    model, path = Transformer(SMALL), tmp_path / "deep" / "model.safetensors"
    save_model(path, model, {"seed": 3, "curve": {"0": 0.5}})
    loaded, about = load_model(path, SMALL)
    assert about == {"seed": 3, "curve": {"0": 0.5}}
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value), name


def test_the_same_model_gives_the_same_file(tmp_path):
    model = Transformer(SMALL)
    files = []
    for i in range(12):
        save_model(tmp_path / f"{i}", model, {"seed": 3})
        files.append((tmp_path / f"{i}").read_bytes())
    assert len(set(files)) == 1


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_changed_byte_is_noticed(saved, tmp_path, data):
    content = bytearray(saved.read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= data.draw(st.integers(1, 255))
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(content)
    with pytest.raises(LabError, match="damaged.safetensors"):
        load_model(damaged, SMALL)


@pytest.mark.parametrize("keep", [0, 1, 7, 8, 100, 0.5, 0.999])
def test_a_half_written_file_is_noticed(saved, keep):
    content = saved.read_bytes()
    saved.write_bytes(content[: int(keep * len(content)) if isinstance(keep, float) else keep])
    with pytest.raises(DamagedFile, match=r"model\.safetensors is damaged"):
        load_model(saved, SMALL)


def test_a_safetensors_file_of_someone_else_is_refused(tmp_path):
    from safetensors.torch import save_file

    path = tmp_path / "other.safetensors"
    save_file(Transformer(SMALL).state_dict(), path)
    with pytest.raises(DamagedFile, match="not a checkpoint of this lab"):
        load_model(path, SMALL)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (ModelConfig(layers=2, width=8, heads=2), "it has an unknown tensor blocks.1"),
        (ModelConfig(layers=1, width=16, heads=2), r"is torch.float32 \(\d+.*\); allowed is torch.float32"),
    ],
)
def test_another_architecture_is_refused_by_name(tmp_path, config, message):
    path = tmp_path / "model.safetensors"
    save_model(path, Transformer(config), {})
    with pytest.raises(LabError, match="model.safetensors is of another architecture: .*" + message) as error:
        load_model(path, SMALL)
    assert "\n" not in str(error.value)


def test_values_that_are_not_finite_and_other_dtypes_are_refused(tmp_path):
    path, model = tmp_path / "model.safetensors", Transformer(SMALL)
    save_model(path, model.double(), {})
    with pytest.raises(LabError, match=r"torch.float64 .*; allowed is torch.float32"):
        load_model(path, SMALL)
    model = model.float()
    model.head.bias.data[0] = torch.nan
    save_model(path, model, {})
    with pytest.raises(LabError, match="not finite, in head.bias"):
        load_model(path, SMALL)


def test_a_missing_and_an_oversized_file_are_named(tmp_path):
    with pytest.raises(LabError, match="cannot read .*nothing.safetensors: No such file"):
        load_model(tmp_path / "nothing.safetensors")
    large = tmp_path / "large.safetensors"
    with open(large, "wb") as file:
        file.truncate(LARGEST_FILE + 1)
    with pytest.raises(DamagedFile, match="large.safetensors is larger than"):
        load_checkpoint(large)


def test_a_pickle_is_never_opened(tmp_path):
    path, mark = tmp_path / "model.safetensors", tmp_path / "mark"

    class Trap:
        def __reduce__(self):
            return (open, (str(mark), "w"))

    torch.save(Trap(), path)
    with pytest.raises(DamagedFile):
        load_model(path, SMALL)
    assert not mark.exists()


def test_a_failing_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("refusals", [3, 10**6])
def test_a_file_that_another_process_reads_is_replaced_a_little_later(tmp_path, monkeypatch, refusals):
    """Windows refuses to replace an open file; a reader closes it soon, and one that does not is reported."""
    path, replace, attempts = tmp_path / "file", os.replace, []
    write_atomically(path, b"old")

    def busy(source, target):
        attempts.append(source)
        if len(attempts) <= refusals:
            raise PermissionError("another process reads it")
        replace(source, target)

    monkeypatch.setattr(os, "replace", busy)
    monkeypatch.setattr(checkpoints, "REPLACE_PAUSE", 0)
    with pytest.raises(PermissionError) if refusals > 100 else contextlib.nullcontext():
        write_atomically(path, b"new")
    assert path.read_bytes() == (b"old" if refusals > 100 else b"new")
    assert os.listdir(tmp_path) == ["file"]


def test_json_that_is_none_is_named(tmp_path):
    path = tmp_path / "tables.json"
    write_json(path, {"a": [1.5]})
    assert read_json(path) == {"a": [1.5]} == json.loads(path.read_text())
    for text in ("{", "[" * 100_000):
        path.write_text(text)
        with pytest.raises(DamagedFile, match=r"tables\.json is damaged: not JSON"):
            read_json(path)


def test_any_tensors_come_back(tmp_path):
    tensors = {"scalar": torch.tensor(3.0), "empty": torch.zeros(0, 2), "bytes": torch.arange(5).byte()}
    save_checkpoint(tmp_path / "x", tensors, {})
    loaded, about = load_checkpoint(tmp_path / "x")
    assert about == {}
    assert all(torch.equal(loaded[name], value) for name, value in tensors.items())
