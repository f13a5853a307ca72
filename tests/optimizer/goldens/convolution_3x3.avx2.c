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
  for (int64_t i9 = 0; i9 < 4; i9++) {  // Loop
    int64_t v0 = i9 * 9216;
    for (int64_t i10 = 0; i10 < 64; i10++) {  // Loop
      int64_t v1 = i10 * 144 + v0;
      int64_t v2 = i10 * 9;
      for (int64_t i11 = 0; i11 < 3; i11++) {  // Loop
        int64_t v3 = v1 + i11 * 48;
        int64_t v4 = i11 * 3;
        for (int64_t i12 = 0; i12 < 3; i12++) {  // Loop
          int64_t v5 = v3 + i12 * 16;
          for (int64_t i13 = 0; i13 < 16; i13++) {  // Loop
            s1[v5 + i13] = p2[i13 * 576 + v0 + v2 + v4 + i12];
          }
        }
      }
    }
  }
  for (int64_t i0 = lo; i0 < hi; i0++) {  // Thread
    int64_t v6 = i0 * 200704;
    for (int64_t i1 = 0; i1 < 7; i1++) {  // Loop
      int64_t v7 = i1 * 448;
      int64_t v8 = i1 * 8;
      for (int64_t i14 = 0; i14 < 64; i14++) {  // Loop
        int64_t v9 = i14 * 640;
        int64_t v10 = i14 * 3136 + v6 + v7;
        for (int64_t i15 = 0; i15 < 10; i15++) {  // Loop
          int64_t v11 = i15 * 64 + v9;
          int64_t v12 = v10 + i15 * 56;
          int64_t v13 = i15 + v8;
          _Bool v14 = (v13 >= 1) & (v13 < 57);
          i32x8 v15 = (int32_t)-v14 + (i32x8){};
          for (int64_t i16 = 0; i16 < 8; i16++) {  // Loop
            int64_t v16 = i16 * 8;
            i32x8 v17 = (i32x8){0, 1, 2, 3, 4, 5, 6, 7} + ((int32_t)v16 + (i32x8){});
            f32x8 x0 = masked_load_f32x8(p1 + (v12 + v16 + -57), (i32x8)(v17 < 57) & ((i32x8)(v17 >= 1) & ((int32_t)-v14 + (i32x8){})));
            *(f32x8u *)(s0 + v11 + v16) = x0;
          }
        }
      }
      for (int64_t i3 = 0; i3 < 4; i3++) {  // Loop
        int64_t v18 = i3 * 50176 + v6 + v7;
        int64_t v19 = i3 * 9216;
        for (int64_t i4 = 0; i4 < 8; i4++) {  // Loop
          int64_t v20 = v18 + i4 * 56;
          int64_t v21 = i4 * 64;
          for (int64_t i5 = 0; i5 < 14; i5++) {  // Loop
            int64_t v22 = i5 * 4;
            int64_t v23 = v20 + v22;
            acc0 = 0.0f - (f32x8){};
            acc1 = 0.0f - (f32x8){};
            acc2 = 0.0f - (f32x8){};
            acc3 = 0.0f - (f32x8){};
            acc4 = 0.0f - (f32x8){};
            acc5 = 0.0f - (f32x8){};
            acc6 = 0.0f - (f32x8){};
            acc7 = 0.0f - (f32x8){};
            for (int64_t i6 = 0; i6 < 64; i6++) {  // Reduce
              int64_t v24 = i6 * 640;
              int64_t v25 = i6 * 144 + v19;
              for (int64_t i7 = 0; i7 < 3; i7++) {  // Reduce
                int64_t v26 = i7 * 64 + v24 + v21 + v22;
                int64_t v27 = v25 + i7 * 48;
                for (int64_t i8 = 0; i8 < 3; i8++) {  // Reduce
                  int64_t v28 = v26 + i8;
                  float x1 = s0[v28];
                  f32x8 v29 = x1 - (f32x8){};
                  int64_t v30 = v27 + i8 * 16;
                  f32x8 x2 = *(f32x8u *)(s1 + v30);
                  __asm__("" : "+x"(x2));
                  acc0 = fma_f32x8(v29, x2, acc0);
                  f32x8 x3 = *(f32x8u *)(s1 + v30 + 8);
                  __asm__("" : "+x"(x3));
                  acc1 = fma_f32x8(v29, x3, acc1);
                  float x4 = s0[v28 + 1];
                  f32x8 v31 = x4 - (f32x8){};
                  acc2 = fma_f32x8(v31, x2, acc2);
                  acc3 = fma_f32x8(v31, x3, acc3);
                  float x5 = s0[v28 + 2];
                  f32x8 v32 = x5 - (f32x8){};
                  acc4 = fma_f32x8(v32, x2, acc4);
                  acc5 = fma_f32x8(v32, x3, acc5);
                  float x6 = s0[v28 + 3];
                  f32x8 v33 = x6 - (f32x8){};
                  acc6 = fma_f32x8(v33, x2, acc6);
                  acc7 = fma_f32x8(v33, x3, acc7);
                }
              }
            }
            f32x8 x7 = acc0;
            p0[v23] = x7[0];
            p0[v23 + 3136] = x7[1];
            p0[v23 + 6272] = x7[2];
            p0[v23 + 9408] = x7[3];
            p0[v23 + 12544] = x7[4];
            p0[v23 + 15680] = x7[5];
            p0[v23 + 18816] = x7[6];
            p0[v23 + 21952] = x7[7];
            f32x8 x8 = acc1;
            p0[v23 + 25088] = x8[0];
            p0[v23 + 28224] = x8[1];
            p0[v23 + 31360] = x8[2];
            p0[v23 + 34496] = x8[3];
            p0[v23 + 37632] = x8[4];
            p0[v23 + 40768] = x8[5];
            p0[v23 + 43904] = x8[6];
            p0[v23 + 47040] = x8[7];
            f32x8 x9 = acc2;
            p0[v23 + 1] = x9[0];
            p0[v23 + 3137] = x9[1];
            p0[v23 + 6273] = x9[2];
            p0[v23 + 9409] = x9[3];
            p0[v23 + 12545] = x9[4];
            p0[v23 + 15681] = x9[5];
            p0[v23 + 18817] = x9[6];
            p0[v23 + 21953] = x9[7];
            f32x8 x10 = acc3;
            p0[v23 + 25089] = x10[0];
            p0[v23 + 28225] = x10[1];
            p0[v23 + 31361] = x10[2];
            p0[v23 + 34497] = x10[3];
            p0[v23 + 37633] = x10[4];
            p0[v23 + 40769] = x10[5];
            p0[v23 + 43905] = x10[6];
            p0[v23 + 47041] = x10[7];
            f32x8 x11 = acc4;
            p0[v23 + 2] = x11[0];
            p0[v23 + 3138] = x11[1];
            p0[v23 + 6274] = x11[2];
            p0[v23 + 9410] = x11[3];
            p0[v23 + 12546] = x11[4];
            p0[v23 + 15682] = x11[5];
            p0[v23 + 18818] = x11[6];
            p0[v23 + 21954] = x11[7];
            f32x8 x12 = acc5;
            p0[v23 + 25090] = x12[0];
            p0[v23 + 28226] = x12[1];
            p0[v23 + 31362] = x12[2];
            p0[v23 + 34498] = x12[3];
            p0[v23 + 37634] = x12[4];
            p0[v23 + 40770] = x12[5];
            p0[v23 + 43906] = x12[6];
            p0[v23 + 47042] = x12[7];
            f32x8 x13 = acc6;
            p0[v23 + 3] = x13[0];
            p0[v23 + 3139] = x13[1];
            p0[v23 + 6275] = x13[2];
            p0[v23 + 9411] = x13[3];
            p0[v23 + 12547] = x13[4];
            p0[v23 + 15683] = x13[5];
            p0[v23 + 18819] = x13[6];
            p0[v23 + 21955] = x13[7];
            f32x8 x14 = acc7;
            p0[v23 + 25091] = x14[0];
            p0[v23 + 28227] = x14[1];
            p0[v23 + 31363] = x14[2];
            p0[v23 + 34499] = x14[3];
            p0[v23 + 37635] = x14[4];
            p0[v23 + 40771] = x14[5];
            p0[v23 + 43907] = x14[6];
            p0[v23 + 47043] = x14[7];
          }
        }
      }
    }
  }
}
