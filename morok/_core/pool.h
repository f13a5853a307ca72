/* A pool of threads that run parts of kernels. Plain C without Python, so that sanitizers and a
   test program can look at it alone; included by pool.pyx only.

   A launch publishes a job in a table and takes part in it. Whoever takes part takes pieces of the
   job's iterations from a shared counter, large ones first, until none is left: a core that is
   slower, or busy with other programs, takes fewer. Nobody waits for a worker that has not come yet.

   Workers look for jobs for some microseconds after the last one and sleep then. They have no
   Python state, no signal handlers run on them, and each owns the scratch memory of the kernels it
   runs. They are started when first needed; the child of a fork starts its own. */
#ifndef MOROK_POOL_H
#define MOROK_POOL_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <time.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

typedef void (*morok_kernel)(
    void **bufs, const int64_t *vars, void *scratch, int64_t lo, int64_t hi);

enum {
    MOROK_MAX_JOBS = 16, /* launches at one time; further ones run on their own thread alone */
    MOROK_MAX_WORKERS = 1023,
    MOROK_PIECES = 4, /* a piece is what is left, divided by this for each thread */
    MOROK_COARSE = 2, /* so many pieces a thread where every call begins with work of its own */
    MOROK_SPIN_NS = 30000, /* looking for work, or for the end of a job, before sleeping */
    MOROK_STACK = 2 << 20,
    MOROK_HUGE = 2 << 20,
    MOROK_PAGE = 4096
};

/* The state of a job: how many workers are in it, how many may be, and two flags. */
#define MOROK_USERS ((uint64_t)0xffff)
#define MOROK_LIMIT_SHIFT 16
#define MOROK_OPEN ((uint64_t)1 << 32)    /* workers may join */
#define MOROK_WAITED ((uint64_t)1 << 33)  /* its owner sleeps until the last one leaves */

typedef struct {
    _Alignas(64) _Atomic uint64_t state;
    _Atomic int taken;  /* the place in the table has an owner */
    /* What follows is written by the owner while the job is closed, read while it is open. */
    morok_kernel run;
    void **bufs;
    const int64_t *vars;
    size_t scratch_bytes;
    int64_t hi;
    int64_t divisor;
    int64_t least;  /* of a piece */
    uint32_t float_control;
    _Alignas(64) _Atomic int64_t next;  /* the first iteration nobody has taken */
} morok_job;

typedef struct {
    pthread_t thread;
    char *_Atomic scratch;  /* its own, of `bytes` */
    _Atomic size_t bytes;
} morok_worker;

static struct {
    morok_job jobs[MOROK_MAX_JOBS];
    _Alignas(64) _Atomic uint64_t generation;  /* grows with every job */
    _Alignas(64) _Atomic int sleeping;
    _Atomic int workers;
    _Atomic int stopping;
    _Atomic uint64_t launches;  /* jobs that were published */
    _Atomic uint64_t joined;  /* times that a worker took part in one */
    pthread_mutex_t lock;  /* of the two conditions, and of `team` */
    pthread_cond_t work;  /* a job was published, or the pool stops */
    pthread_cond_t done;  /* the last worker left a job that is waited for */
    pthread_mutex_t life;  /* one starts or stops workers at a time */
    morok_worker team[MOROK_MAX_WORKERS];
} morok_pool = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .work = PTHREAD_COND_INITIALIZER,
    .done = PTHREAD_COND_INITIALIZER,
    .life = PTHREAD_MUTEX_INITIALIZER,
};

static inline void morok_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static inline int64_t morok_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Rounding and the treatment of subnormals: kernels give the same bits on every thread. */
static inline uint32_t morok_float_control(void) {
#if defined(__SSE__)
    return __builtin_ia32_stmxcsr() & 0xffc0;  /* without the flags of what happened */
#elif defined(__aarch64__)
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    return (uint32_t)fpcr;
#else
    return 0;
#endif
}

static inline void morok_set_float_control(uint32_t control) {
#if defined(__SSE__)
    __builtin_ia32_ldmxcsr(control);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)control));
