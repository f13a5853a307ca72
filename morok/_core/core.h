/* Small arithmetic that C has and Cython has not. */
#ifndef MOROK_CORE_H
#define MOROK_CORE_H
#include <Python.h>
#include <stdint.h>

/* The object whose structure this is: it follows the header. */
#define mk_object_of(n) ((PyObject *)((char *)(n) - sizeof(PyObject)))

static inline uint64_t mk_mix(uint64_t a, uint64_t b) {
    __uint128_t r = (__uint128_t)a * b;
    return (uint64_t)r ^ (uint64_t)(r >> 64);
}
static inline int mk_add(int64_t a, int64_t b, int64_t *o) {
    return __builtin_add_overflow(a, b, o);
}
static inline int mk_sub(int64_t a, int64_t b, int64_t *o) {
    return __builtin_sub_overflow(a, b, o);
}
static inline int mk_mul(int64_t a, int64_t b, int64_t *o) {
    return __builtin_mul_overflow(a, b, o);
}
static inline int64_t mk_floordiv(int64_t a, int64_t b) {
    int64_t q = a / b, r = a % b;
    return q - ((r != 0) & ((r < 0) != (b < 0)));
}
static inline int64_t mk_floormod(int64_t a, int64_t b) {
    if (b == -1) return 0;
    int64_t r = a % b;
    return r + (((r != 0) & ((r < 0) != (b < 0))) ? b : 0);
}
#endif
