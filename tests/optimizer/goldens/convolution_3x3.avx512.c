typedef __INT32_TYPE__ int32_t;
typedef __INT64_TYPE__ int64_t;
typedef float f32x16 __attribute__((vector_size(64)));
typedef float f32x16u __attribute__((vector_size(64), aligned(4), may_alias));
typedef float f32x8 __attribute__((vector_size(32)));
typedef float f32x8u __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t i32x16 __attribute__((vector_size(64)));
typedef int32_t i32x8 __attribute__((vector_size(32)));
#ifndef MOROK_MASKED_LOAD_F32X16
#define MOROK_MASKED_LOAD_F32X16
static inline f32x16 masked_load_f32x16(const void *p, i32x16 m) {
  union { f32x16 all; i32x16 mask; i32x8 bits[2]; f32x8 half[2]; } u = {.mask = m};
  u.half[0] = __builtin_ia32_maskloadps256((const f32x8 *)p, u.bits[0]);
  u.half[1] = __builtin_ia32_maskloadps256((const f32x8 *)p + 1, u.bits[1]);
  return u.all;
}
#endif
#ifndef MOROK_LANES_0_8_0_8_0_8_0_8_OF_TWO_F32X8
#define MOROK_LANES_0_8_0_8_0_8_0_8_OF_TWO_F32X8
static inline f32x8 lanes_0_8_0_8_0_8_0_8_of_two_f32x8(f32x8 a, f32x8 b) {
  #if __has_builtin(__builtin_shufflevector)
  return __builtin_shufflevector(a, b, 0, 8, 0, 8, 0, 8, 0, 8);
  #else
  return (f32x8){a[0], b[0], a[0], b[0], a[0], b[0], a[0], b[0]};
  #endif
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
#ifndef MOROK_LANES_1_9_1_9_1_9_1_9_OF_TWO_F32X8
#define MOROK_LANES_1_9_1_9_1_9_1_9_OF_TWO_F32X8
static inline f32x8 lanes_1_9_1_9_1_9_1_9_of_two_f32x8(f32x8 a, f32x8 b) {
  #if __has_builtin(__builtin_shufflevector)
  return __builtin_shufflevector(a, b, 1, 9, 1, 9, 1, 9, 1, 9);
  #else
  return (f32x8){a[1], b[1], a[1], b[1], a[1], b[1], a[1], b[1]};
  #endif
}
#endif
#ifndef MOROK_LANES_2_10_2_10_2_10_2_10_OF_TWO_F32X8
#define MOROK_LANES_2_10_2_10_2_10_2_10_OF_TWO_F32X8
static inline f32x8 lanes_2_10_2_10_2_10_2_10_of_two_f32x8(f32x8 a, f32x8 b) {
  #if __has_builtin(__builtin_shufflevector)
  return __builtin_shufflevector(a, b, 2, 10, 2, 10, 2, 10, 2, 10);
  #else
  return (f32x8){a[2], b[2], a[2], b[2], a[2], b[2], a[2], b[2]};
  #endif
}
#endif
#ifndef MOROK_LANES_3_11_3_11_3_11_3_11_OF_TWO_F32X8
#define MOROK_LANES_3_11_3_11_3_11_3_11_OF_TWO_F32X8
static inline f32x8 lanes_3_11_3_11_3_11_3_11_of_two_f32x8(f32x8 a, f32x8 b) {
  #if __has_builtin(__builtin_shufflevector)
  return __builtin_shufflevector(a, b, 3, 11, 3, 11, 3, 11, 3, 11);
  #else
  return (f32x8){a[3], b[3], a[3], b[3], a[3], b[3], a[3], b[3]};
  #endif
}
#endif
#ifndef MOROK_LANES_4_12_4_12_4_12_4_12_OF_TWO_F32X8
#define MOROK_LANES_4_12_4_12_4_12_4_12_OF_TWO_F32X8
static inline f32x8 lanes_4_12_4_12_4_12_4_12_of_two_f32x8(f32x8 a, f32x8 b) {
  #if __has_builtin(__builtin_shufflevector)
  return __builtin_shufflevector(a, b, 4, 12, 4, 12, 4, 12, 4, 12);
  #else
  return (f32x8){a[4], b[4], a[4], b[4], a[4], b[4], a[4], b[4]};
  #endif
}
#endif
#ifndef MOROK_LANES_5_13_5_13_5_13_5_13_OF_TWO_F32X8
#define MOROK_LANES_5_13_5_13_5_13_5_13_OF_TWO_F32X8
static inline f32x8 lanes_5_13_5_13_5_13_5_13_of_two_f32x8(f32x8 a, f32x8 b) {
  #if __has_builtin(__builtin_shufflevector)
  return __builtin_shufflevector(a, b, 5, 13, 5, 13, 5, 13, 5, 13);
  #else
  return (f32x8){a[5], b[5], a[5], b[5], a[5], b[5], a[5], b[5]};
  #endif
}
#endif
#ifndef MOROK_LANES_6_14_6_14_6_14_6_14_OF_TWO_F32X8
#define MOROK_LANES_6_14_6_14_6_14_6_14_OF_TWO_F32X8
static inline f32x8 lanes_6_14_6_14_6_14_6_14_of_two_f32x8(f32x8 a, f32x8 b) {
  #if __has_builtin(__builtin_shufflevector)
  return __builtin_shufflevector(a, b, 6, 14, 6, 14, 6, 14, 6, 14);
  #else
  return (f32x8){a[6], b[6], a[6], b[6], a[6], b[6], a[6], b[6]};
  #endif
}
#endif
#ifndef MOROK_LANES_7_15_7_15_7_15_7_15_OF_TWO_F32X8
#define MOROK_LANES_7_15_7_15_7_15_7_15_OF_TWO_F32X8
static inline f32x8 lanes_7_15_7_15_7_15_7_15_of_two_f32x8(f32x8 a, f32x8 b) {
  #if __has_builtin(__builtin_shufflevector)
  return __builtin_shufflevector(a, b, 7, 15, 7, 15, 7, 15, 7, 15);
  #else
  return (f32x8){a[7], b[7], a[7], b[7], a[7], b[7], a[7], b[7]};
  #endif
}
#endif
void R_8_64_56_56_64_3_3(void **bufs, const int64_t *vars, void *scratch, int64_t lo, int64_t hi) {
  float *p0 = bufs[0];
  const float *p1 = bufs[1];
  const float *p2 = bufs[2];
  float *s0 = __builtin_assume_aligned((char *)scratch + 0, 64);
  float *s1 = __builtin_assume_aligned((char *)scratch + 163840, 64);
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
  f32x8 acc16;
  f32x8 acc17;
  f32x8 acc18;
  f32x8 acc19;
  f32x8 acc20;
  f32x8 acc21;
  f32x8 acc22;
  f32x8 acc23;
  f32x8 acc24;
  f32x8 acc25;
  f32x8 acc26;
  f32x8 acc27;
  f32x8 acc28;
  f32x8 acc29;
  f32x8 acc30;
  f32x8 acc31;
  for (int64_t i9 = 0; i9 < 2; i9++) {  // Loop
    int64_t v0 = i9 * 18432;
    for (int64_t i10 = 0; i10 < 64; i10++) {  // Loop
      int64_t v1 = v0 + i10 * 288;
      int64_t v2 = i10 * 9;
      for (int64_t i11 = 0; i11 < 3; i11++) {  // Loop
        int64_t v3 = v1 + i11 * 96;
        int64_t v4 = i11 * 3;
        for (int64_t i12 = 0; i12 < 3; i12++) {  // Loop
          int64_t v5 = v3 + i12 * 32;
          for (int64_t i13 = 0; i13 < 32; i13++) {  // Loop
            s1[v5 + i13] = p2[i13 * 576 + v0 + v2 + v4 + i12];
          }
        }
      }
    }
  }
  for (int64_t i1 = lo; i1 < hi; i1++) {  // Thread
    int64_t v6 = (i1 * 9363) >> 16;
    int64_t v7 = v6 * 200704;
    int64_t v8 = i1 - v6 * 7;
    int64_t v9 = v8 * 448;
    int64_t v10 = v8 * 8;
    for (int64_t i14 = 0; i14 < 64; i14++) {  // Loop
      int64_t v11 = i14 * 640;
      int64_t v12 = v7 + i14 * 3136 + v9;
      for (int64_t i15 = 0; i15 < 10; i15++) {  // Loop
        int64_t v13 = i15 * 64 + v11;
        int64_t v14 = v12 + i15 * 56;
        int64_t v15 = i15 + v10;
        _Bool v16 = (v15 >= 1) & (v15 < 57);
        i32x16 v17 = (int32_t)-v16 + (i32x16){};
        i32x16 v18 = (i32x16){0, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1} & ((int32_t)-v16 + (i32x16){});
        *(f32x16u *)(s0 + v13) = masked_load_f32x16(p1 + (v14 + -57), v18);
        *(f32x16u *)(s0 + v13 + 16) = v16 ? (f32x16)*(f32x16u *)(p1 + v14 + -41) : (0.0f - (f32x16){});
        *(f32x16u *)(s0 + v13 + 32) = v16 ? (f32x16)*(f32x16u *)(p1 + v14 + -25) : (0.0f - (f32x16){});
        i32x16 v19 = (i32x16){-1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0} & ((int32_t)-v16 + (i32x16){});
        *(f32x16u *)(s0 + v13 + 48) = masked_load_f32x16(p1 + (v14 + -9), v19);
      }
    }
    for (int64_t i3 = 0; i3 < 2; i3++) {  // Loop
      int64_t v20 = v7 + i3 * 100352 + v9;
      int64_t v21 = i3 * 18432;
      for (int64_t i4 = 0; i4 < 8; i4++) {  // Loop
        int64_t v22 = v20 + i4 * 56;
        int64_t v23 = i4 * 64;
        for (int64_t i5 = 0; i5 < 7; i5++) {  // Loop
          int64_t v24 = i5 * 8;
          int64_t v25 = v22 + v24;
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
          acc12 = 0.0f - (f32x8){};
          acc13 = 0.0f - (f32x8){};
          acc14 = 0.0f - (f32x8){};
          acc15 = 0.0f - (f32x8){};
          acc16 = 0.0f - (f32x8){};
          acc17 = 0.0f - (f32x8){};
          acc18 = 0.0f - (f32x8){};
          acc19 = 0.0f - (f32x8){};
          acc20 = 0.0f - (f32x8){};
          acc21 = 0.0f - (f32x8){};
          acc22 = 0.0f - (f32x8){};
          acc23 = 0.0f - (f32x8){};
          acc24 = 0.0f - (f32x8){};
          acc25 = 0.0f - (f32x8){};
          acc26 = 0.0f - (f32x8){};
          acc27 = 0.0f - (f32x8){};
          acc28 = 0.0f - (f32x8){};
          acc29 = 0.0f - (f32x8){};
          acc30 = 0.0f - (f32x8){};
          acc31 = 0.0f - (f32x8){};
          for (int64_t i6 = 0; i6 < 64; i6++) {  // Reduce
            int64_t v26 = i6 * 640;
            int64_t v27 = v21 + i6 * 288;
            for (int64_t i7 = 0; i7 < 3; i7++) {  // Reduce
              int64_t v28 = i7 * 64 + v26 + v23 + v24;
              int64_t v29 = v27 + i7 * 96;
              for (int64_t i8 = 0; i8 < 3; i8++) {  // Reduce
                f32x8 x0 = *(f32x8u *)(s0 + v28 + i8);
                __asm__("" : "+v"(x0));
                int64_t v30 = v29 + i8 * 32;
                f32x8 x1 = *(f32x8u *)(s1 + v30);
                __asm__("" : "+v"(x1));
                acc0 = fma_f32x8(x0, lanes_0_8_0_8_0_8_0_8_of_two_f32x8(x1, x1), acc0);
                acc1 = fma_f32x8(x0, lanes_1_9_1_9_1_9_1_9_of_two_f32x8(x1, x1), acc1);
                acc2 = fma_f32x8(x0, lanes_2_10_2_10_2_10_2_10_of_two_f32x8(x1, x1), acc2);
                acc3 = fma_f32x8(x0, lanes_3_11_3_11_3_11_3_11_of_two_f32x8(x1, x1), acc3);
                acc4 = fma_f32x8(x0, lanes_4_12_4_12_4_12_4_12_of_two_f32x8(x1, x1), acc4);
                acc5 = fma_f32x8(x0, lanes_5_13_5_13_5_13_5_13_of_two_f32x8(x1, x1), acc5);
                acc6 = fma_f32x8(x0, lanes_6_14_6_14_6_14_6_14_of_two_f32x8(x1, x1), acc6);
                acc7 = fma_f32x8(x0, lanes_7_15_7_15_7_15_7_15_of_two_f32x8(x1, x1), acc7);
                f32x8 x2 = *(f32x8u *)(s1 + v30 + 8);
                __asm__("" : "+v"(x2));
                acc8 = fma_f32x8(x0, lanes_0_8_0_8_0_8_0_8_of_two_f32x8(x2, x2), acc8);
                acc9 = fma_f32x8(x0, lanes_1_9_1_9_1_9_1_9_of_two_f32x8(x2, x2), acc9);
                acc10 = fma_f32x8(x0, lanes_2_10_2_10_2_10_2_10_of_two_f32x8(x2, x2), acc10);
                acc11 = fma_f32x8(x0, lanes_3_11_3_11_3_11_3_11_of_two_f32x8(x2, x2), acc11);
                acc12 = fma_f32x8(x0, lanes_4_12_4_12_4_12_4_12_of_two_f32x8(x2, x2), acc12);
                acc13 = fma_f32x8(x0, lanes_5_13_5_13_5_13_5_13_of_two_f32x8(x2, x2), acc13);
                acc14 = fma_f32x8(x0, lanes_6_14_6_14_6_14_6_14_of_two_f32x8(x2, x2), acc14);
                acc15 = fma_f32x8(x0, lanes_7_15_7_15_7_15_7_15_of_two_f32x8(x2, x2), acc15);
                f32x8 x3 = *(f32x8u *)(s1 + v30 + 16);
                __asm__("" : "+v"(x3));
                acc16 = fma_f32x8(x0, lanes_0_8_0_8_0_8_0_8_of_two_f32x8(x3, x3), acc16);
                acc17 = fma_f32x8(x0, lanes_1_9_1_9_1_9_1_9_of_two_f32x8(x3, x3), acc17);
                acc18 = fma_f32x8(x0, lanes_2_10_2_10_2_10_2_10_of_two_f32x8(x3, x3), acc18);
                acc19 = fma_f32x8(x0, lanes_3_11_3_11_3_11_3_11_of_two_f32x8(x3, x3), acc19);
                acc20 = fma_f32x8(x0, lanes_4_12_4_12_4_12_4_12_of_two_f32x8(x3, x3), acc20);
                acc21 = fma_f32x8(x0, lanes_5_13_5_13_5_13_5_13_of_two_f32x8(x3, x3), acc21);
                acc22 = fma_f32x8(x0, lanes_6_14_6_14_6_14_6_14_of_two_f32x8(x3, x3), acc22);
                acc23 = fma_f32x8(x0, lanes_7_15_7_15_7_15_7_15_of_two_f32x8(x3, x3), acc23);
                f32x8 x4 = *(f32x8u *)(s1 + v30 + 24);
                __asm__("" : "+v"(x4));
                acc24 = fma_f32x8(x0, lanes_0_8_0_8_0_8_0_8_of_two_f32x8(x4, x4), acc24);
                acc25 = fma_f32x8(x0, lanes_1_9_1_9_1_9_1_9_of_two_f32x8(x4, x4), acc25);
                acc26 = fma_f32x8(x0, lanes_2_10_2_10_2_10_2_10_of_two_f32x8(x4, x4), acc26);
                acc27 = fma_f32x8(x0, lanes_3_11_3_11_3_11_3_11_of_two_f32x8(x4, x4), acc27);
                acc28 = fma_f32x8(x0, lanes_4_12_4_12_4_12_4_12_of_two_f32x8(x4, x4), acc28);
                acc29 = fma_f32x8(x0, lanes_5_13_5_13_5_13_5_13_of_two_f32x8(x4, x4), acc29);
                acc30 = fma_f32x8(x0, lanes_6_14_6_14_6_14_6_14_of_two_f32x8(x4, x4), acc30);
                acc31 = fma_f32x8(x0, lanes_7_15_7_15_7_15_7_15_of_two_f32x8(x4, x4), acc31);
              }
            }
          }
          *(f32x8u *)(p0 + v25) = acc0;
          *(f32x8u *)(p0 + v25 + 3136) = acc1;
          *(f32x8u *)(p0 + v25 + 6272) = acc2;
          *(f32x8u *)(p0 + v25 + 9408) = acc3;
          *(f32x8u *)(p0 + v25 + 12544) = acc4;
          *(f32x8u *)(p0 + v25 + 15680) = acc5;
          *(f32x8u *)(p0 + v25 + 18816) = acc6;
          *(f32x8u *)(p0 + v25 + 21952) = acc7;
          *(f32x8u *)(p0 + v25 + 25088) = acc8;
          *(f32x8u *)(p0 + v25 + 28224) = acc9;
          *(f32x8u *)(p0 + v25 + 31360) = acc10;
          *(f32x8u *)(p0 + v25 + 34496) = acc11;
          *(f32x8u *)(p0 + v25 + 37632) = acc12;
          *(f32x8u *)(p0 + v25 + 40768) = acc13;
          *(f32x8u *)(p0 + v25 + 43904) = acc14;
          *(f32x8u *)(p0 + v25 + 47040) = acc15;
          *(f32x8u *)(p0 + v25 + 50176) = acc16;
          *(f32x8u *)(p0 + v25 + 53312) = acc17;
          *(f32x8u *)(p0 + v25 + 56448) = acc18;
          *(f32x8u *)(p0 + v25 + 59584) = acc19;
          *(f32x8u *)(p0 + v25 + 62720) = acc20;
          *(f32x8u *)(p0 + v25 + 65856) = acc21;
          *(f32x8u *)(p0 + v25 + 68992) = acc22;
          *(f32x8u *)(p0 + v25 + 72128) = acc23;
          *(f32x8u *)(p0 + v25 + 75264) = acc24;
          *(f32x8u *)(p0 + v25 + 78400) = acc25;
          *(f32x8u *)(p0 + v25 + 81536) = acc26;
          *(f32x8u *)(p0 + v25 + 84672) = acc27;
          *(f32x8u *)(p0 + v25 + 87808) = acc28;
          *(f32x8u *)(p0 + v25 + 90944) = acc29;
          *(f32x8u *)(p0 + v25 + 94080) = acc30;
          *(f32x8u *)(p0 + v25 + 97216) = acc31;
        }
      }
    }
  }
}
