typedef __INT32_TYPE__ int32_t;
typedef __INT64_TYPE__ int64_t;
typedef float f32x8 __attribute__((vector_size(32)));
typedef float f32x8u __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t i32x8 __attribute__((vector_size(32)));
#ifndef MOROK_MASKED_LOAD_F32X8
#define MOROK_MASKED_LOAD_F32X8
static inline f32x8 masked_load_f32x8(const void *p, i32x8 m) {
  return (f32x8)__builtin_ia32_maskloadps256((const f32x8 *)p, (i32x8)m);
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
  for (int64_t i10 = 0; i10 < 4; i10++) {  // Loop
    int64_t v0 = i10 * 9216;
    for (int64_t i11 = 0; i11 < 64; i11++) {  // Loop
      int64_t v1 = i11 * 144 + v0;
      int64_t v2 = i11 * 9;
      for (int64_t i12 = 0; i12 < 3; i12++) {  // Loop
        int64_t v3 = v1 + i12 * 48;
        int64_t v4 = i12 * 3;
        for (int64_t i13 = 0; i13 < 3; i13++) {  // Loop
          int64_t v5 = v3 + i13 * 16;
          for (int64_t i14 = 0; i14 < 16; i14++) {  // Loop
            s1[v5 + i14] = p2[i14 * 576 + v0 + v2 + v4 + i13];
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
    for (int64_t i15 = 0; i15 < 64; i15++) {  // Loop
      int64_t v11 = i15 * 640;
      int64_t v12 = v7 + i15 * 3136 + v9;
      for (int64_t i16 = 0; i16 < 10; i16++) {  // Loop
        int64_t v13 = i16 * 64 + v11;
        int64_t v14 = v12 + i16 * 56;
        int64_t v15 = i16 + v10;
        _Bool v16 = (v15 >= 1) & (v15 < 57);
        i32x8 v17 = (int32_t)-v16 + (i32x8){};
        f32x8 x0 = masked_load_f32x8(p1 + (v14 + -57), (i32x8){0, -1, -1, -1, -1, -1, -1, -1} & ((int32_t)-v16 + (i32x8){}));
        *(f32x8u *)(s0 + v13) = x0;
        *(f32x8u *)(s0 + v13 + 8) = v16 ? (f32x8)*(f32x8u *)(p1 + v14 + -49) : (0.0f - (f32x8){});
        *(f32x8u *)(s0 + v13 + 16) = v16 ? (f32x8)*(f32x8u *)(p1 + v14 + -41) : (0.0f - (f32x8){});
        *(f32x8u *)(s0 + v13 + 24) = v16 ? (f32x8)*(f32x8u *)(p1 + v14 + -33) : (0.0f - (f32x8){});
        *(f32x8u *)(s0 + v13 + 32) = v16 ? (f32x8)*(f32x8u *)(p1 + v14 + -25) : (0.0f - (f32x8){});
        *(f32x8u *)(s0 + v13 + 40) = v16 ? (f32x8)*(f32x8u *)(p1 + v14 + -17) : (0.0f - (f32x8){});
        *(f32x8u *)(s0 + v13 + 48) = v16 ? (f32x8)*(f32x8u *)(p1 + v14 + -9) : (0.0f - (f32x8){});
        f32x8 x1 = masked_load_f32x8(p1 + (v14 + -1), (i32x8){-1, 0, 0, 0, 0, 0, 0, 0} & ((int32_t)-v16 + (i32x8){}));
        *(f32x8u *)(s0 + v13 + 56) = x1;
      }
    }
    for (int64_t i3 = 0; i3 < 4; i3++) {  // Loop
      int64_t v18 = v7 + i3 * 50176 + v9;
      int64_t v19 = i3 * 9216;
      for (int64_t i4 = 0; i4 < 8; i4++) {  // Loop
        int64_t v20 = v18 + i4 * 56;
        int64_t v21 = i4 * 64;
        for (int64_t i5 = 0; i5 < 9; i5++) {  // Loop
          int64_t v22 = i5 * 6;
          int64_t v23 = v20 + v22;
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
          for (int64_t i7 = 0; i7 < 64; i7++) {  // Reduce
            int64_t v24 = i7 * 640;
            int64_t v25 = i7 * 144 + v19;
            for (int64_t i8 = 0; i8 < 3; i8++) {  // Reduce
              int64_t v26 = i8 * 64 + v24 + v21 + v22;
              int64_t v27 = v25 + i8 * 48;
              for (int64_t i9 = 0; i9 < 3; i9++) {  // Reduce
                int64_t v28 = v26 + i9;
                float x2 = s0[v28];
                f32x8 v29 = x2 - (f32x8){};
                int64_t v30 = v27 + i9 * 16;
                f32x8 x3 = *(f32x8u *)(s1 + v30);
                __asm__("" : "+x"(x3));
                acc0 = fma_f32x8(v29, x3, acc0);
                f32x8 x4 = *(f32x8u *)(s1 + v30 + 8);
                __asm__("" : "+x"(x4));
                acc1 = fma_f32x8(v29, x4, acc1);
                float x5 = s0[v28 + 1];
                f32x8 v31 = x5 - (f32x8){};
                acc2 = fma_f32x8(v31, x3, acc2);
                acc3 = fma_f32x8(v31, x4, acc3);
                float x6 = s0[v28 + 2];
                f32x8 v32 = x6 - (f32x8){};
                acc4 = fma_f32x8(v32, x3, acc4);
                acc5 = fma_f32x8(v32, x4, acc5);
                float x7 = s0[v28 + 3];
                f32x8 v33 = x7 - (f32x8){};
                acc6 = fma_f32x8(v33, x3, acc6);
                acc7 = fma_f32x8(v33, x4, acc7);
                float x8 = s0[v28 + 4];
                f32x8 v34 = x8 - (f32x8){};
                acc8 = fma_f32x8(v34, x3, acc8);
                acc9 = fma_f32x8(v34, x4, acc9);
                float x9 = s0[v28 + 5];
                f32x8 v35 = x9 - (f32x8){};
                acc10 = fma_f32x8(v35, x3, acc10);
                acc11 = fma_f32x8(v35, x4, acc11);
              }
            }
          }
          f32x8 x10 = acc0;
          p0[v23] = x10[0];
          p0[v23 + 3136] = x10[1];
          p0[v23 + 6272] = x10[2];
          p0[v23 + 9408] = x10[3];
          p0[v23 + 12544] = x10[4];
          p0[v23 + 15680] = x10[5];
          p0[v23 + 18816] = x10[6];
          p0[v23 + 21952] = x10[7];
          f32x8 x11 = acc1;
          p0[v23 + 25088] = x11[0];
          p0[v23 + 28224] = x11[1];
          p0[v23 + 31360] = x11[2];
          p0[v23 + 34496] = x11[3];
          p0[v23 + 37632] = x11[4];
          p0[v23 + 40768] = x11[5];
          p0[v23 + 43904] = x11[6];
          p0[v23 + 47040] = x11[7];
          f32x8 x12 = acc2;
          p0[v23 + 1] = x12[0];
          p0[v23 + 3137] = x12[1];
          p0[v23 + 6273] = x12[2];
          p0[v23 + 9409] = x12[3];
          p0[v23 + 12545] = x12[4];
          p0[v23 + 15681] = x12[5];
          p0[v23 + 18817] = x12[6];
          p0[v23 + 21953] = x12[7];
          f32x8 x13 = acc3;
          p0[v23 + 25089] = x13[0];
          p0[v23 + 28225] = x13[1];
          p0[v23 + 31361] = x13[2];
          p0[v23 + 34497] = x13[3];
          p0[v23 + 37633] = x13[4];
          p0[v23 + 40769] = x13[5];
          p0[v23 + 43905] = x13[6];
          p0[v23 + 47041] = x13[7];
          f32x8 x14 = acc4;
          p0[v23 + 2] = x14[0];
          p0[v23 + 3138] = x14[1];
          p0[v23 + 6274] = x14[2];
          p0[v23 + 9410] = x14[3];
          p0[v23 + 12546] = x14[4];
          p0[v23 + 15682] = x14[5];
          p0[v23 + 18818] = x14[6];
          p0[v23 + 21954] = x14[7];
          f32x8 x15 = acc5;
          p0[v23 + 25090] = x15[0];
          p0[v23 + 28226] = x15[1];
          p0[v23 + 31362] = x15[2];
          p0[v23 + 34498] = x15[3];
          p0[v23 + 37634] = x15[4];
          p0[v23 + 40770] = x15[5];
          p0[v23 + 43906] = x15[6];
          p0[v23 + 47042] = x15[7];
          f32x8 x16 = acc6;
          p0[v23 + 3] = x16[0];
          p0[v23 + 3139] = x16[1];
          p0[v23 + 6275] = x16[2];
          p0[v23 + 9411] = x16[3];
          p0[v23 + 12547] = x16[4];
          p0[v23 + 15683] = x16[5];
          p0[v23 + 18819] = x16[6];
          p0[v23 + 21955] = x16[7];
          f32x8 x17 = acc7;
          p0[v23 + 25091] = x17[0];
          p0[v23 + 28227] = x17[1];
          p0[v23 + 31363] = x17[2];
          p0[v23 + 34499] = x17[3];
          p0[v23 + 37635] = x17[4];
          p0[v23 + 40771] = x17[5];
          p0[v23 + 43907] = x17[6];
          p0[v23 + 47043] = x17[7];
          f32x8 x18 = acc8;
          p0[v23 + 4] = x18[0];
          p0[v23 + 3140] = x18[1];
          p0[v23 + 6276] = x18[2];
          p0[v23 + 9412] = x18[3];
          p0[v23 + 12548] = x18[4];
          p0[v23 + 15684] = x18[5];
          p0[v23 + 18820] = x18[6];
          p0[v23 + 21956] = x18[7];
          f32x8 x19 = acc9;
          p0[v23 + 25092] = x19[0];
          p0[v23 + 28228] = x19[1];
          p0[v23 + 31364] = x19[2];
          p0[v23 + 34500] = x19[3];
          p0[v23 + 37636] = x19[4];
          p0[v23 + 40772] = x19[5];
          p0[v23 + 43908] = x19[6];
          p0[v23 + 47044] = x19[7];
          f32x8 x20 = acc10;
          p0[v23 + 5] = x20[0];
          p0[v23 + 3141] = x20[1];
          p0[v23 + 6277] = x20[2];
          p0[v23 + 9413] = x20[3];
          p0[v23 + 12549] = x20[4];
          p0[v23 + 15685] = x20[5];
          p0[v23 + 18821] = x20[6];
          p0[v23 + 21957] = x20[7];
          f32x8 x21 = acc11;
          p0[v23 + 25093] = x21[0];
          p0[v23 + 28229] = x21[1];
          p0[v23 + 31365] = x21[2];
          p0[v23 + 34501] = x21[3];
          p0[v23 + 37637] = x21[4];
          p0[v23 + 40773] = x21[5];
          p0[v23 + 43909] = x21[6];
          p0[v23 + 47045] = x21[7];
        }
        acc12 = 0.0f - (f32x8){};
        acc13 = 0.0f - (f32x8){};
        acc14 = 0.0f - (f32x8){};
        acc15 = 0.0f - (f32x8){};
        for (int64_t i17 = 0; i17 < 64; i17++) {  // Reduce
          int64_t v36 = i17 * 640;
          int64_t v37 = i17 * 144 + v19;
          for (int64_t i18 = 0; i18 < 3; i18++) {  // Reduce
            int64_t v38 = i18 * 64 + v36 + v21;
            int64_t v39 = v37 + i18 * 48;
            for (int64_t i19 = 0; i19 < 3; i19++) {  // Reduce
              int64_t v40 = v38 + i19;
              float x22 = s0[v40 + 54];
              f32x8 v41 = x22 - (f32x8){};
              int64_t v42 = v39 + i19 * 16;
              f32x8 x23 = *(f32x8u *)(s1 + v42);
              __asm__("" : "+x"(x23));
              acc12 = fma_f32x8(v41, x23, acc12);
              f32x8 x24 = *(f32x8u *)(s1 + v42 + 8);
              __asm__("" : "+x"(x24));
              acc13 = fma_f32x8(v41, x24, acc13);
              float x25 = s0[v40 + 55];
              f32x8 v43 = x25 - (f32x8){};
              acc14 = fma_f32x8(v43, x23, acc14);
              acc15 = fma_f32x8(v43, x24, acc15);
            }
          }
        }
        f32x8 x26 = acc12;
        p0[v20 + 54] = x26[0];
        p0[v20 + 3190] = x26[1];
        p0[v20 + 6326] = x26[2];
        p0[v20 + 9462] = x26[3];
        p0[v20 + 12598] = x26[4];
        p0[v20 + 15734] = x26[5];
        p0[v20 + 18870] = x26[6];
        p0[v20 + 22006] = x26[7];
        f32x8 x27 = acc13;
        p0[v20 + 25142] = x27[0];
        p0[v20 + 28278] = x27[1];
        p0[v20 + 31414] = x27[2];
        p0[v20 + 34550] = x27[3];
        p0[v20 + 37686] = x27[4];
        p0[v20 + 40822] = x27[5];
        p0[v20 + 43958] = x27[6];
        p0[v20 + 47094] = x27[7];
        f32x8 x28 = acc14;
        p0[v20 + 55] = x28[0];
        p0[v20 + 3191] = x28[1];
        p0[v20 + 6327] = x28[2];
        p0[v20 + 9463] = x28[3];
        p0[v20 + 12599] = x28[4];
        p0[v20 + 15735] = x28[5];
        p0[v20 + 18871] = x28[6];
        p0[v20 + 22007] = x28[7];
        f32x8 x29 = acc15;
        p0[v20 + 25143] = x29[0];
        p0[v20 + 28279] = x29[1];
        p0[v20 + 31415] = x29[2];
        p0[v20 + 34551] = x29[3];
        p0[v20 + 37687] = x29[4];
        p0[v20 + 40823] = x29[5];
        p0[v20 + 43959] = x29[6];
        p0[v20 + 47095] = x29[7];
      }
    }
  }
}