#else
    (void)control;
#endif
}

/* ---- jobs ------------------------------------------------------------------------------------ */

/* Takes the next piece of a job; 0 when none is left. */
static inline int morok_take(morok_job *job, int64_t *lo, int64_t *hi) {
    int64_t first = atomic_load_explicit(&job->next, memory_order_relaxed);
    int64_t count;
    do {
        if (first >= job->hi) return 0;
        count = (job->hi - first) / job->divisor;
        if (count < job->least) count = job->least;
        if (count > job->hi - first) count = job->hi - first;
    } while (!atomic_compare_exchange_weak_explicit(
        &job->next, &first, first + count, memory_order_relaxed, memory_order_relaxed));
    *lo = first;
    *hi = first + count;
    return 1;
}

/* Takes part in a job, and closes it when nothing is left to take. */
static inline void morok_run_pieces(morok_job *job, void *scratch) {
    int64_t lo, hi;
    while (morok_take(job, &lo, &hi)) job->run(job->bufs, job->vars, scratch, lo, hi);
    atomic_fetch_and_explicit(&job->state, ~MOROK_OPEN, memory_order_acq_rel);
}

static int morok_join(morok_job *job) {
    uint64_t state = atomic_load_explicit(&job->state, memory_order_acquire);
    do {
        uint64_t limit = (state >> MOROK_LIMIT_SHIFT) & MOROK_USERS;
        if (!(state & MOROK_OPEN) || (state & MOROK_USERS) >= limit) return 0;
    } while (!atomic_compare_exchange_weak_explicit(
        &job->state, &state, state + 1, memory_order_acquire, memory_order_acquire));
    return 1;
}

static void morok_leave(morok_job *job) {
    uint64_t state = atomic_fetch_sub_explicit(&job->state, 1, memory_order_acq_rel);
    if ((state & MOROK_WAITED) && (state & MOROK_USERS) == 1) {
        pthread_mutex_lock(&morok_pool.lock);
        pthread_cond_broadcast(&morok_pool.done);
        pthread_mutex_unlock(&morok_pool.lock);
    }
}

/* ---- workers --------------------------------------------------------------------------------- */

/* Gives back a worker's scratch. A fork in between sees no scratch, never one that is gone. */
static void morok_drop(morok_worker *self) {
    char *scratch = atomic_exchange(&self->scratch, NULL);
    if (scratch != NULL) munmap(scratch, self->bytes);
    self->bytes = 0;
}

/* Has the worker own at least `bytes` of scratch; 0 if there is no memory. Pages are fresh, hence
   zero, and stay with the worker. */
static int morok_grow(morok_worker *self, size_t bytes) {
    if (bytes <= self->bytes) return 1;
    size_t unit = bytes >= MOROK_HUGE / 2 ? MOROK_HUGE : MOROK_PAGE;
    bytes = (bytes + unit - 1) / unit * unit;
    morok_drop(self);
    void *fresh = mmap(
        NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh == MAP_FAILED) return 0;
#ifdef MADV_HUGEPAGE
    if (unit == MOROK_HUGE) madvise(fresh, bytes, MADV_HUGEPAGE);
#endif
    self->bytes = bytes;
    atomic_store(&self->scratch, fresh);
    return 1;
}

/* Takes part in the jobs of the table; 0 if there was none. */
static int morok_help(morok_worker *self) {
    int helped = 0;
    for (int i = 0; i < MOROK_MAX_JOBS; i++) {
        morok_job *job = &morok_pool.jobs[i];
        if (!morok_join(job)) continue;
        if (morok_grow(self, job->scratch_bytes)) {
            atomic_fetch_add_explicit(&morok_pool.joined, 1, memory_order_relaxed);
            morok_set_float_control(job->float_control);
            morok_run_pieces(job, self->scratch);
            helped = 1;
        }
        morok_leave(job);
    }
    return helped;
}

