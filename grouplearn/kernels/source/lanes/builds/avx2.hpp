// AVX2 and FMA: two registers each.
struct F {
    __m256 a, b;
};
struct D {
    __m256d a, b;
};
struct FMask {
    __m256 a, b;
};
struct DMask {
    __m256d a, b;
};

template <class V> inline V all(double x);
inline F all(float x) {
    __m256 v = _mm256_set1_ps(x);
    return {v, v};
}
inline D all(double x) {
    __m256d v = _mm256_set1_pd(x);
    return {v, v};
}
template <> inline F all<F>(double x) { return all((float)x); }
template <> inline D all<D>(double x) { return all(x); }
inline F load(const float *p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline D load(const double *p) { return {_mm256_loadu_pd(p), _mm256_loadu_pd(p + 4)}; }
inline void store(float *p, F x) {
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}
inline void store(double *p, D x) {
    _mm256_storeu_pd(p, x.a);
    _mm256_storeu_pd(p + 4, x.b);
}

#define GROUPLEARN_BOTH(name, single, dual)                                                                               \
    inline F name(F x, F y) { return {single(x.a, y.a), single(x.b, y.b)}; }                                              \
    inline D name(D x, D y) { return {dual(x.a, y.a), dual(x.b, y.b)}; }
GROUPLEARN_BOTH(operator+, _mm256_add_ps, _mm256_add_pd)
GROUPLEARN_BOTH(operator-, _mm256_sub_ps, _mm256_sub_pd)
GROUPLEARN_BOTH(operator*, _mm256_mul_ps, _mm256_mul_pd)
GROUPLEARN_BOTH(operator/, _mm256_div_ps, _mm256_div_pd)
GROUPLEARN_BOTH(larger, _mm256_max_ps, _mm256_max_pd)
GROUPLEARN_BOTH(smaller, _mm256_min_ps, _mm256_min_pd)
#undef GROUPLEARN_BOTH
inline F fma(F x, F y, F z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
inline D fma(D x, D y, D z) { return {_mm256_fmadd_pd(x.a, y.a, z.a), _mm256_fmadd_pd(x.b, y.b, z.b)}; }
/// z − x·y.
inline F fnma(F x, F y, F z) { return {_mm256_fnmadd_ps(x.a, y.a, z.a), _mm256_fnmadd_ps(x.b, y.b, z.b)}; }
inline D fnma(D x, D y, D z) { return {_mm256_fnmadd_pd(x.a, y.a, z.a), _mm256_fnmadd_pd(x.b, y.b, z.b)}; }
inline F root(F x) { return {_mm256_sqrt_ps(x.a), _mm256_sqrt_ps(x.b)}; }
inline D root(D x) { return {_mm256_sqrt_pd(x.a), _mm256_sqrt_pd(x.b)}; }
inline F size(F x) {
    __m256 sign = _mm256_set1_ps(-0.0f);
    return {_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
}
inline D size(D x) {
    __m256d sign = _mm256_set1_pd(-0.0);
    return {_mm256_andnot_pd(sign, x.a), _mm256_andnot_pd(sign, x.b)};
}

inline FMask operator<(F x, F y) { return {_mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ)}; }
inline DMask operator<(D x, D y) { return {_mm256_cmp_pd(x.a, y.a, _CMP_LT_OQ), _mm256_cmp_pd(x.b, y.b, _CMP_LT_OQ)}; }
inline FMask operator<=(F x, F y) { return {_mm256_cmp_ps(x.a, y.a, _CMP_LE_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LE_OQ)}; }
inline DMask operator<=(D x, D y) { return {_mm256_cmp_pd(x.a, y.a, _CMP_LE_OQ), _mm256_cmp_pd(x.b, y.b, _CMP_LE_OQ)}; }
inline FMask operator&(FMask x, FMask y) { return {_mm256_and_ps(x.a, y.a), _mm256_and_ps(x.b, y.b)}; }
inline DMask operator&(DMask x, DMask y) { return {_mm256_and_pd(x.a, y.a), _mm256_and_pd(x.b, y.b)}; }
inline FMask operator|(FMask x, FMask y) { return {_mm256_or_ps(x.a, y.a), _mm256_or_ps(x.b, y.b)}; }
inline DMask operator|(DMask x, DMask y) { return {_mm256_or_pd(x.a, y.a), _mm256_or_pd(x.b, y.b)}; }
inline FMask operator!(FMask x) {
    __m256 ones = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
    return {_mm256_xor_ps(x.a, ones), _mm256_xor_ps(x.b, ones)};
}
inline DMask operator!(DMask x) {
    __m256d ones = _mm256_castsi256_pd(_mm256_set1_epi32(-1));
    return {_mm256_xor_pd(x.a, ones), _mm256_xor_pd(x.b, ones)};
}
inline bool any(FMask x) { return _mm256_movemask_ps(_mm256_or_ps(x.a, x.b)) != 0; }
inline bool any(DMask x) { return _mm256_movemask_pd(_mm256_or_pd(x.a, x.b)) != 0; }
inline F select(FMask m, F yes, F no) { return {_mm256_blendv_ps(no.a, yes.a, m.a), _mm256_blendv_ps(no.b, yes.b, m.b)}; }
inline D select(DMask m, D yes, D no) { return {_mm256_blendv_pd(no.a, yes.a, m.a), _mm256_blendv_pd(no.b, yes.b, m.b)}; }

/// 2ⁿ for whole n from -126 to 127 (single), -1022 to 1023 (double).
inline __m256 two_to_half(__m256 n) {
    __m256i bits = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 23));
}
// 2⁵² + 2⁵¹ + n has n in the low bits of its mantissa.
inline __m256d two_to_half(__m256d n) {
    __m256i bits = _mm256_castpd_si256(_mm256_add_pd(n, _mm256_set1_pd(6755399441055744.0 + 1023)));
    return _mm256_castsi256_pd(_mm256_slli_epi64(bits, 52));
}
inline F two_to(F n) { return {two_to_half(n.a), two_to_half(n.b)}; }
inline D two_to(D n) { return {two_to_half(n.a), two_to_half(n.b)}; }
/// The bits of each lane as whole numbers, shifted right by those of the mantissa: exponent and sign.
inline __m256d exponent_half(__m256d a) {
    __m256i bits = _mm256_srli_epi64(_mm256_castpd_si256(a), 52);
    // 2⁵² + small is small in the mantissa.
    bits = _mm256_or_si256(bits, _mm256_castpd_si256(_mm256_set1_pd(4503599627370496.0)));
    return _mm256_sub_pd(_mm256_castsi256_pd(bits), _mm256_set1_pd(4503599627370496.0 + 1023));
}
inline D exponent(D x) { return {exponent_half(x.a), exponent_half(x.b)}; }
/// The mantissa of each positive lane, in [1, 2).
inline __m256d mantissa_half(__m256d a) {
    __m256d bits = _mm256_and_pd(a, _mm256_castsi256_pd(_mm256_set1_epi64x(0x000fffffffffffffLL)));
    return _mm256_or_pd(bits, _mm256_set1_pd(1.0));
}
inline D mantissa(D x) { return {mantissa_half(x.a), mantissa_half(x.b)}; }

