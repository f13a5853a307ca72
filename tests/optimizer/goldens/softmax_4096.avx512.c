typedef __INT32_TYPE__ int32_t;
typedef __INT64_TYPE__ int64_t;
typedef float f32x16 __attribute__((vector_size(64)));
typedef float f32x16u __attribute__((vector_size(64), aligned(4), may_alias));
typedef float f32x2 __attribute__((vector_size(8)));
typedef float f32x4 __attribute__((vector_size(16)));
typedef float f32x8 __attribute__((vector_size(32)));
typedef float f32x8u __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t i32x16 __attribute__((vector_size(64)));
typedef int32_t i32x2 __attribute__((vector_size(8)));
typedef int32_t i32x4 __attribute__((vector_size(16)));
typedef int32_t i32x8 __attribute__((vector_size(32)));
#ifndef MOROK_MAX_F32X16
#define MOROK_MAX_F32X16
static inline f32x16 max_f32x16(f32x16 a, f32x16 b) {
  i32x16 m = (i32x16)((a > b) | (a != a));
  return (f32x16)((m & (i32x16)a) | (~m & (i32x16)b));
}
#endif
#ifndef MOROK_LANES_0_1_2_3_4_5_6_7_OF_F32X16
#define MOROK_LANES_0_1_2_3_4_5_6_7_OF_F32X16
static inline f32x8 lanes_0_1_2_3_4_5_6_7_of_f32x16(f32x16 a) {
  #if __has_builtin(__builtin_shufflevector)
  return __builtin_shufflevector(a, a, 0, 1, 2, 3, 4, 5, 6, 7);
  #else
  return (f32x8){a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]};
  #endif
}
#endif
#ifndef MOROK_LANES_8_9_10_11_12_13_14_15_OF_F32X16
#define MOROK_LANES_8_9_10_11_12_13_14_15_OF_F32X16
static inline f32x8 lanes_8_9_10_11_12_13_14_15_of_f32x16(f32x16 a) {
  #if __has_builtin(__builtin_shufflevector)
  return __builtin_shufflevector(a, a, 8, 9, 10, 11, 12, 13, 14, 15);
  #else
  return (f32x8){a[8], a[9], a[10], a[11], a[12], a[13], a[14], a[15]};
  #endif
}
#endif
#ifndef MOROK_MAX_F32X8
#define MOROK_MAX_F32X8
static inline f32x8 max_f32x8(f32x8 a, f32x8 b) {
  i32x8 nan = (i32x8)(a != a);
  f32x8 r = __builtin_ia32_maxps256(a, b);
  return (f32x8)((nan & (i32x8)a) | (~nan & (i32x8)r));
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
  return (f32x4)((nan & (i32x4)a) | (~nan & (i32x4)r));
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
#ifndef MOROK_SELECT_F32X16
#define MOROK_SELECT_F32X16
static inline f32x16 select_f32x16(i32x16 m, f32x16 a, f32x16 b) {
  return (f32x16)((m & (i32x16)a) | (~m & (i32x16)b));
}
#endif
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
void R_4096_4096_4096_4096_4096(void **bufs, const int64_t *vars, void *scratch, int64_t lo, int64_t hi) {
  float *p0 = bufs[0];
  const float *p1 = bufs[1];
  f32x16 acc0;
  f32x16 acc1;
  f32x16 acc2;
  f32x16 acc3;
  f32x16 acc4;
  f32x16 acc5;
  f32x16 acc6;
  f32x16 acc7;
  for (int64_t i0 = lo; i0 < hi; i0++) {  // Thread
    int64_t v0 = i0 * 4096;
    acc0 = -__builtin_inff() - (f32x16){};
    acc1 = -__builtin_inff() - (f32x16){};
    acc2 = -__builtin_inff() - (f32x16){};
    acc3 = -__builtin_inff() - (f32x16){};
    for (int64_t i4 = 0; i4 < 64; i4++) {  // Reduce
      int64_t v1 = i4 * 64 + v0;
      acc0 = max_f32x16(acc0, *(f32x16u *)(p1 + v1));
      acc1 = max_f32x16(acc1, *(f32x16u *)(p1 + v1 + 32));
      acc2 = max_f32x16(acc2, *(f32x16u *)(p1 + v1 + 16));
      acc3 = max_f32x16(acc3, *(f32x16u *)(p1 + v1 + 48));
    }
    f32x16 v2 = max_f32x16(max_f32x16(acc0, acc1), max_f32x16(acc2, acc3));
    f32x8 v3 = max_f32x8(lanes_0_1_2_3_4_5_6_7_of_f32x16(v2), lanes_8_9_10_11_12_13_14_15_of_f32x16(v2));
    f32x4 v4 = max_f32x4(lanes_0_1_2_3_of_f32x8(v3), lanes_4_5_6_7_of_f32x8(v3));
    f32x2 v5 = max_f32x2(lanes_0_1_of_f32x4(v4), lanes_2_3_of_f32x4(v4));
    float v6 = max_f32(v5[0], v5[1]);
    f32x16 v7 = v6 - (f32x16){};
    for (int64_t i3 = 0; i3 < 256; i3++) {  // Loop
      int64_t v8 = v0 + i3 * 16;
      f32x16 v9 = *(f32x16u *)(p1 + v8) - v6;
      f32x16 v10 = select_f32x16((i32x16)(v9 < -104.0f), -104.0f - (f32x16){}, v9);
      f32x16 v11 = select_f32x16((i32x16)(v10 > 89.0f), 89.0f - (f32x16){}, v10);
      f32x16 v12 = fma_f32x16(v11, 0x1.715476p+0f - (f32x16){}, 12583166.0f - (f32x16){});
      f32x16 v13 = v12 - 12583166.0f;
      f32x16 v14 = fma_f32x16(v13, -0x1.7f7d1cp-20f - (f32x16){}, fma_f32x16(v13, -0x1.62e4p-1f - (f32x16){}, v11));
      f32x16 v15 = v14 * v14;
      f32x16 v16 = fma_f32x16(0x1.6a4f42p-10f - (f32x16){}, v14, 0x1.123984p-7f - (f32x16){});
      f32x16 v17 = fma_f32x16(0x1.5558aep-5f - (f32x16){}, v14, 0x1.555492p-3f - (f32x16){});
      f32x16 v18 = fma_f32x16(v15, fma_f32x16(fma_f32x16(v16, v15, v17), v14, 0x1.fffffcp-2f - (f32x16){}), v14);
      i32x16 v19 = (i32x16)v12;
      i32x16 v20 = (v19 << 22) & -8388608;
      *(f32x16u *)(p0 + v8) = (v18 + 1.0f) * (f32x16)v20 * (f32x16)((v19 << 23) - v20);
    }
    acc4 = 0.0f - (f32x16){};
    acc5 = 0.0f - (f32x16){};
    acc6 = 0.0f - (f32x16){};
    acc7 = 0.0f - (f32x16){};
    for (int64_t i2 = 0; i2 < 64; i2++) {  // Reduce
      int64_t v21 = i2 * 64 + v0;
      acc4 = acc4 + *(f32x16u *)(p0 + v21);
      acc5 = acc5 + *(f32x16u *)(p0 + v21 + 32);
      acc6 = acc6 + *(f32x16u *)(p0 + v21 + 16);
      acc7 = acc7 + *(f32x16u *)(p0 + v21 + 48);
    }
    f32x16 v22 = acc4 + acc5 + (acc6 + acc7);
    f32x8 v23 = lanes_0_1_2_3_4_5_6_7_of_f32x16(v22) + lanes_8_9_10_11_12_13_14_15_of_f32x16(v22);
    f32x4 v24 = lanes_0_1_2_3_of_f32x8(v23) + lanes_4_5_6_7_of_f32x8(v23);
    f32x2 v25 = lanes_0_1_of_f32x4(v24) + lanes_2_3_of_f32x4(v24);
    float v26 = 1.0f / (v25[0] + v25[1]);
    f32x8 v27 = v26 - (f32x8){};
    for (int64_t i1 = 0; i1 < 512; i1++) {  // Loop
      int64_t v28 = i1 * 8 + v0;
      *(f32x8u *)(p0 + v28) = *(f32x8u *)(p0 + v28) * v26;
    }
  }
}
