typedef __INT64_TYPE__ int64_t;
typedef float f32x16 __attribute__((vector_size(64)));
typedef float f32x16u __attribute__((vector_size(64), aligned(4), may_alias));
void R_8192_8192(void **bufs, const int64_t *vars, void *scratch, int64_t lo, int64_t hi) {
  float *p0 = bufs[0];
  const float *p1 = bufs[1];
  float *s0 = __builtin_assume_aligned((char *)scratch + 0, 64);
  for (int64_t i0 = lo; i0 < hi; i0++) {  // Thread
    int64_t v0 = i0 * 4096;
    for (int64_t i10 = 0; i10 < 256; i10++) {  // Loop
      *(f32x16u *)(s0 + i10 * 16) = 0.0f - (f32x16){};
    }
    for (int64_t i4 = 0; i4 < 1024; i4++) {  // Reduce
      int64_t v1 = v0 + i4 * 65536;
      for (int64_t i5 = 0; i5 < 256; i5++) {  // Loop
        int64_t v2 = i5 * 16;
        int64_t v3 = v1 + v2;
        f32x16 v4 = *(f32x16u *)(p1 + v3) + *(f32x16u *)(p1 + v3 + 8192) + *(f32x16u *)(p1 + v3 + 16384);
        f32x16 v5 = v4 + *(f32x16u *)(p1 + v3 + 24576) + *(f32x16u *)(p1 + v3 + 32768) + *(f32x16u *)(p1 + v3 + 40960);
        f32x16 v6 = *(f32x16u *)(s0 + v2) + (v5 + *(f32x16u *)(p1 + v3 + 49152) + *(f32x16u *)(p1 + v3 + 57344));
        *(f32x16u *)(s0 + v2) = v6;
      }
    }
    for (int64_t i1 = 0; i1 < 256; i1++) {  // Loop
      int64_t v7 = i1 * 16;
      *(f32x16u *)(p0 + v0 + v7) = *(f32x16u *)(s0 + v7);
    }
  }
}