/// The lower and the upper eight lanes.
inline D widened(__m256 x) { return {_mm256_cvtps_pd(_mm256_castps256_ps128(x)), _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1))}; }
inline D low(F x) { return widened(x.a); }
inline D high(F x) { return widened(x.b); }
inline __m256 narrowed(D x) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm256_cvtpd_ps(x.a)), _mm256_cvtpd_ps(x.b), 1);
}
inline F narrow(D low, D high) { return {narrowed(low), narrowed(high)}; }

/// Lane j of number i and lane i of number j change places.
inline void turn_block(__m256 (&a)[8]) {
    __m256 b[8];
    for (int i = 0; i < 8; i += 2) {
        b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
    }
    for (int i = 0; i < 4; i++) { // columns i and 4 + i of the first and of the last four rows
        int at = i / 2;
        int which = i % 2;
        __m256 first = which ? _mm256_shuffle_ps(b[at], b[at + 2], 0xee) : _mm256_shuffle_ps(b[at], b[at + 2], 0x44);
        __m256 last = which ? _mm256_shuffle_ps(b[at + 4], b[at + 6], 0xee) : _mm256_shuffle_ps(b[at + 4], b[at + 6], 0x44);
        a[i] = _mm256_permute2f128_ps(first, last, 0x20);
        a[i + 4] = _mm256_permute2f128_ps(first, last, 0x31);
    }
}
inline void turn_block(__m256d (&a)[4]) {
    __m256d b[4];
    for (int i = 0; i < 4; i += 2) {
        b[i] = _mm256_unpacklo_pd(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_pd(a[i], a[i + 1]);
    }
    for (int i = 0; i < 2; i++) {
        a[i] = _mm256_permute2f128_pd(b[i], b[i + 2], 0x20);
        a[i + 2] = _mm256_permute2f128_pd(b[i], b[i + 2], 0x31);
    }
}
template <class V, class Half, int half> inline void turn_blocks(V (&a)[2 * half]) {
    Half corner[half];
    for (int i = 0; i < half; i++) corner[i] = a[i].a;
    turn_block(corner);
    for (int i = 0; i < half; i++) a[i].a = corner[i];
    for (int i = 0; i < half; i++) corner[i] = a[half + i].b;
    turn_block(corner);
    for (int i = 0; i < half; i++) a[half + i].b = corner[i];
    Half other[half];
    for (int i = 0; i < half; i++) corner[i] = a[i].b, other[i] = a[half + i].a;
    turn_block(corner);
    turn_block(other);
    for (int i = 0; i < half; i++) a[half + i].a = corner[i], a[i].b = other[i];
}
inline void turn(F (&a)[16]) { turn_blocks<F, __m256, 8>(a); }
inline void turn(D (&a)[8]) { turn_blocks<D, __m256d, 4>(a); }

struct Bits {
    __m256i a, b;
};
inline Bits every_bit() { return {_mm256_set1_epi64x(-1), _mm256_set1_epi64x(-1)}; }
inline void store(uint64_t *p, Bits x) {
    _mm256_storeu_si256((__m256i *)p, x.a);
    _mm256_storeu_si256((__m256i *)(p + 4), x.b);
}
inline Bits kept(Bits x, DMask m, uint64_t those) {
    __m256i others = _mm256_set1_epi64x((int64_t)~those);
    return {_mm256_andnot_si256(_mm256_and_si256(_mm256_castpd_si256(m.a), others), x.a),
            _mm256_andnot_si256(_mm256_and_si256(_mm256_castpd_si256(m.b), others), x.b)};
}
