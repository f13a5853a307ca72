# cython: language_level=3
"""What can be said of a rule from the ops around a node alone."""

from libc.stdint cimport uint16_t, uint32_t

from morok._core.program cimport Program


cdef struct Glimpse:
    uint16_t op  # of the root
    uint16_t flags  # NODE_POINT and, with two sources, NODE_RIGHT_IN_LEFT and so on
    uint32_t nsrc  # sources; 3 stands for more, too
    uint16_t ops[2]  # ops of the first two sources, as far as there are
    uint16_t over[2]  # NODE_OVER bits of these
    uint16_t values[2]  # ConstClass of these, where they are CONST
    bint same  # the first two sources are one node

# Whether there is a node of this look whose pattern part `p` matches; never false for one that does
cdef bint could_match(Program p, Glimpse *g) noexcept
