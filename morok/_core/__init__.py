"""The core: interned nodes, inference, walks, matching and rewriting. Compiled; there is no fall-back.

Other packages enter here. Build with `python setup.py build_ext --inplace` or `pip install -e .`.
"""

try:
    from morok._core.infer import register_op
    from morok._core.node import Node, build, node, node_stats, register_uop_class, set_provenance
    from morok._core.walk import backward_slice, consumers, cut_realized, substitute, toposort
except ImportError as error:
    raise ImportError(
        "morok's compiled core is missing or broken: run `python setup.py build_ext --inplace` in the source "
        f"tree, or reinstall the package ({error})"
    ) from error

__all__ = [
    "Node",
    "backward_slice",
    "build",
    "consumers",
    "cut_realized",
    "node",
    "node_stats",
    "register_op",
    "register_uop_class",
    "set_provenance",
    "substitute",
    "toposort",
]
