"""The tensors of a model by name: attributes, and members of lists, tuples and dicts, however deep
("layers.0.weight")."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from morok.dtype import dtypes
from morok.errors import ArgumentError, DTypeError, ShapeError
from morok.tensor import Tensor, no_grad


def get_state_dict(model: Any, prefix: str = "") -> dict[str, Tensor]:
    """name -> tensor, in order of definition; a tensor reached twice keeps both names."""
    return dict(_walk(model, prefix.strip("."), frozenset()))


def get_parameters(model: Any) -> list[Tensor]:
    """The tensors of a model that require gradients, each once."""
    found = {id(t): t for t in get_state_dict(model).values() if t.requires_grad}
    return list(found.values())


def load_state_dict(model: Any, state: Mapping[str, Any], strict: bool = True) -> None:
    """Give the model's tensors the values that stand under their names in `state`: tensors, arrays,
    or PyTorch's tensors, which are copied and cast.

    ShapeError where shapes differ; ArgumentError, if `strict`, where a name is missing on either
    side; DTypeError for a value that is no array of the same kind of dtype. Nothing is written
    then.
    """
    load(get_state_dict(model), state, strict)


def load(own: Mapping[str, Tensor], state: Mapping[str, Any], strict: bool) -> None:
    """`load_state_dict` for tensors by name."""
    missing, unknown = own.keys() - state.keys(), state.keys() - own.keys()
    if strict and (missing or unknown):
        raise ArgumentError(
            f"load_state_dict: missing {sorted(missing)}, not in the model {sorted(unknown)}: "
            "pass strict=False to load what fits"
        )
    values = {
        name: fitting(f"load_state_dict: {name}", own[name], value)
        for name, value in state.items()
        if name in own
    }
    with no_grad():
        for name, value in values.items():
            own[name].assign(value)
    # A first step that finds everything in its place is like all others.
    if values:
        Tensor.realize(*(own[name] for name in values))


def fitting(what: str, own: Tensor, value: Any) -> Tensor:
    """`value` as a tensor that can be assigned to `own`; errors begin with `what`."""
    made = as_tensor(what, value)
    if made.shape != own.shape:
        raise ShapeError(f"{what} has shape {own.shape} in the model and {made.shape} in the state")
    kinds = {"u": "i"}
    if kinds.get(made.dtype.kind, made.dtype.kind) != kinds.get(own.dtype.kind, own.dtype.kind):
        raise DTypeError(f"{what} is {own.dtype} in the model and {made.dtype} in the state")
    return made


def as_tensor(what: str, value: Any) -> Tensor:
    """A tensor of the same value: a tensor itself, what NumPy takes, or a tensor of PyTorch."""
    if isinstance(value, Tensor):
        return value
    torch = sys.modules.get("torch")
    try:
        if torch is not None and isinstance(value, torch.Tensor):
            value = value.detach().cpu()
            if value.dtype is torch.bfloat16:
                return Tensor(value.view(torch.uint16).numpy()).bitcast(dtypes.bfloat16)
            value = value.numpy()
        return Tensor(np.asarray(value))
    except (TypeError, ValueError) as error:
        raise DTypeError(f"{what}: no tensor can be made of {type(value).__name__}") from error


def _walk(found: Any, name: str, above: frozenset[int]) -> Iterator[tuple[str, Tensor]]:
    """The tensors at and below `found`; `above` are the objects being walked (cycles end)."""
    if isinstance(found, Tensor):
        yield name, found
    elif id(found) not in above:
        for part, value in parts_of(found):
            yield from _walk(value, f"{name}.{part}" if name else part, above | {id(found)})


def parts_of(found: Any) -> Iterable[tuple[str, Any]]:
    """What a model, a list, a tuple or a dict holds, by name; nothing for anything else."""
    if isinstance(found, Tensor | str | bytes | type | ModuleType):
        return ()
    if isinstance(found, Mapping):
        return ((str(key), value) for key, value in found.items())
    if isinstance(found, list | tuple):
        return ((str(i), value) for i, value in enumerate(found))
    return vars(found).items() if hasattr(found, "__dict__") else ()
