/* Many owners launch many short kernels on one pool: every iteration must run once, on scratch that
   nobody else writes, and the thread sanitizer must have nothing to say. */
#include "pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { OWNERS = 20, ROUNDS = 200, MOST = 2000, SCRATCH = 1001 };

static void kernel(
    void **bufs, const int64_t *vars, void *scratch, int64_t lo, int64_t hi) {
    int64_t *out = bufs[0];
    int64_t *own = scratch;
    for (int64_t i = lo; i < hi; i++) {
        own[0] = i;
        own[SCRATCH - 1] = vars[0];
        out[i] += own[0] * own[SCRATCH - 1];
    }
}

static void *owner(void *given) {
    int64_t number = (intptr_t)given;
    int64_t *out = malloc(MOST * sizeof *out);
    int64_t *scratch = malloc(SCRATCH * sizeof *scratch);
    for (int round = 0; round < ROUNDS; round++) {
        int64_t n = 1 + (round * 37 + number) % MOST;
        for (int64_t i = 0; i < n; i++) out[i] = i;
        void *bufs[1] = {out};
        morok_launch(kernel, bufs, &number, scratch, SCRATCH * sizeof *scratch, n,
                     2 + round % 4, round % 3 == 0);
        for (int64_t i = 0; i < n; i++) {
            if (out[i] == i + i * number) continue;
            printf("iteration %ld of %ld: %ld\n", (long)i, (long)n, (long)out[i]);
            exit(1);
        }
        if (round % 64 == 63) usleep(300);  /* workers fall asleep */
    }
    free(out);
    free(scratch);
    return NULL;
}

int main(void) {
    if (morok_pool_init() != 0) return 2;
    for (int pass = 0; pass < 3; pass++) {
        pthread_t owners[OWNERS];
        for (intptr_t i = 0; i < OWNERS; i++)
            pthread_create(&owners[i], NULL, owner, (void *)i);
        for (int i = 0; i < OWNERS; i++) pthread_join(owners[i], NULL);
        if (pass > 0) morok_stop_workers();
    }
    printf("%lu launches, %lu joined, %d workers, %lu bytes\n", morok_launch_count(),
           morok_joined_count(), morok_worker_count(), (unsigned long)morok_scratch_bytes());
    return 0;
}