/* Waits until there may be a job newer than generation `seen`. */
static void morok_wait_for_work(uint64_t seen) {
    int64_t end = morok_clock() + MOROK_SPIN_NS;
    do {
        for (int i = 0; i < 32; i++) {
            if (atomic_load_explicit(&morok_pool.generation, memory_order_acquire) != seen) return;
            morok_pause();
        }
    } while (morok_clock() < end);
    pthread_mutex_lock(&morok_pool.lock);
    /* In this order: whoever publishes a job counts it first and looks for sleepers then. */
    atomic_fetch_add(&morok_pool.sleeping, 1);
    while (atomic_load(&morok_pool.generation) == seen)
        pthread_cond_wait(&morok_pool.work, &morok_pool.lock);
    atomic_fetch_sub(&morok_pool.sleeping, 1);
    pthread_mutex_unlock(&morok_pool.lock);
}

static void *morok_work(void *given) {
    morok_worker *self = given;
#ifdef __linux__
    prctl(PR_SET_NAME, "morok-worker", 0, 0, 0);
#endif
    for (;;) {
        uint64_t seen = atomic_load(&morok_pool.generation);
        if (atomic_load(&morok_pool.stopping)) break;  /* asked second: stopping counts a job */
        if (!morok_help(self)) morok_wait_for_work(seen);
    }
    morok_drop(self);
    return NULL;
}

/* In the child of a fork no worker is left, and whatever job there was is the parent's. */
static void morok_forked(void) {
    for (int i = 0; i < atomic_load(&morok_pool.workers); i++) {
        morok_drop(&morok_pool.team[i]);
    }
    for (int i = 0; i < MOROK_MAX_JOBS; i++) {
        atomic_store(&morok_pool.jobs[i].state, 0);
        atomic_store(&morok_pool.jobs[i].taken, 0);
    }
    atomic_store(&morok_pool.workers, 0);
    atomic_store(&morok_pool.sleeping, 0);
    atomic_store(&morok_pool.stopping, 0);
    pthread_mutex_init(&morok_pool.lock, NULL);
    pthread_mutex_init(&morok_pool.life, NULL);
    pthread_cond_init(&morok_pool.work, NULL);
    pthread_cond_init(&morok_pool.done, NULL);
}

/* To be called once, before all else. */
static int morok_pool_init(void) { return pthread_atfork(NULL, NULL, morok_forked); }

/* Has at least `wanted` workers, or as many as the system allows. */
static void morok_start_workers(int wanted) {
    if (wanted > MOROK_MAX_WORKERS) wanted = MOROK_MAX_WORKERS;
    if (atomic_load_explicit(&morok_pool.workers, memory_order_acquire) >= wanted) return;
    pthread_mutex_lock(&morok_pool.life);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, MOROK_STACK);
    /* Signals are the business of the program's own threads, but for faults of the kernel itself. */
    sigset_t blocked, before;
    sigfillset(&blocked);
    sigdelset(&blocked, SIGSEGV);
    sigdelset(&blocked, SIGBUS);
    sigdelset(&blocked, SIGFPE);
    sigdelset(&blocked, SIGILL);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    for (int i = atomic_load(&morok_pool.workers); i < wanted; i++) {
        morok_worker *fresh = &morok_pool.team[i];
        if (pthread_create(&fresh->thread, &attributes, morok_work, fresh) != 0) break;
        atomic_store_explicit(&morok_pool.workers, i + 1, memory_order_release);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    pthread_mutex_unlock(&morok_pool.life);
}

/* Ends all workers, when they are through with the pieces they have. A later launch starts others. */
static void morok_stop_workers(void) {
    pthread_mutex_lock(&morok_pool.life);
    atomic_store(&morok_pool.stopping, 1);
    pthread_mutex_lock(&morok_pool.lock);
    atomic_fetch_add(&morok_pool.generation, 1);
    pthread_cond_broadcast(&morok_pool.work);
    pthread_mutex_unlock(&morok_pool.lock);
    int workers = atomic_load(&morok_pool.workers);
    for (int i = 0; i < workers; i++) pthread_join(morok_pool.team[i].thread, NULL);
    atomic_store(&morok_pool.workers, 0);
    atomic_store(&morok_pool.stopping, 0);
    pthread_mutex_unlock(&morok_pool.life);
}

