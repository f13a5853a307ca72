typedef __INT64_TYPE__ int64_t;
typedef float f32x8 __attribute__((vector_size(32)));
typedef float f32x8u __attribute__((vector_size(32), aligned(4), may_alias));
#ifndef MOROK_FMA_F32X8
#define MOROK_FMA_F32X8
static inline f32x8 fma_f32x8(f32x8 a, f32x8 b, f32x8 c) {
  #if __has_builtin(__builtin_elementwise_fma)
  return __builtin_elementwise_fma(a, b, c);
  #else
  return __builtin_ia32_vfmaddps256(a, b, c);
  #endif
}
#endif
void R_512_512_512(void **bufs, const int64_t *vars, void *scratch, int64_t lo, int64_t hi) {
  float *p0 = bufs[0];
  const float *p1 = bufs[1];
  const float *p2 = bufs[2];
  float *s0 = __builtin_assume_aligned((char *)scratch + 0, 64);
  f32x8 acc0;
  f32x8 acc1;
  f32x8 acc2;
  f32x8 acc3;
  f32x8 acc4;
  f32x8 acc5;
  f32x8 acc6;
  f32x8 acc7;
  f32x8 acc8;
  f32x8 acc9;
  f32x8 acc10;
  f32x8 acc11;
  f32x8 acc12;
  f32x8 acc13;
  f32x8 acc14;
  f32x8 acc15;
  for (int64_t i0 = lo; i0 < hi; i0++) {  // Thread
    int64_t v0 = i0 * 16;
    for (int64_t i5 = 0; i5 < 512; i5++) {  // Loop
      int64_t v1 = i5 * 16;
      int64_t v2 = v0 + i5 * 512;
      *(f32x8u *)(s0 + v1) = *(f32x8u *)(p2 + v2);
      *(f32x8u *)(s0 + v1 + 8) = *(f32x8u *)(p2 + v2 + 8);
    }
    for (int64_t i2 = 0; i2 < 85; i2++) {  // Loop
      int64_t v3 = i2 * 3072;
      int64_t v4 = v0 + v3;
      acc0 = 0.0f - (f32x8){};
      acc1 = 0.0f - (f32x8){};
      acc2 = 0.0f - (f32x8){};
      acc3 = 0.0f - (f32x8){};
      acc4 = 0.0f - (f32x8){};
      acc5 = 0.0f - (f32x8){};
      acc6 = 0.0f - (f32x8){};
      acc7 = 0.0f - (f32x8){};
      acc8 = 0.0f - (f32x8){};
      acc9 = 0.0f - (f32x8){};
      acc10 = 0.0f - (f32x8){};
      acc11 = 0.0f - (f32x8){};
      #pragma GCC unroll 4
      for (int64_t i4 = 0; i4 < 512; i4++) {  // Reduce
        int64_t v5 = i4 + v3;
        float x0 = p1[v5];
        f32x8 v6 = x0 - (f32x8){};
        int64_t v7 = i4 * 16;
        f32x8 x1 = *(f32x8u *)(s0 + v7);
        __asm__("" : "+x"(x1));
        acc0 = fma_f32x8(v6, x1, acc0);
        f32x8 x2 = *(f32x8u *)(s0 + v7 + 8);
        __asm__("" : "+x"(x2));
        acc1 = fma_f32x8(v6, x2, acc1);
        float x3 = p1[v5 + 512];
        f32x8 v8 = x3 - (f32x8){};
        acc2 = fma_f32x8(v8, x1, acc2);
        acc3 = fma_f32x8(v8, x2, acc3);
        float x4 = p1[v5 + 1024];
        f32x8 v9 = x4 - (f32x8){};
        acc4 = fma_f32x8(v9, x1, acc4);
        acc5 = fma_f32x8(v9, x2, acc5);
        float x5 = p1[v5 + 1536];
        f32x8 v10 = x5 - (f32x8){};
        acc6 = fma_f32x8(v10, x1, acc6);
        acc7 = fma_f32x8(v10, x2, acc7);
        float x6 = p1[v5 + 2048];
        f32x8 v11 = x6 - (f32x8){};
        acc8 = fma_f32x8(v11, x1, acc8);
        acc9 = fma_f32x8(v11, x2, acc9);
        float x7 = p1[v5 + 2560];
        f32x8 v12 = x7 - (f32x8){};
        acc10 = fma_f32x8(v12, x1, acc10);
        acc11 = fma_f32x8(v12, x2, acc11);
      }
      *(f32x8u *)(p0 + v4) = acc0;
      *(f32x8u *)(p0 + v4 + 8) = acc1;
      *(f32x8u *)(p0 + v4 + 512) = acc2;
      *(f32x8u *)(p0 + v4 + 520) = acc3;
      *(f32x8u *)(p0 + v4 + 1024) = acc4;
      *(f32x8u *)(p0 + v4 + 1032) = acc5;
      *(f32x8u *)(p0 + v4 + 1536) = acc6;
      *(f32x8u *)(p0 + v4 + 1544) = acc7;
      *(f32x8u *)(p0 + v4 + 2048) = acc8;
      *(f32x8u *)(p0 + v4 + 2056) = acc9;
      *(f32x8u *)(p0 + v4 + 2560) = acc10;
      *(f32x8u *)(p0 + v4 + 2568) = acc11;
    }
    acc12 = 0.0f - (f32x8){};
    acc13 = 0.0f - (f32x8){};
    acc14 = 0.0f - (f32x8){};
    acc15 = 0.0f - (f32x8){};
    #pragma GCC unroll 4
    for (int64_t i6 = 0; i6 < 512; i6++) {  // Reduce
      float x8 = p1[i6 + 261120];
      f32x8 v13 = x8 - (f32x8){};
      int64_t v14 = i6 * 16;
      f32x8 x9 = *(f32x8u *)(s0 + v14);
      __asm__("" : "+x"(x9));
      acc12 = fma_f32x8(v13, x9, acc12);
      f32x8 x10 = *(f32x8u *)(s0 + v14 + 8);
      __asm__("" : "+x"(x10));
      acc13 = fma_f32x8(v13, x10, acc13);
      float x11 = p1[i6 + 261632];
      f32x8 v15 = x11 - (f32x8){};
      acc14 = fma_f32x8(v15, x9, acc14);
      acc15 = fma_f32x8(v15, x10, acc15);
    }
    *(f32x8u *)(p0 + v0 + 261120) = acc12;
    *(f32x8u *)(p0 + v0 + 261128) = acc13;
    *(f32x8u *)(p0 + v0 + 261632) = acc14;
    *(f32x8u *)(p0 + v0 + 261640) = acc15;
  }
}
