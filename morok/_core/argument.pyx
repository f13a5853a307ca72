"""Arguments of nodes, interned: the same spelling is the same record.

An argument is spelled as bytes that tell its type and its value: 1, 1.0 and True, 0.0 and -0.0,
and NaNs of other bits are spelled differently, and no Python `__eq__` is asked. The spelling of an
item tells where it ends, so no two values share one. It is the same in every process, and so is
its digest, which goes into the content hash of the nodes.

Both tables below borrow their records; a record takes itself out when it dies.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from morok._core.hashtable cimport (
    Table,
    identity,
    table_home,
    table_init,
    table_insert,
    table_of,
    table_remove,
    table_reserve,
)
from morok._core.types cimport mk_mix

import dataclasses
import enum
import hashlib

from morok.dtype import DType

cdef extern from "Python.h":
    int64_t PyLong_AsLongLongAndOverflow(object, int *) except? -1
    Py_ssize_t c_refcount "Py_REFCNT"(PyObject *)

cdef enum:
    FEW = 200  # bytes of spelling kept on the stack
    LONG = 1024  # texts of more bytes are spelled by their digest

cdef Table _by_spelling  # records, by the hash of their spelling
cdef Table _by_value  # records, by the identity of their value
table_init(&_by_spelling, 1024)
table_init(&_by_value, 1024)


@cython.final
@cython.no_gc
cdef class ArgRecord:
    """One interned argument."""

    def __cinit__(self):
        self.spelling = NULL

    def __dealloc__(self):
        # Leave the tables first: a finalizer of the value may ask for the same argument.
        if self.spelling != NULL:
            table_remove(&_by_spelling, self.place, <void *>self)
            table_remove(&_by_value, identity(<PyObject *>self.value), <void *>self)
            free(self.spelling)


# ---- spelling -----------------------------------------------------------------------------------

cdef struct Text:
    char *at  # owned if it is not `few`
    size_t n  # bytes written
    size_t room  # bytes allocated
    char few[200]  # FEW


cdef inline int _put(Text *t, const void *what, size_t n) except -1:
    cdef char *grown
    if t.n + n > t.room:
        t.room = (t.n + n) * 2
        grown = <char *>malloc(t.room)
        if grown == NULL:
            raise MemoryError()
        memcpy(grown, t.at, t.n)
        if t.at != t.few:
            free(t.at)
        t.at = grown
    memcpy(t.at + t.n, what, n)
    t.n += n
    return 0


cdef inline int _put_sized(Text *t, char tag, const char *what, size_t n) except -1:
    cdef char head[5]
    cdef uint32_t size = <uint32_t>n
    head[0] = tag
    memcpy(head + 1, &size, 4)
    _put(t, head, 5)
    _put(t, what, n)
    return 0


cdef inline int _put_number(Text *t, char tag, const void *eight) except -1:
    cdef char head[9]
    head[0] = tag
    memcpy(head + 1, eight, 8)
    _put(t, head, 9)
    return 0


cdef class _Kind:
    """How the values of one type are spelled; for dataclasses and enums."""

    cdef bytes name  # of the type
    cdef tuple fields  # names of a dataclass's fields; None for an enum
    cdef dict members  # of an enum: identity -> spelling; members live for ever


cdef dict _kinds = {}  # type -> _Kind


cdef _Kind _kind_of(type t):
    cdef _Kind k = <_Kind>_kinds.get(t)
    if k is not None:
        return k
    k = _Kind.__new__(_Kind)
    k.name = f"{t.__module__}.{t.__qualname__}".encode()
    if issubclass(t, enum.Enum):
        k.members = {id(m): f"{t.__module__}.{t.__qualname__}.{m.name}".encode() for m in t}
    elif dataclasses.is_dataclass(t) and t.__dataclass_params__.frozen:
        k.fields = tuple(t.__dataclass_fields__)
    else:
        raise TypeError(
            f"an argument of type {t.__name__} cannot be part of a node: use None, bool, int, "
            "float, str, bytes, Enum, DType, a frozen dataclass or a tuple of those"
        )
    _kinds[t] = k
    return k


cdef int _spell_text(Text *t, char tag, bytes text) except -1:
    """Text by its length and bytes; long text by its digest: a record need not hold it twice."""
    if len(text) > LONG:
        tag = tag - 32  # upper case
        digest = hashlib.blake2b(text, digest_size=32).digest()
        text = len(text).to_bytes(8, "little") + <bytes>digest
    _put_sized(t, tag, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
    return 0


cdef int _spell(Text *t, object v) except -1:
    cdef type kind = type(v)
    cdef int overflow = 0
    cdef int64_t i
    cdef uint64_t n
    cdef double d
    cdef bytes text
    cdef _Kind k
    if kind is int:
        i = PyLong_AsLongLongAndOverflow(v, &overflow)
        if overflow:
            _spell_text(t, c'l', hex(v).encode())
        else:
            _put_number(t, c'i', &i)
    elif kind is tuple:
        n = len(<tuple>v)
        _put_number(t, c'(', &n)
        for x in <tuple>v:
            _spell(t, x)
    elif kind is bool:
        _put(t, b"T" if v else b"F", 1)
    elif v is None:
        _put(t, b"N", 1)
    elif kind is float:
        d = v
        _put_number(t, c'f', &d)
    elif kind is str:
        _spell_text(t, c's', (<str>v).encode("utf-8", "surrogatepass"))
    elif kind is bytes:
        _spell_text(t, c'b', v)
    elif kind is DType:
        _spell_text(t, c'd', (<str>v.name).encode())
    else:
        k = _kind_of(kind)
        if k.members is not None:
            text = k.members.get(<size_t><PyObject *>v)
            if text is None:  # several flags at once
                text = b"%s(%d)" % (k.name, v.value)
            _put_sized(t, c'e', PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
        else:
            _put_sized(t, c'c', PyBytes_AS_STRING(k.name), PyBytes_GET_SIZE(k.name))
            for name in k.fields:
                _spell(t, getattr(v, name))
    return 0


cdef inline uint64_t _hash(const char *at, size_t n) noexcept:
    cdef uint64_t h = n, word
    while n >= 8:
        memcpy(&word, at, 8)
        h = mk_mix(h ^ word, <uint64_t>0xE7037ED1A0B428DB)
        at += 8
        n -= 8
    word = 0
    memcpy(&word, at, n)
    return mk_mix(h ^ word, <uint64_t>0x8EBC6AF09C88C6E3)


# ---- records ------------------------------------------------------------------------------------

cdef ArgRecord _lookup(Text *t, uint64_t place):
    """The living record of this spelling, or None."""
    cdef uint64_t i = table_home(&_by_spelling, place)
    cdef ArgRecord r
    while _by_spelling.entries[i].item != NULL:
        if _by_spelling.entries[i].hash == place:
            r = <ArgRecord>_by_spelling.entries[i].item
            if r.length == t.n and memcmp(r.spelling, t.at, t.n) == 0:
                return r
        i = (i + 1) & _by_spelling.mask
    return None


cdef ArgRecord _enter(Text *t, object value):
    """The record of the spelling in `t`."""
    cdef uint64_t place = _hash(t.at, t.n)
    cdef ArgRecord r = _lookup(t, place)
    cdef bytes digest
    if r is not None:
        return r
    digest = hashlib.blake2b(t.at[:t.n], digest_size=16).digest()
    r = _lookup(t, place)  # the digest let other threads run
    if r is not None:
        return r
    table_reserve(&_by_spelling)
    table_reserve(&_by_value)
    r = ArgRecord.__new__(ArgRecord)
    r.spelling = <char *>malloc(t.n)
    if r.spelling == NULL:
        raise MemoryError()
    memcpy(r.spelling, t.at, t.n)
    r.length = t.n
    r.place = place
    r.value = value
    memcpy(&r.h0, PyBytes_AS_STRING(digest), 8)
    memcpy(&r.h1, PyBytes_AS_STRING(digest) + 8, 8)
    table_insert(&_by_spelling, place, <void *>r)
    table_insert(&_by_value, identity(<PyObject *>value), <void *>r)
    return r


cdef ArgRecord record_of(object value):
    """Fast entry: the record of an argument that is no number of 64 bits."""
    cdef Text t
    cdef void *known = table_of(&_by_value, <PyObject *>value)
    if known != NULL:
        return <ArgRecord>known
    t.at = t.few
    t.n = 0
    t.room = FEW
    try:
        _spell(&t, value)
        return _enter(&t, value)
    finally:
        if t.at != t.few:
            free(t.at)


cdef uint64_t count_records() noexcept:
    return _by_spelling.used
