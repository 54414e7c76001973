// AVX-512: one register each.
struct F {
    __m512 v;
};
struct D {
    __m512d v;
};
struct FMask {
    __mmask16 m;
};
struct DMask {
    __mmask8 m;
};

template <class V> inline V all(double x);
template <> inline F all<F>(double x) { return {_mm512_set1_ps((float)x)}; }
template <> inline D all<D>(double x) { return {_mm512_set1_pd(x)}; }
inline F all(float x) { return {_mm512_set1_ps(x)}; }
inline D all(double x) { return {_mm512_set1_pd(x)}; }
inline F load(const float *p) { return {_mm512_loadu_ps(p)}; }
inline D load(const double *p) { return {_mm512_loadu_pd(p)}; }
inline void store(float *p, F a) { _mm512_storeu_ps(p, a.v); }
inline void store(double *p, D a) { _mm512_storeu_pd(p, a.v); }

inline F operator+(F a, F b) { return {_mm512_add_ps(a.v, b.v)}; }
inline F operator-(F a, F b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline F operator*(F a, F b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline F operator/(F a, F b) { return {_mm512_div_ps(a.v, b.v)}; }
inline D operator+(D a, D b) { return {_mm512_add_pd(a.v, b.v)}; }
inline D operator-(D a, D b) { return {_mm512_sub_pd(a.v, b.v)}; }
inline D operator*(D a, D b) { return {_mm512_mul_pd(a.v, b.v)}; }
inline D operator/(D a, D b) { return {_mm512_div_pd(a.v, b.v)}; }
inline F fma(F a, F b, F c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline D fma(D a, D b, D c) { return {_mm512_fmadd_pd(a.v, b.v, c.v)}; }
/// c − a·b.
inline F fnma(F a, F b, F c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }
inline D fnma(D a, D b, D c) { return {_mm512_fnmadd_pd(a.v, b.v, c.v)}; }
inline F root(F a) { return {_mm512_sqrt_ps(a.v)}; }
inline D root(D a) { return {_mm512_sqrt_pd(a.v)}; }
inline F larger(F a, F b) { return {_mm512_max_ps(a.v, b.v)}; }
inline D larger(D a, D b) { return {_mm512_max_pd(a.v, b.v)}; }
inline F smaller(F a, F b) { return {_mm512_min_ps(a.v, b.v)}; }
inline D smaller(D a, D b) { return {_mm512_min_pd(a.v, b.v)}; }
inline F size(F a) { return {_mm512_abs_ps(a.v)}; }
inline D size(D a) { return {_mm512_abs_pd(a.v)}; }

inline FMask operator<(F a, F b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
inline DMask operator<(D a, D b) { return {_mm512_cmp_pd_mask(a.v, b.v, _CMP_LT_OQ)}; }
inline FMask operator<=(F a, F b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LE_OQ)}; }
inline DMask operator<=(D a, D b) { return {_mm512_cmp_pd_mask(a.v, b.v, _CMP_LE_OQ)}; }
inline FMask operator&(FMask a, FMask b) { return {(__mmask16)(a.m & b.m)}; }
inline DMask operator&(DMask a, DMask b) { return {(__mmask8)(a.m & b.m)}; }
inline FMask operator|(FMask a, FMask b) { return {(__mmask16)(a.m | b.m)}; }
inline DMask operator|(DMask a, DMask b) { return {(__mmask8)(a.m | b.m)}; }
inline FMask operator!(FMask a) { return {(__mmask16)~a.m}; }
inline DMask operator!(DMask a) { return {(__mmask8)~a.m}; }
inline bool any(FMask a) { return a.m != 0; }
inline bool any(DMask a) { return a.m != 0; }
inline F select(FMask m, F yes, F no) { return {_mm512_mask_blend_ps(m.m, no.v, yes.v)}; }
inline D select(DMask m, D yes, D no) { return {_mm512_mask_blend_pd(m.m, no.v, yes.v)}; }

/// 2ⁿ for whole n from -126 to 127 (single), -1022 to 1023 (double).
inline F two_to(F n) {
    __m512i bits = _mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(bits, 23))};
}
// 2⁵² + 2⁵¹ + n has n in the low bits of its mantissa.
inline D two_to(D n) {
    __m512i bits = _mm512_castpd_si512(_mm512_add_pd(n.v, _mm512_set1_pd(6755399441055744.0 + 1023)));
    return {_mm512_castsi512_pd(_mm512_slli_epi64(bits, 52))};
}
/// The bits of each lane as whole numbers, shifted right by those of the mantissa: exponent and sign.
inline D exponent(D a) {
    __m512i bits = _mm512_srli_epi64(_mm512_castpd_si512(a.v), 52);
    // 2⁵² + small is small in the mantissa.
    bits = _mm512_or_si512(bits, _mm512_castpd_si512(_mm512_set1_pd(4503599627370496.0)));
    return {_mm512_sub_pd(_mm512_castsi512_pd(bits), _mm512_set1_pd(4503599627370496.0 + 1023))};
}
/// The mantissa of each positive lane, in [1, 2).
inline D mantissa(D a) {
    __m512i bits = _mm512_and_si512(_mm512_castpd_si512(a.v), _mm512_set1_epi64(0x000fffffffffffffLL));
    return {_mm512_castsi512_pd(_mm512_or_si512(bits, _mm512_castpd_si512(_mm512_set1_pd(1.0))))};
}

