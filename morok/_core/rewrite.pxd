# cython: language_level=3
"""Rewriting of graphs to a fixed point: what other core modules may call."""

from cpython.object cimport PyObject

from morok._core.match cimport Matcher
from morok._core.types cimport CNode

# The graph below `root` rewritten; `rules` or `before` may be None. A new reference.
cdef CNode *rewrite_graph(
    CNode *root, Matcher rules, Matcher before, object ctx, str name
) except NULL
