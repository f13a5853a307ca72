/* The provenance that new nodes of this thread get: owned by the thread, NULL = none. For node.pyx alone. */
#ifndef MOROK_PROVENANCE_H
#define MOROK_PROVENANCE_H
#include <Python.h>
static __thread PyObject *mk_provenance = NULL;
#endif