/* ---- launching ------------------------------------------------------------------------------- */

static morok_job *morok_free_job(void) {
    for (int i = 0; i < MOROK_MAX_JOBS; i++) {
        int free_place = 0;
        if (atomic_compare_exchange_strong_explicit(
                &morok_pool.jobs[i].taken, &free_place, 1, memory_order_acquire,
                memory_order_relaxed))
            return &morok_pool.jobs[i];
    }
    return NULL;
}

/* Waits until no worker is in a closed job. */
static void morok_wait_for_end(morok_job *job) {
    int64_t end = morok_clock() + MOROK_SPIN_NS;
    do {
        for (int i = 0; i < 32; i++) {
            if ((atomic_load_explicit(&job->state, memory_order_acquire) & MOROK_USERS) == 0)
                return;
            morok_pause();
        }
    } while (morok_clock() < end);
    atomic_fetch_or(&job->state, MOROK_WAITED);
    pthread_mutex_lock(&morok_pool.lock);
    while (atomic_load(&job->state) & MOROK_USERS)
        pthread_cond_wait(&morok_pool.done, &morok_pool.lock);
    pthread_mutex_unlock(&morok_pool.lock);
}

/* Runs iterations 0 to `hi` of a kernel on up to `threads` threads, the calling one included, which
   uses `scratch`; in few pieces if `coarse`. Returns when all are done. */
static void morok_launch(
    morok_kernel run, void **bufs, const int64_t *vars, void *scratch, size_t scratch_bytes,
    int64_t hi, int threads, int coarse) {
    if (threads > hi) threads = (int)hi;
    if (threads > MOROK_MAX_WORKERS + 1) threads = MOROK_MAX_WORKERS + 1;
    morok_job *job = NULL;
    if (threads > 1) {
        morok_start_workers(threads - 1);
        if (atomic_load_explicit(&morok_pool.workers, memory_order_relaxed) > 0)
            job = morok_free_job();
    }
    if (job == NULL) {
        run(bufs, vars, scratch, 0, hi);
        return;
    }
    job->run = run;
    job->bufs = bufs;
    job->vars = vars;
    job->scratch_bytes = scratch_bytes;
    job->hi = hi;
    job->divisor = (int64_t)MOROK_PIECES * threads;
    job->least = coarse ? (hi + MOROK_COARSE * threads - 1) / (MOROK_COARSE * threads) : 1;
    job->float_control = morok_float_control();
    atomic_store_explicit(&job->next, 0, memory_order_relaxed);
    uint64_t limit = (uint64_t)(threads - 1) << MOROK_LIMIT_SHIFT;
    atomic_store(&job->state, MOROK_OPEN | limit);
    atomic_fetch_add(&morok_pool.generation, 1);
    atomic_fetch_add_explicit(&morok_pool.launches, 1, memory_order_relaxed);
    if (atomic_load(&morok_pool.sleeping) > 0) {
        pthread_mutex_lock(&morok_pool.lock);
        if (threads == 2)
            pthread_cond_signal(&morok_pool.work);
        else
            pthread_cond_broadcast(&morok_pool.work);
        pthread_mutex_unlock(&morok_pool.lock);
    }
    morok_run_pieces(job, scratch);
    morok_wait_for_end(job);
    atomic_store_explicit(&job->state, 0, memory_order_relaxed);
    atomic_store_explicit(&job->taken, 0, memory_order_release);
}

/* ---- what tests and reports ask -------------------------------------------------------------- */

static int morok_worker_count(void) { return atomic_load(&morok_pool.workers); }
static unsigned long morok_launch_count(void) { return atomic_load(&morok_pool.launches); }
static unsigned long morok_joined_count(void) { return atomic_load(&morok_pool.joined); }

static size_t morok_scratch_bytes(void) {
    size_t total = 0;
    for (int i = 0; i < atomic_load(&morok_pool.workers); i++)
        total += atomic_load(&morok_pool.team[i].bytes);
    return total;
}

#endif
