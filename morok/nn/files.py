"""Tensors in files, in the safetensors format (specification: github.com/huggingface/safetensors):
the length of a header in 8 bytes, the header as JSON, then the data without gaps."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from morok.dtype import DType, dtypes, to_numpy
from morok.errors import ArgumentError, DTypeError
from morok.tensor import Tensor, memory

_NAMES: dict[str, DType] = {
    "BOOL": dtypes.bool_,
    "U8": dtypes.uint8,
    "U16": dtypes.uint16,
    "U32": dtypes.uint32,
    "U64": dtypes.uint64,
    "I8": dtypes.int8,
    "I16": dtypes.int16,
    "I32": dtypes.int32,
    "I64": dtypes.int64,
    "F16": dtypes.float16,
    "BF16": dtypes.bfloat16,
    "F32": dtypes.float32,
    "F64": dtypes.float64,
    "F8_E4M3": dtypes.fp8e4m3,
    "F8_E5M2": dtypes.fp8e5m2,
}
_LONGEST = 100_000_000  # bytes of a header, as the format's own reader has it
_ALIGN = 8

Path = str | os.PathLike[str]


def safe_save(
    tensors: Mapping[str, Tensor], path: Path, metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors by name (`get_state_dict(model)`) to a safetensors file, which is replaced as a
    whole when everything is written."""
    arrays = {name: _array(tensor) for name, tensor in tensors.items()}
    names = {dtype: name for name, dtype in _NAMES.items()}
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    # The format's writers put wide elements first, so that all are aligned.
    order = sorted(arrays, key=lambda name: (-tensors[name].dtype.itemsize, name))
    end = 0
    for name in order:
        begin, end = end, end + arrays[name].nbytes
        header[name] = {
            "dtype": names[tensors[name].dtype],
            "shape": list(arrays[name].shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGN)
    target = os.path.abspath(os.fspath(path))
    handle, draft = tempfile.mkstemp(dir=os.path.dirname(target), prefix=".safetensors-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(len(text).to_bytes(8, "little"))
            file.write(text)
            for name in order:
                file.write(arrays[name].data)
        os.chmod(draft, 0o644)  # a temporary file is its owner's alone
        os.replace(draft, target)
    except BaseException:
        os.unlink(draft)
        raise


def safe_load(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name. Nothing is read before it is used: the file is
    mapped, and must not be changed in place while its tensors live.

    ArgumentError for a file that is damaged, DTypeError for a dtype morok does not have.
    """
    whole = np.memmap(path, np.uint8, "r") if os.path.getsize(path) else np.empty(0, np.uint8)
    length = int.from_bytes(whole[:8].tobytes(), "little")
    if len(whole) < 8 or length > min(len(whole) - 8, _LONGEST):
        _damaged(path, "its header is longer than the file")
    try:
        header = json.loads(whole[8 : 8 + length].tobytes())
        entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
    except (ValueError, AttributeError) as error:
        _damaged(path, f"its header is no JSON object ({error})")
    data = whole[8 + length :]
    return {name: _tensor(path, name, entry, data) for name, entry in entries.items()}


def _damaged(path: Path, why: str) -> NoReturn:
    raise ArgumentError(f"safe_load: {os.fspath(path)} is no safetensors file: {why}")


def _array(tensor: Tensor) -> npt.NDArray[Any]:
    """The elements in a dtype of NumPy with the same bits."""
    stored = memory.in_numpy(tensor.dtype)
    tensor = tensor if stored is tensor.dtype else tensor.bitcast(stored)
    return np.asarray(tensor.detach().numpy(), order="C")


def _tensor(path: Path, name: str, entry: Any, data: npt.NDArray[np.uint8]) -> Tensor:
    try:
        kind, shape = entry["dtype"], tuple(int(n) for n in entry["shape"])
        begin, end = (int(n) for n in entry["data_offsets"])
    except (KeyError, TypeError, ValueError):
        _damaged(path, f"the entry of {name} lacks dtype, shape or data_offsets")
    dtype = _NAMES.get(kind)
    if dtype is None:
        raise DTypeError(f"safe_load: {name} in {os.fspath(path)} has dtype {kind}: there is none")
    size = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or not 0 <= begin <= end <= len(data) or end - begin != size:
        _damaged(path, f"bytes {begin} to {end} of {len(data)} do not hold {name}, {shape} {dtype}")
    stored = memory.in_numpy(dtype)
    part = data[begin:end]
    if part.ctypes.data % stored.itemsize:
        part = part.copy()  # elements that are not aligned cannot be used in place
    tensor = Tensor.from_numpy(np.asarray(part.view(to_numpy(stored)).reshape(shape)))
    return tensor if stored is dtype else tensor.bitcast(dtype)
