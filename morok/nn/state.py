"""The tensors of a model by name: attributes, and members of lists, tuples and dicts, however deep
("layers.0.weight")."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from morok.errors import ShapeError
from morok.tensor import Tensor, no_grad


def get_state_dict(model: Any, prefix: str = "") -> dict[str, Tensor]:
    """name -> tensor, in order of definition; a tensor reached twice keeps both names."""
    return dict(_walk(model, prefix.strip("."), frozenset()))


def get_parameters(model: Any) -> list[Tensor]:
    """The tensors of a model that require gradients, each once."""
    found = {id(t): t for t in get_state_dict(model).values() if t.requires_grad}
    return list(found.values())


def load_state_dict(model: Any, state: Mapping[str, Any], strict: bool = True) -> None:
    """Assign the values in `state` (tensors or arrays) to the model's tensors of the same names.

    ShapeError where shapes differ and, if `strict`, where a name is missing on either side; nothing
    is assigned then.
    """
    own = get_state_dict(model)
    missing, unknown = own.keys() - state.keys(), state.keys() - own.keys()
    if strict and (missing or unknown):
        raise ShapeError(
            f"load_state_dict: missing {sorted(missing)}, not in the model {sorted(unknown)}: "
            "pass strict=False to load what fits"
        )
    values = {
        name: value if isinstance(value, Tensor) else Tensor(value)
        for name, value in state.items()
        if name in own
    }
    for name, value in values.items():
        if value.shape != own[name].shape:
            raise ShapeError(
                f"load_state_dict: {name} has shape {own[name].shape} in the model and "
                f"{value.shape} in the state"
            )
    with no_grad():
        for name, value in values.items():
            own[name].assign(value)


def _walk(found: Any, name: str, above: frozenset[int]) -> Iterator[tuple[str, Tensor]]:
    """The tensors at and below `found`; `above` are the objects being walked (cycles end)."""
    if isinstance(found, Tensor):
        yield name, found
    elif id(found) not in above:
        for part, value in parts_of(found):
            yield from _walk(value, f"{name}.{part}" if name else part, above | {id(found)})


def parts_of(found: Any) -> Iterable[tuple[str, Any]]:
    """What a model, a list, a tuple or a dict holds, by name; nothing for anything else."""
    if isinstance(found, Tensor | str | bytes | type):
        return ()
    if isinstance(found, Mapping):
        return ((str(key), value) for key, value in found.items())
    if isinstance(found, list | tuple):
        return ((str(i), value) for i, value in enumerate(found))
    return vars(found).items() if hasattr(found, "__dict__") else ()
