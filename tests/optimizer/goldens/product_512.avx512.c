typedef __INT64_TYPE__ int64_t;
typedef float f32x16 __attribute__((vector_size(64)));
typedef float f32x16u __attribute__((vector_size(64), aligned(4), may_alias));
#ifndef MOROK_FMA_F32X16
#define MOROK_FMA_F32X16
static inline f32x16 fma_f32x16(f32x16 a, f32x16 b, f32x16 c) {
  #if __has_builtin(__builtin_elementwise_fma)
  return __builtin_elementwise_fma(a, b, c);
  #else
  return __builtin_ia32_vfmaddps512_mask(a, b, c, -1, 4);
  #endif
}
#endif
void R_512_512_512(void **bufs, const int64_t *vars, void *scratch, int64_t lo, int64_t hi) {
  float *p0 = bufs[0];
  const float *p1 = bufs[1];
  const float *p2 = bufs[2];
  float *s0 = __builtin_assume_aligned((char *)scratch + 0, 64);
  f32x16 acc0;
  f32x16 acc1;
  f32x16 acc2;
  f32x16 acc3;
  f32x16 acc4;
  f32x16 acc5;
  f32x16 acc6;
  f32x16 acc7;
  f32x16 acc8;
  f32x16 acc9;
  f32x16 acc10;
  f32x16 acc11;
  f32x16 acc12;
  f32x16 acc13;
  f32x16 acc14;
  f32x16 acc15;
  for (int64_t i0 = lo; i0 < hi; i0++) {  // Thread
    int64_t v0 = i0 * 32;
    for (int64_t i4 = 0; i4 < 512; i4++) {  // Loop
      int64_t v1 = i4 * 32;
      int64_t v2 = v0 + i4 * 512;
      *(f32x16u *)(s0 + v1) = *(f32x16u *)(p2 + v2);
      *(f32x16u *)(s0 + v1 + 16) = *(f32x16u *)(p2 + v2 + 16);
    }
    for (int64_t i2 = 0; i2 < 64; i2++) {  // Loop
      int64_t v3 = i2 * 4096;
      int64_t v4 = v3 + v0;
      acc0 = 0.0f - (f32x16){};
      acc1 = 0.0f - (f32x16){};
      acc2 = 0.0f - (f32x16){};
      acc3 = 0.0f - (f32x16){};
      acc4 = 0.0f - (f32x16){};
      acc5 = 0.0f - (f32x16){};
      acc6 = 0.0f - (f32x16){};
      acc7 = 0.0f - (f32x16){};
      acc8 = 0.0f - (f32x16){};
      acc9 = 0.0f - (f32x16){};
      acc10 = 0.0f - (f32x16){};
      acc11 = 0.0f - (f32x16){};
      acc12 = 0.0f - (f32x16){};
      acc13 = 0.0f - (f32x16){};
      acc14 = 0.0f - (f32x16){};
      acc15 = 0.0f - (f32x16){};
      for (int64_t i3 = 0; i3 < 512; i3++) {  // Reduce
        int64_t v5 = i3 + v3;
        float x0 = p1[v5];
        f32x16 v6 = x0 - (f32x16){};
        int64_t v7 = i3 * 32;
        f32x16 x1 = *(f32x16u *)(s0 + v7);
        __asm__("" : "+v"(x1));
        acc0 = fma_f32x16(v6, x1, acc0);
        f32x16 x2 = *(f32x16u *)(s0 + v7 + 16);
        __asm__("" : "+v"(x2));
        acc1 = fma_f32x16(v6, x2, acc1);
        float x3 = p1[v5 + 512];
        f32x16 v8 = x3 - (f32x16){};
        acc2 = fma_f32x16(v8, x1, acc2);
        acc3 = fma_f32x16(v8, x2, acc3);
        float x4 = p1[v5 + 1024];
        f32x16 v9 = x4 - (f32x16){};
        acc4 = fma_f32x16(v9, x1, acc4);
        acc5 = fma_f32x16(v9, x2, acc5);
        float x5 = p1[v5 + 1536];
        f32x16 v10 = x5 - (f32x16){};
        acc6 = fma_f32x16(v10, x1, acc6);
        acc7 = fma_f32x16(v10, x2, acc7);
        float x6 = p1[v5 + 2048];
        f32x16 v11 = x6 - (f32x16){};
        acc8 = fma_f32x16(v11, x1, acc8);
        acc9 = fma_f32x16(v11, x2, acc9);
        float x7 = p1[v5 + 2560];
        f32x16 v12 = x7 - (f32x16){};
        acc10 = fma_f32x16(v12, x1, acc10);
        acc11 = fma_f32x16(v12, x2, acc11);
        float x8 = p1[v5 + 3072];
        f32x16 v13 = x8 - (f32x16){};
        acc12 = fma_f32x16(v13, x1, acc12);
        acc13 = fma_f32x16(v13, x2, acc13);
        float x9 = p1[v5 + 3584];
        f32x16 v14 = x9 - (f32x16){};
        acc14 = fma_f32x16(v14, x1, acc14);
        acc15 = fma_f32x16(v14, x2, acc15);
      }
      *(f32x16u *)(p0 + v4) = acc0;
      *(f32x16u *)(p0 + v4 + 16) = acc1;
      *(f32x16u *)(p0 + v4 + 512) = acc2;
      *(f32x16u *)(p0 + v4 + 528) = acc3;
      *(f32x16u *)(p0 + v4 + 1024) = acc4;
      *(f32x16u *)(p0 + v4 + 1040) = acc5;
      *(f32x16u *)(p0 + v4 + 1536) = acc6;
      *(f32x16u *)(p0 + v4 + 1552) = acc7;
      *(f32x16u *)(p0 + v4 + 2048) = acc8;
      *(f32x16u *)(p0 + v4 + 2064) = acc9;
      *(f32x16u *)(p0 + v4 + 2560) = acc10;
      *(f32x16u *)(p0 + v4 + 2576) = acc11;
      *(f32x16u *)(p0 + v4 + 3072) = acc12;
      *(f32x16u *)(p0 + v4 + 3088) = acc13;
      *(f32x16u *)(p0 + v4 + 3584) = acc14;
      *(f32x16u *)(p0 + v4 + 3600) = acc15;
    }
  }
}
