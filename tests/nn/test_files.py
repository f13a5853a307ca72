"""Tensors in safetensors files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morok as mk
from morok.dtype import dtypes
from morok.errors import ArgumentError, DTypeError, MorokError
from morok.nn.state import get_state_dict, load_state_dict
from morok.tensor import Tensor


def written(path: Path, header: Any, data: bytes) -> Path:
    """A file by the format's specification."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def test_a_model_comes_back(tmp_path: Path) -> None:
    first, second = (mk.nn.Sequential(mk.nn.Linear(3, 2), mk.nn.BatchNorm1d(2)) for _ in range(2))
    state = get_state_dict(first)
    mk.nn.safe_save(state, tmp_path / "model.safetensors", {"epoch": "3"})
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]
    loaded = mk.nn.safe_load(tmp_path / "model.safetensors")
    assert loaded.keys() == state.keys()
    load_state_dict(second, loaded)
    for mine, other in zip(state.values(), get_state_dict(second).values(), strict=True):
        assert mine.dtype is other.dtype
        np.testing.assert_array_equal(mine.numpy(), other.numpy())


@pytest.mark.parametrize("dtype", dtypes.all, ids=str)
def test_every_dtype_comes_back(tmp_path: Path, dtype: Any) -> None:
    given = {"a": Tensor([[0, 1, 2]]).cast(dtype), "empty": Tensor.zeros(0, 3).cast(dtype)}
    mk.nn.safe_save(given, tmp_path / "x")
    loaded = mk.nn.safe_load(tmp_path / "x")
    for name, tensor in given.items():
        assert (loaded[name].dtype, loaded[name].shape) == (dtype, tensor.shape)
        assert loaded[name].tolist() == tensor.tolist()


def test_a_file_of_somebody_else(tmp_path: Path) -> None:
    """The second tensor is not aligned; writing to a loaded tensor leaves the file alone."""
    header = {
        "__metadata__": {"format": "pt"},
        "b": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
        "w": {"dtype": "F32", "shape": [2], "data_offsets": [1, 9]},
    }
    data = b"\x07" + np.array([1.5, -2.0], np.float32).tobytes()
    path = written(tmp_path / "x", header, data)
    loaded = mk.nn.safe_load(path)
    assert {k: v.tolist() for k, v in loaded.items()} == {"b": [7], "w": [1.5, -2.0]}
    loaded["b"] += 1
    assert loaded["b"].tolist() == [8]
    assert mk.nn.safe_load(path)["b"].tolist() == [7]


@pytest.mark.parametrize(
    ("header", "data", "kind", "message"),
    [
        (b"{", b"", ArgumentError, "no JSON object"),
        (b"[]", b"", ArgumentError, "no JSON object"),
        ({"w": {"dtype": "F32"}}, b"", ArgumentError, "the entry of w lacks"),
        ({"w": 3}, b"", ArgumentError, "the entry of w lacks"),
        ({"w": {"dtype": "C64", "shape": [], "data_offsets": [0, 8]}}, b"", DTypeError, "C64"),
        ({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, b"1234", ArgumentError,
         "bytes 0 to 8 of 4 do not hold w"),
        ({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, b"1234", ArgumentError,
         "bytes 0 to 4"),
        ({"w": {"dtype": "F32", "shape": [-1], "data_offsets": [4, 0]}}, b"1234", ArgumentError,
         "bytes 4 to 0"),
    ],
)  # fmt: skip
def test_damaged_files(tmp_path: Path, header: Any, data: bytes, kind, message: str) -> None:
    with pytest.raises(kind, match=message):
        mk.nn.safe_load(written(tmp_path / "x", header, data))


@pytest.mark.parametrize("content", [b"", b"abc", b"\xff" * 8, (99).to_bytes(8, "little") + b"{}"])
def test_cut_files(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(MorokError, match="longer than the file"):
        mk.nn.safe_load(tmp_path / "x")
