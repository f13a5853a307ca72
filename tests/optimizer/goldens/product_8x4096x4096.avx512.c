typedef __INT64_TYPE__ int64_t;
typedef float f32x8 __attribute__((vector_size(32)));
typedef float f32x8u __attribute__((vector_size(32), aligned(4), may_alias));
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
void R_8_4096_4096(void **bufs, const int64_t *vars, void *scratch, int64_t lo, int64_t hi) {
  float *p0 = bufs[0];
  const float *p1 = bufs[1];
  const float *p2 = bufs[2];
  float *s0 = __builtin_assume_aligned((char *)scratch + 0, 64);
  for (int64_t i0 = lo; i0 < hi; i0++) {  // Thread
    int64_t v0 = i0 * 2048;
    for (int64_t i13 = 0; i13 < 256; i13++) {  // Loop
      int64_t v1 = i13 * 64;
      *(f32x8u *)(s0 + v1) = 0.0f - (f32x8){};
      *(f32x8u *)(s0 + v1 + 8) = 0.0f - (f32x8){};
      *(f32x8u *)(s0 + v1 + 16) = 0.0f - (f32x8){};
      *(f32x8u *)(s0 + v1 + 24) = 0.0f - (f32x8){};
      *(f32x8u *)(s0 + v1 + 32) = 0.0f - (f32x8){};
      *(f32x8u *)(s0 + v1 + 40) = 0.0f - (f32x8){};
      *(f32x8u *)(s0 + v1 + 48) = 0.0f - (f32x8){};
      *(f32x8u *)(s0 + v1 + 56) = 0.0f - (f32x8){};
    }
    for (int64_t i5 = 0; i5 < 512; i5++) {  // Reduce
      int64_t v2 = v0 + i5 * 32768;
      int64_t v3 = i5 * 8;
      f32x8 x0 = *(f32x8u *)(p1 + v3);
      __asm__("" : "+v"(x0));
      f32x8 v4 = lanes_0_8_0_8_0_8_0_8_of_two_f32x8(x0, x0);
      f32x8 v5 = lanes_1_9_1_9_1_9_1_9_of_two_f32x8(x0, x0);
      f32x8 v6 = lanes_2_10_2_10_2_10_2_10_of_two_f32x8(x0, x0);
      f32x8 v7 = lanes_3_11_3_11_3_11_3_11_of_two_f32x8(x0, x0);
      f32x8 v8 = lanes_4_12_4_12_4_12_4_12_of_two_f32x8(x0, x0);
      f32x8 v9 = lanes_5_13_5_13_5_13_5_13_of_two_f32x8(x0, x0);
      f32x8 v10 = lanes_6_14_6_14_6_14_6_14_of_two_f32x8(x0, x0);
      f32x8 v11 = lanes_7_15_7_15_7_15_7_15_of_two_f32x8(x0, x0);
      f32x8 x1 = *(f32x8u *)(p1 + v3 + 4096);
      __asm__("" : "+v"(x1));
      f32x8 v12 = lanes_0_8_0_8_0_8_0_8_of_two_f32x8(x1, x1);
      f32x8 v13 = lanes_1_9_1_9_1_9_1_9_of_two_f32x8(x1, x1);
      f32x8 v14 = lanes_2_10_2_10_2_10_2_10_of_two_f32x8(x1, x1);
      f32x8 v15 = lanes_3_11_3_11_3_11_3_11_of_two_f32x8(x1, x1);
      f32x8 v16 = lanes_4_12_4_12_4_12_4_12_of_two_f32x8(x1, x1);
      f32x8 v17 = lanes_5_13_5_13_5_13_5_13_of_two_f32x8(x1, x1);
      f32x8 v18 = lanes_6_14_6_14_6_14_6_14_of_two_f32x8(x1, x1);
      f32x8 v19 = lanes_7_15_7_15_7_15_7_15_of_two_f32x8(x1, x1);
      f32x8 x2 = *(f32x8u *)(p1 + v3 + 8192);
      __asm__("" : "+v"(x2));
      f32x8 v20 = lanes_0_8_0_8_0_8_0_8_of_two_f32x8(x2, x2);
      f32x8 v21 = lanes_1_9_1_9_1_9_1_9_of_two_f32x8(x2, x2);
      f32x8 v22 = lanes_2_10_2_10_2_10_2_10_of_two_f32x8(x2, x2);
      f32x8 v23 = lanes_3_11_3_11_3_11_3_11_of_two_f32x8(x2, x2);
      f32x8 v24 = lanes_4_12_4_12_4_12_4_12_of_two_f32x8(x2, x2);
      f32x8 v25 = lanes_5_13_5_13_5_13_5_13_of_two_f32x8(x2, x2);
      f32x8 v26 = lanes_6_14_6_14_6_14_6_14_of_two_f32x8(x2, x2);
      f32x8 v27 = lanes_7_15_7_15_7_15_7_15_of_two_f32x8(x2, x2);
      f32x8 x3 = *(f32x8u *)(p1 + v3 + 12288);
      __asm__("" : "+v"(x3));
      f32x8 v28 = lanes_0_8_0_8_0_8_0_8_of_two_f32x8(x3, x3);
      f32x8 v29 = lanes_1_9_1_9_1_9_1_9_of_two_f32x8(x3, x3);
      f32x8 v30 = lanes_2_10_2_10_2_10_2_10_of_two_f32x8(x3, x3);
      f32x8 v31 = lanes_3_11_3_11_3_11_3_11_of_two_f32x8(x3, x3);
      f32x8 v32 = lanes_4_12_4_12_4_12_4_12_of_two_f32x8(x3, x3);
      f32x8 v33 = lanes_5_13_5_13_5_13_5_13_of_two_f32x8(x3, x3);
      f32x8 v34 = lanes_6_14_6_14_6_14_6_14_of_two_f32x8(x3, x3);
      f32x8 v35 = lanes_7_15_7_15_7_15_7_15_of_two_f32x8(x3, x3);
      f32x8 x4 = *(f32x8u *)(p1 + v3 + 16384);
      __asm__("" : "+v"(x4));
      f32x8 v36 = lanes_0_8_0_8_0_8_0_8_of_two_f32x8(x4, x4);
      f32x8 v37 = lanes_1_9_1_9_1_9_1_9_of_two_f32x8(x4, x4);
      f32x8 v38 = lanes_2_10_2_10_2_10_2_10_of_two_f32x8(x4, x4);
      f32x8 v39 = lanes_3_11_3_11_3_11_3_11_of_two_f32x8(x4, x4);
      f32x8 v40 = lanes_4_12_4_12_4_12_4_12_of_two_f32x8(x4, x4);
      f32x8 v41 = lanes_5_13_5_13_5_13_5_13_of_two_f32x8(x4, x4);
      f32x8 v42 = lanes_6_14_6_14_6_14_6_14_of_two_f32x8(x4, x4);
      f32x8 v43 = lanes_7_15_7_15_7_15_7_15_of_two_f32x8(x4, x4);
      f32x8 x5 = *(f32x8u *)(p1 + v3 + 20480);
      __asm__("" : "+v"(x5));
      f32x8 v44 = lanes_0_8_0_8_0_8_0_8_of_two_f32x8(x5, x5);
      f32x8 v45 = lanes_1_9_1_9_1_9_1_9_of_two_f32x8(x5, x5);
      f32x8 v46 = lanes_2_10_2_10_2_10_2_10_of_two_f32x8(x5, x5);
      f32x8 v47 = lanes_3_11_3_11_3_11_3_11_of_two_f32x8(x5, x5);
      f32x8 v48 = lanes_4_12_4_12_4_12_4_12_of_two_f32x8(x5, x5);
      f32x8 v49 = lanes_5_13_5_13_5_13_5_13_of_two_f32x8(x5, x5);
      f32x8 v50 = lanes_6_14_6_14_6_14_6_14_of_two_f32x8(x5, x5);
      f32x8 v51 = lanes_7_15_7_15_7_15_7_15_of_two_f32x8(x5, x5);
      f32x8 x6 = *(f32x8u *)(p1 + v3 + 24576);
      __asm__("" : "+v"(x6));
      f32x8 v52 = lanes_0_8_0_8_0_8_0_8_of_two_f32x8(x6, x6);
      f32x8 v53 = lanes_1_9_1_9_1_9_1_9_of_two_f32x8(x6, x6);
      f32x8 v54 = lanes_2_10_2_10_2_10_2_10_of_two_f32x8(x6, x6);
      f32x8 v55 = lanes_3_11_3_11_3_11_3_11_of_two_f32x8(x6, x6);
      f32x8 v56 = lanes_4_12_4_12_4_12_4_12_of_two_f32x8(x6, x6);
      f32x8 v57 = lanes_5_13_5_13_5_13_5_13_of_two_f32x8(x6, x6);
      f32x8 v58 = lanes_6_14_6_14_6_14_6_14_of_two_f32x8(x6, x6);
      f32x8 v59 = lanes_7_15_7_15_7_15_7_15_of_two_f32x8(x6, x6);
      f32x8 x7 = *(f32x8u *)(p1 + v3 + 28672);
      __asm__("" : "+v"(x7));
      f32x8 v60 = lanes_0_8_0_8_0_8_0_8_of_two_f32x8(x7, x7);
      f32x8 v61 = lanes_1_9_1_9_1_9_1_9_of_two_f32x8(x7, x7);
      f32x8 v62 = lanes_2_10_2_10_2_10_2_10_of_two_f32x8(x7, x7);
      f32x8 v63 = lanes_3_11_3_11_3_11_3_11_of_two_f32x8(x7, x7);
      f32x8 v64 = lanes_4_12_4_12_4_12_4_12_of_two_f32x8(x7, x7);
      f32x8 v65 = lanes_5_13_5_13_5_13_5_13_of_two_f32x8(x7, x7);
      f32x8 v66 = lanes_6_14_6_14_6_14_6_14_of_two_f32x8(x7, x7);
      f32x8 v67 = lanes_7_15_7_15_7_15_7_15_of_two_f32x8(x7, x7);
      for (int64_t i6 = 0; i6 < 256; i6++) {  // Loop
        int64_t v68 = i6 * 64;
        int64_t v69 = v2 + i6 * 8;
        f32x8 x8 = *(f32x8u *)(p2 + v69 + 28672);
        __asm__("" : "+v"(x8));
        f32x8 x9 = *(f32x8u *)(p2 + v69 + 24576);
        __asm__("" : "+v"(x9));
        f32x8 x10 = *(f32x8u *)(p2 + v69 + 20480);
        __asm__("" : "+v"(x10));
        f32x8 x11 = *(f32x8u *)(p2 + v69 + 16384);
        __asm__("" : "+v"(x11));
        f32x8 x12 = *(f32x8u *)(p2 + v69 + 12288);
        __asm__("" : "+v"(x12));
        f32x8 x13 = *(f32x8u *)(p2 + v69 + 8192);
        __asm__("" : "+v"(x13));
        f32x8 x14 = *(f32x8u *)(p2 + v69 + 4096);
        __asm__("" : "+v"(x14));
        f32x8 x15 = *(f32x8u *)(p2 + v69);
        __asm__("" : "+v"(x15));
        f32x8 v70 = fma_f32x8(v6, x13, fma_f32x8(v5, x14, fma_f32x8(v4, x15, *(f32x8u *)(s0 + v68))));
        f32x8 v71 = fma_f32x8(v10, x9, fma_f32x8(v9, x10, fma_f32x8(v8, x11, fma_f32x8(v7, x12, v70))));
        *(f32x8u *)(s0 + v68) = fma_f32x8(v11, x8, v71);
        int64_t v72 = v68 + 8;
        f32x8 v73 = fma_f32x8(v14, x13, fma_f32x8(v13, x14, fma_f32x8(v12, x15, *(f32x8u *)(s0 + v72))));
        f32x8 v74 = fma_f32x8(v18, x9, fma_f32x8(v17, x10, fma_f32x8(v16, x11, fma_f32x8(v15, x12, v73))));
        *(f32x8u *)(s0 + v72) = fma_f32x8(v19, x8, v74);
        int64_t v75 = v68 + 16;
        f32x8 v76 = fma_f32x8(v22, x13, fma_f32x8(v21, x14, fma_f32x8(v20, x15, *(f32x8u *)(s0 + v75))));
        f32x8 v77 = fma_f32x8(v26, x9, fma_f32x8(v25, x10, fma_f32x8(v24, x11, fma_f32x8(v23, x12, v76))));
        *(f32x8u *)(s0 + v75) = fma_f32x8(v27, x8, v77);
        int64_t v78 = v68 + 24;
        f32x8 v79 = fma_f32x8(v30, x13, fma_f32x8(v29, x14, fma_f32x8(v28, x15, *(f32x8u *)(s0 + v78))));
        f32x8 v80 = fma_f32x8(v34, x9, fma_f32x8(v33, x10, fma_f32x8(v32, x11, fma_f32x8(v31, x12, v79))));
        *(f32x8u *)(s0 + v78) = fma_f32x8(v35, x8, v80);
        int64_t v81 = v68 + 32;
        f32x8 v82 = fma_f32x8(v38, x13, fma_f32x8(v37, x14, fma_f32x8(v36, x15, *(f32x8u *)(s0 + v81))));
        f32x8 v83 = fma_f32x8(v42, x9, fma_f32x8(v41, x10, fma_f32x8(v40, x11, fma_f32x8(v39, x12, v82))));
        *(f32x8u *)(s0 + v81) = fma_f32x8(v43, x8, v83);
        int64_t v84 = v68 + 40;
        f32x8 v85 = fma_f32x8(v46, x13, fma_f32x8(v45, x14, fma_f32x8(v44, x15, *(f32x8u *)(s0 + v84))));
        f32x8 v86 = fma_f32x8(v50, x9, fma_f32x8(v49, x10, fma_f32x8(v48, x11, fma_f32x8(v47, x12, v85))));
        *(f32x8u *)(s0 + v84) = fma_f32x8(v51, x8, v86);
        int64_t v87 = v68 + 48;
        f32x8 v88 = fma_f32x8(v54, x13, fma_f32x8(v53, x14, fma_f32x8(v52, x15, *(f32x8u *)(s0 + v87))));
        f32x8 v89 = fma_f32x8(v58, x9, fma_f32x8(v57, x10, fma_f32x8(v56, x11, fma_f32x8(v55, x12, v88))));
        *(f32x8u *)(s0 + v87) = fma_f32x8(v59, x8, v89);
        int64_t v90 = v68 + 56;
        f32x8 v91 = fma_f32x8(v62, x13, fma_f32x8(v61, x14, fma_f32x8(v60, x15, *(f32x8u *)(s0 + v90))));
        f32x8 v92 = fma_f32x8(v66, x9, fma_f32x8(v65, x10, fma_f32x8(v64, x11, fma_f32x8(v63, x12, v91))));
        *(f32x8u *)(s0 + v90) = fma_f32x8(v67, x8, v92);
      }
    }
    for (int64_t i1 = 0; i1 < 256; i1++) {  // Loop
      int64_t v93 = i1 * 8;
      int64_t v94 = i1 * 64;
      for (int64_t i3 = 0; i3 < 8; i3++) {  // Loop
        *(f32x8u *)(p0 + v0 + i3 * 4096 + v93) = *(f32x8u *)(s0 + i3 * 8 + v94);
      }
    }
  }
}
