/* For node.pyx alone: what C can say and Cython cannot. */
#ifndef MOROK_NODE_H
#define MOROK_NODE_H
#include <Python.h>
#include <string.h>

/* The provenance that new nodes of this thread get: owned by the thread, NULL = none. */
static __thread PyObject *mk_provenance = NULL;

/* A new, zeroed object of the node class, whose base is `base`. */
static inline PyObject *mk_new_object(PyTypeObject *cls, PyTypeObject *base) {
    PyObject *o = (PyObject *)PyObject_Malloc((size_t)base->tp_basicsize);
    if (o == NULL) return PyErr_NoMemory();
    memset(o, 0, (size_t)base->tp_basicsize);
    PyObject_Init(o, cls);
    Py_DECREF(cls); /* the class lives for ever: nodes need not hold it */
    return o;
}

/* Makes `cls`, an empty subclass of `base`, the node class. Python takes every class that is made at run time
   for one with members, whose instances the garbage collector must visit; nodes have none and form no cycles,
   so they are as light as those of `base`. From now on neither class can be subclassed. */
static inline void mk_adopt(PyTypeObject *cls, PyTypeObject *base, vectorcallfunc construct) {
    Py_INCREF(cls);
    cls->tp_flags &= ~(Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE);
    base->tp_flags &= ~Py_TPFLAGS_BASETYPE;
    cls->tp_traverse = NULL;
    cls->tp_clear = NULL;
    cls->tp_free = PyObject_Free;
    cls->tp_dealloc = base->tp_dealloc;
    cls->tp_vectorcall = construct;
    PyType_Modified(cls);
}
#endif
