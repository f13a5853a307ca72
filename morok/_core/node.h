/* For node.pyx alone: what C can say and Cython cannot. */
#ifndef MOROK_NODE_H
#define MOROK_NODE_H
#include <Python.h>
#include <string.h>

#include "slab.h"

/* The provenance that new nodes of this thread get: owned by the thread, NULL = none. */
static __thread PyObject *mk_provenance = NULL;

/* A new, zeroed object of the node class. The class lives for ever: nodes need not hold it. */
static inline PyObject *mk_new_object(PyTypeObject *cls) {
    PyObject *o = (PyObject *)mk_slot_new();
    if (o == NULL) return PyErr_NoMemory();
    memset(o, 0, MK_SLOT_BYTES);
    PyObject_Init(o, cls);
    Py_DECREF(cls);
    return o;
}

static PyObject *mk_alloc(PyTypeObject *cls, Py_ssize_t Py_UNUSED(items)) {
    return mk_new_object(cls);
}

static void mk_free(void *o) { mk_slot_free(o); }

/* Makes `cls`, an empty subclass of `base`, the node class. Python takes every class that is made at run time
   for one with members, whose instances the garbage collector must visit; nodes have none and form no cycles,
   so they are as light as those of `base`. From now on neither class can be subclassed. */
static inline void mk_adopt(PyTypeObject *cls, PyTypeObject *base, vectorcallfunc construct) {
    Py_INCREF(cls);
    cls->tp_flags &= ~(Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE);
    base->tp_flags &= ~Py_TPFLAGS_BASETYPE;
    cls->tp_traverse = NULL;
    cls->tp_clear = NULL;
    cls->tp_alloc = mk_alloc;
    cls->tp_free = mk_free;
    cls->tp_dealloc = base->tp_dealloc;
    cls->tp_vectorcall = construct;
    PyType_Modified(cls);
}
#endif