/// The lower and the upper eight lanes.
inline D low(F a) { return {_mm512_cvtps_pd(_mm512_castps512_ps256(a.v))}; }
inline D high(F a) { return {_mm512_cvtps_pd(_mm512_extractf32x8_ps(a.v, 1))}; }
inline F narrow(D low, D high) {
    __m512 a = _mm512_castps256_ps512(_mm512_cvtpd_ps(low.v));
    return {_mm512_insertf32x8(a, _mm512_cvtpd_ps(high.v), 1)};
}

/// Lane j of number i and lane i of number j change places.
inline void turn(F (&a)[16]) {
    __m512 b[16], c[16];
    for (int i = 0; i < 16; i += 2) {
        b[i] = _mm512_unpacklo_ps(a[i].v, a[i + 1].v);
        b[i + 1] = _mm512_unpackhi_ps(a[i].v, a[i + 1].v);
    }
    for (int i = 0; i < 16; i += 4)
        for (int j = 0; j < 2; j++) {
            __m512d first = _mm512_castps_pd(b[i + j]), second = _mm512_castps_pd(b[i + 2 + j]);
            c[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(first, second));
            c[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(first, second));
        }
    for (int i = 0; i < 4; i++) { // c[4k + i] has the columns i, 4 + i, 8 + i, 12 + i of the rows 4k to 4k + 3
        __m512 even = _mm512_shuffle_f32x4(c[i], c[4 + i], 0x88), odd = _mm512_shuffle_f32x4(c[i], c[4 + i], 0xdd);
        __m512 later_even = _mm512_shuffle_f32x4(c[8 + i], c[12 + i], 0x88), later_odd = _mm512_shuffle_f32x4(c[8 + i], c[12 + i], 0xdd);
        a[i].v = _mm512_shuffle_f32x4(even, later_even, 0x88);
        a[4 + i].v = _mm512_shuffle_f32x4(odd, later_odd, 0x88);
        a[8 + i].v = _mm512_shuffle_f32x4(even, later_even, 0xdd);
        a[12 + i].v = _mm512_shuffle_f32x4(odd, later_odd, 0xdd);
    }
}
inline void turn(D (&a)[8]) {
    __m512d b[8];
    for (int i = 0; i < 8; i += 2) {
        b[i] = _mm512_unpacklo_pd(a[i].v, a[i + 1].v);
        b[i + 1] = _mm512_unpackhi_pd(a[i].v, a[i + 1].v);
    }
    for (int i = 0; i < 2; i++) { // b[2k + i] has the columns i, 2 + i, 4 + i, 6 + i of the rows 2k and 2k + 1
        __m512d even = _mm512_shuffle_f64x2(b[i], b[2 + i], 0x88), odd = _mm512_shuffle_f64x2(b[i], b[2 + i], 0xdd);
        __m512d later_even = _mm512_shuffle_f64x2(b[4 + i], b[6 + i], 0x88), later_odd = _mm512_shuffle_f64x2(b[4 + i], b[6 + i], 0xdd);
        a[i].v = _mm512_shuffle_f64x2(even, later_even, 0x88);
        a[2 + i].v = _mm512_shuffle_f64x2(odd, later_odd, 0x88);
        a[4 + i].v = _mm512_shuffle_f64x2(even, later_even, 0xdd);
        a[6 + i].v = _mm512_shuffle_f64x2(odd, later_odd, 0xdd);
    }
}

struct Bits {
    __m512i v;
};
inline Bits every_bit() { return {_mm512_set1_epi64(-1)}; }
inline void store(uint64_t *p, Bits a) { _mm512_storeu_si512(p, a.v); }
inline Bits kept(Bits a, DMask m, uint64_t those) {
    return {_mm512_mask_and_epi64(a.v, m.m, a.v, _mm512_set1_epi64((int64_t)those))};
}
