typedef __INT64_TYPE__ int64_t;
typedef float f32x8 __attribute__((vector_size(32)));
typedef float f32x8u __attribute__((vector_size(32), aligned(4), may_alias));
void R_8192_8192(void **bufs, const int64_t *vars, void *scratch, int64_t lo, int64_t hi) {
  float *p0 = bufs[0];
  const float *p1 = bufs[1];
  float *s0 = __builtin_assume_aligned((char *)scratch + 0, 64);
  for (int64_t i0 = lo; i0 < hi; i0++) {  // Thread
    int64_t v0 = i0 * 4096;
    for (int64_t i10 = 0; i10 < 256; i10++) {  // Loop
      int64_t v1 = i10 * 16;
      *(f32x8u *)(s0 + v1) = 0.0f - (f32x8){};
      *(f32x8u *)(s0 + v1 + 8) = 0.0f - (f32x8){};
    }
    for (int64_t i4 = 0; i4 < 1024; i4++) {  // Reduce
      int64_t v2 = v0 + i4 * 65536;
      for (int64_t i5 = 0; i5 < 256; i5++) {  // Loop
        int64_t v3 = i5 * 16;
        int64_t v4 = v2 + v3;
        f32x8 v5 = *(f32x8u *)(p1 + v4) + *(f32x8u *)(p1 + v4 + 8192) + *(f32x8u *)(p1 + v4 + 16384);
        f32x8 v6 = v5 + *(f32x8u *)(p1 + v4 + 24576) + *(f32x8u *)(p1 + v4 + 32768) + *(f32x8u *)(p1 + v4 + 40960);
        f32x8 v7 = *(f32x8u *)(s0 + v3) + (v6 + *(f32x8u *)(p1 + v4 + 49152) + *(f32x8u *)(p1 + v4 + 57344));
        *(f32x8u *)(s0 + v3) = v7;
        int64_t v8 = v3 + 8;
        f32x8 v9 = *(f32x8u *)(p1 + v4 + 8) + *(f32x8u *)(p1 + v4 + 8200) + *(f32x8u *)(p1 + v4 + 16392);
        f32x8 v10 = v9 + *(f32x8u *)(p1 + v4 + 24584) + *(f32x8u *)(p1 + v4 + 32776) + *(f32x8u *)(p1 + v4 + 40968);
        f32x8 v11 = *(f32x8u *)(s0 + v8) + (v10 + *(f32x8u *)(p1 + v4 + 49160) + *(f32x8u *)(p1 + v4 + 57352));
        *(f32x8u *)(s0 + v8) = v11;
      }
    }
    for (int64_t i1 = 0; i1 < 256; i1++) {  // Loop
      int64_t v12 = i1 * 16;
      int64_t v13 = v0 + v12;
      *(f32x8u *)(p0 + v13) = *(f32x8u *)(s0 + v12);
      *(f32x8u *)(p0 + v13 + 8) = *(f32x8u *)(s0 + v12 + 8);
    }
  }
}
