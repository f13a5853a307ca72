typedef __INT32_TYPE__ int32_t;
typedef __INT64_TYPE__ int64_t;
typedef float f32x2 __attribute__((vector_size(8)));
typedef float f32x4 __attribute__((vector_size(16)));
typedef float f32x8 __attribute__((vector_size(32)));
typedef float f32x8u __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t i32x2 __attribute__((vector_size(8)));
typedef int32_t i32x4 __attribute__((vector_size(16)));
typedef int32_t i32x8 __attribute__((vector_size(32)));
#ifndef MOROK_MAX_F32X8
#define MOROK_MAX_F32X8
static inline f32x8 max_f32x8(f32x8 a, f32x8 b) {
  i32x8 nan = (i32x8)(a != a);
  f32x8 r = __builtin_ia32_maxps256(a, b);
  return __builtin_ia32_blendvps256(r, a, (f32x8)nan);
}
#endif
#ifndef MOROK_LANES_0_1_2_3_OF_F32X8
#define MOROK_LANES_0_1_2_3_OF_F32X8
static inline f32x4 lanes_0_1_2_3_of_f32x8(f32x8 a) {
  #if __has_builtin(__builtin_shufflevector)
  return __builtin_shufflevector(a, a, 0, 1, 2, 3);
  #else
  return (f32x4){a[0], a[1], a[2], a[3]};
  #endif
}
#endif
#ifndef MOROK_LANES_4_5_6_7_OF_F32X8
#define MOROK_LANES_4_5_6_7_OF_F32X8
static inline f32x4 lanes_4_5_6_7_of_f32x8(f32x8 a) {
  #if __has_builtin(__builtin_shufflevector)
  return __builtin_shufflevector(a, a, 4, 5, 6, 7);
  #else
  return (f32x4){a[4], a[5], a[6], a[7]};
  #endif
}
#endif
#ifndef MOROK_MAX_F32X4
#define MOROK_MAX_F32X4
static inline f32x4 max_f32x4(f32x4 a, f32x4 b) {
  i32x4 nan = (i32x4)(a != a);
  f32x4 r = __builtin_ia32_maxps(a, b);
  return __builtin_ia32_blendvps(r, a, (f32x4)nan);
}
#endif
#ifndef MOROK_LANES_0_1_OF_F32X4
#define MOROK_LANES_0_1_OF_F32X4
static inline f32x2 lanes_0_1_of_f32x4(f32x4 a) {
  #if __has_builtin(__builtin_shufflevector)
  return __builtin_shufflevector(a, a, 0, 1);
  #else
  return (f32x2){a[0], a[1]};
  #endif
}
#endif
#ifndef MOROK_LANES_2_3_OF_F32X4
#define MOROK_LANES_2_3_OF_F32X4
static inline f32x2 lanes_2_3_of_f32x4(f32x4 a) {
  #if __has_builtin(__builtin_shufflevector)
  return __builtin_shufflevector(a, a, 2, 3);
  #else
  return (f32x2){a[2], a[3]};
  #endif
}
#endif
#ifndef MOROK_MAX_F32X2
#define MOROK_MAX_F32X2
static inline f32x2 max_f32x2(f32x2 a, f32x2 b) {
  i32x2 m = (i32x2)((a > b) | (a != a));
  return (f32x2)((m & (i32x2)a) | (~m & (i32x2)b));
}
#endif
#ifndef MOROK_MAX_F32
#define MOROK_MAX_F32
static inline float max_f32(float a, float b) {
  float r = a > b ? a : b;
  return a != a ? a : r;
}
#endif
#ifndef MOROK_GREATER_F32X8
#define MOROK_GREATER_F32X8
static inline f32x8 greater_f32x8(f32x8 a, f32x8 b) {
  return __builtin_ia32_maxps256(a, b);
}
#endif
#ifndef MOROK_LESSER_F32X8
#define MOROK_LESSER_F32X8
static inline f32x8 lesser_f32x8(f32x8 a, f32x8 b) {
  return __builtin_ia32_minps256(a, b);
}
#endif
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
void R_4096_4096_4096_4096_4096(void **bufs, const int64_t *vars, void *scratch, int64_t lo, int64_t hi) {
  float *p0 = bufs[0];
  const float *p1 = bufs[1];
  f32x8 acc0;
  f32x8 acc1;
  f32x8 acc2;
  f32x8 acc3;
  f32x8 acc4;
  f32x8 acc5;
  f32x8 acc6;
  f32x8 acc7;
  for (int64_t i0 = lo; i0 < hi; i0++) {  // Thread
    int64_t v0 = i0 * 4096;
    acc0 = -__builtin_inff() - (f32x8){};
    acc1 = -__builtin_inff() - (f32x8){};
    acc2 = -__builtin_inff() - (f32x8){};
    acc3 = -__builtin_inff() - (f32x8){};
    for (int64_t i4 = 0; i4 < 128; i4++) {  // Reduce
      int64_t v1 = i4 * 32 + v0;
      acc0 = max_f32x8(acc0, *(f32x8u *)(p1 + v1));
      acc1 = max_f32x8(acc1, *(f32x8u *)(p1 + v1 + 16));
      acc2 = max_f32x8(acc2, *(f32x8u *)(p1 + v1 + 8));
      acc3 = max_f32x8(acc3, *(f32x8u *)(p1 + v1 + 24));
    }
    f32x8 v2 = max_f32x8(max_f32x8(acc0, acc1), max_f32x8(acc2, acc3));
    f32x4 v3 = max_f32x4(lanes_0_1_2_3_of_f32x8(v2), lanes_4_5_6_7_of_f32x8(v2));
    f32x2 v4 = max_f32x2(lanes_0_1_of_f32x4(v3), lanes_2_3_of_f32x4(v3));
    float v5 = max_f32(v4[0], v4[1]);
    f32x8 v6 = v5 - (f32x8){};
    for (int64_t i3 = 0; i3 < 512; i3++) {  // Loop
      int64_t v7 = i3 * 8 + v0;
      f32x8 v8 = *(f32x8u *)(p1 + v7) - v5;
      f32x8 v9 = greater_f32x8(-104.0f - (f32x8){}, v8);
      f32x8 v10 = lesser_f32x8(89.0f - (f32x8){}, v9);
      f32x8 v11 = fma_f32x8(v10, 0x1.715476p+0f - (f32x8){}, 12583166.0f - (f32x8){});
      f32x8 v12 = v11 - 12583166.0f;
      f32x8 v13 = fma_f32x8(v12, -0x1.7f7d1cp-20f - (f32x8){}, fma_f32x8(v12, -0x1.62e4p-1f - (f32x8){}, v10));
      f32x8 v14 = v13 * v13;
      f32x8 v15 = fma_f32x8(fma_f32x8(0x1.6a4f42p-10f - (f32x8){}, v13, 0x1.123984p-7f - (f32x8){}), v14, fma_f32x8(0x1.5558aep-5f - (f32x8){}, v13, 0x1.555492p-3f - (f32x8){}));
      f32x8 v16 = fma_f32x8(v14, fma_f32x8(v15, v13, 0x1.fffffcp-2f - (f32x8){}), v13) + 1.0f;
      i32x8 v17 = (i32x8)v11;
      i32x8 v18 = (v17 << 22) & -8388608;
      *(f32x8u *)(p0 + v7) = v16 * (f32x8)v18 * (f32x8)((v17 << 23) - v18);
    }
    acc4 = 0.0f - (f32x8){};
    acc5 = 0.0f - (f32x8){};
    acc6 = 0.0f - (f32x8){};
    acc7 = 0.0f - (f32x8){};
    for (int64_t i2 = 0; i2 < 128; i2++) {  // Reduce
      int64_t v19 = i2 * 32 + v0;
      acc4 = acc4 + *(f32x8u *)(p0 + v19);
      acc5 = acc5 + *(f32x8u *)(p0 + v19 + 16);
      acc6 = acc6 + *(f32x8u *)(p0 + v19 + 8);
      acc7 = acc7 + *(f32x8u *)(p0 + v19 + 24);
    }
    f32x8 v20 = acc4 + acc5 + (acc6 + acc7);
    f32x4 v21 = lanes_0_1_2_3_of_f32x8(v20) + lanes_4_5_6_7_of_f32x8(v20);
    f32x2 v22 = lanes_0_1_of_f32x4(v21) + lanes_2_3_of_f32x4(v21);
    float v23 = 1.0f / (v22[0] + v22[1]);
    f32x8 v24 = v23 - (f32x8){};
    for (int64_t i1 = 0; i1 < 512; i1++) {  // Loop
      int64_t v25 = i1 * 8 + v0;
      *(f32x8u *)(p0 + v25) = *(f32x8u *)(p0 + v25) * v23;
    }
  }
}
