// ARM's NEON (aarch64): four registers each.
struct F {
    float32x4_t v[4];
};
struct D {
    float64x2_t v[4];
};
struct FMask {
    uint32x4_t v[4];
};
struct DMask {
    uint64x2_t v[4];
};

#define GROUPLEARN_QUARTERS(result, expression)                                                                           \
    result r;                                                                                                             \
    for (int i = 0; i < 4; i++) r.v[i] = expression;                                                                      \
    return r

template <class V> inline V all(double x);
inline F all(float x) { GROUPLEARN_QUARTERS(F, vdupq_n_f32(x)); }
inline D all(double x) { GROUPLEARN_QUARTERS(D, vdupq_n_f64(x)); }
template <> inline F all<F>(double x) { return all((float)x); }
template <> inline D all<D>(double x) { return all(x); }
inline F load(const float *p) { GROUPLEARN_QUARTERS(F, vld1q_f32(p + 4 * i)); }
inline D load(const double *p) { GROUPLEARN_QUARTERS(D, vld1q_f64(p + 2 * i)); }
inline void store(float *p, F a) {
    for (int i = 0; i < 4; i++) vst1q_f32(p + 4 * i, a.v[i]);
}
inline void store(double *p, D a) {
    for (int i = 0; i < 4; i++) vst1q_f64(p + 2 * i, a.v[i]);
}

#define GROUPLEARN_BOTH(name, single, dual)                                                                               \
    inline F name(F a, F b) { GROUPLEARN_QUARTERS(F, single); }                                                           \
    inline D name(D a, D b) { GROUPLEARN_QUARTERS(D, dual); }
GROUPLEARN_BOTH(operator+, vaddq_f32(a.v[i], b.v[i]), vaddq_f64(a.v[i], b.v[i]))
GROUPLEARN_BOTH(operator-, vsubq_f32(a.v[i], b.v[i]), vsubq_f64(a.v[i], b.v[i]))
GROUPLEARN_BOTH(operator*, vmulq_f32(a.v[i], b.v[i]), vmulq_f64(a.v[i], b.v[i]))
GROUPLEARN_BOTH(operator/, vdivq_f32(a.v[i], b.v[i]), vdivq_f64(a.v[i], b.v[i]))
// NEON's own larger and smaller would keep what is no number.
GROUPLEARN_BOTH(larger, vbslq_f32(vcgtq_f32(a.v[i], b.v[i]), a.v[i], b.v[i]), vbslq_f64(vcgtq_f64(a.v[i], b.v[i]), a.v[i], b.v[i]))
GROUPLEARN_BOTH(smaller, vbslq_f32(vcltq_f32(a.v[i], b.v[i]), a.v[i], b.v[i]), vbslq_f64(vcltq_f64(a.v[i], b.v[i]), a.v[i], b.v[i]))
#undef GROUPLEARN_BOTH
inline F fma(F a, F b, F c) { GROUPLEARN_QUARTERS(F, vfmaq_f32(c.v[i], a.v[i], b.v[i])); }
inline D fma(D a, D b, D c) { GROUPLEARN_QUARTERS(D, vfmaq_f64(c.v[i], a.v[i], b.v[i])); }
/// c − a·b.
inline F fnma(F a, F b, F c) { GROUPLEARN_QUARTERS(F, vfmsq_f32(c.v[i], a.v[i], b.v[i])); }
inline D fnma(D a, D b, D c) { GROUPLEARN_QUARTERS(D, vfmsq_f64(c.v[i], a.v[i], b.v[i])); }
inline F root(F a) { GROUPLEARN_QUARTERS(F, vsqrtq_f32(a.v[i])); }
inline D root(D a) { GROUPLEARN_QUARTERS(D, vsqrtq_f64(a.v[i])); }
inline F size(F a) { GROUPLEARN_QUARTERS(F, vabsq_f32(a.v[i])); }
inline D size(D a) { GROUPLEARN_QUARTERS(D, vabsq_f64(a.v[i])); }

inline FMask operator<(F a, F b) { GROUPLEARN_QUARTERS(FMask, vcltq_f32(a.v[i], b.v[i])); }
inline DMask operator<(D a, D b) { GROUPLEARN_QUARTERS(DMask, vcltq_f64(a.v[i], b.v[i])); }
inline FMask operator<=(F a, F b) { GROUPLEARN_QUARTERS(FMask, vcleq_f32(a.v[i], b.v[i])); }
inline DMask operator<=(D a, D b) { GROUPLEARN_QUARTERS(DMask, vcleq_f64(a.v[i], b.v[i])); }
inline FMask operator&(FMask a, FMask b) { GROUPLEARN_QUARTERS(FMask, vandq_u32(a.v[i], b.v[i])); }
inline DMask operator&(DMask a, DMask b) { GROUPLEARN_QUARTERS(DMask, vandq_u64(a.v[i], b.v[i])); }
inline FMask operator|(FMask a, FMask b) { GROUPLEARN_QUARTERS(FMask, vorrq_u32(a.v[i], b.v[i])); }
inline DMask operator|(DMask a, DMask b) { GROUPLEARN_QUARTERS(DMask, vorrq_u64(a.v[i], b.v[i])); }
inline FMask operator!(FMask a) { GROUPLEARN_QUARTERS(FMask, vmvnq_u32(a.v[i])); }
inline DMask operator!(DMask a) { GROUPLEARN_QUARTERS(DMask, vreinterpretq_u64_u32(vmvnq_u32(vreinterpretq_u32_u64(a.v[i])))); }
inline bool any(FMask a) {
    uint32x4_t met = vorrq_u32(vorrq_u32(a.v[0], a.v[1]), vorrq_u32(a.v[2], a.v[3]));
    return vmaxvq_u32(met) != 0;
}
inline bool any(DMask a) {
    uint64x2_t met = vorrq_u64(vorrq_u64(a.v[0], a.v[1]), vorrq_u64(a.v[2], a.v[3]));
    return (vgetq_lane_u64(met, 0) | vgetq_lane_u64(met, 1)) != 0;
}
inline F select(FMask m, F yes, F no) { GROUPLEARN_QUARTERS(F, vbslq_f32(m.v[i], yes.v[i], no.v[i])); }
inline D select(DMask m, D yes, D no) { GROUPLEARN_QUARTERS(D, vbslq_f64(m.v[i], yes.v[i], no.v[i])); }

/// 2ⁿ for whole n from -126 to 127 (single), -1022 to 1023 (double).
inline float32x4_t two_to_quarter(float32x4_t n) {
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127)), 23));
}
// 2⁵² + 2⁵¹ + n has n in the low bits of its mantissa.
inline float64x2_t two_to_quarter(float64x2_t n) {
    uint64x2_t bits = vreinterpretq_u64_f64(vaddq_f64(n, vdupq_n_f64(6755399441055744.0 + 1023)));
    return vreinterpretq_f64_u64(vshlq_n_u64(bits, 52));
}
inline F two_to(F n) { GROUPLEARN_QUARTERS(F, two_to_quarter(n.v[i])); }
inline D two_to(D n) { GROUPLEARN_QUARTERS(D, two_to_quarter(n.v[i])); }
/// The bits of each lane as whole numbers, shifted right by those of the mantissa: exponent and sign.
inline float64x2_t exponent_quarter(float64x2_t a) {
    uint64x2_t bits = vshrq_n_u64(vreinterpretq_u64_f64(a), 52);
    return vsubq_f64(vcvtq_f64_u64(bits), vdupq_n_f64(1023));
}
inline D exponent(D a) { GROUPLEARN_QUARTERS(D, exponent_quarter(a.v[i])); }
/// The mantissa of each positive lane, in [1, 2).
inline float64x2_t mantissa_quarter(float64x2_t a) {
    uint64x2_t bits = vandq_u64(vreinterpretq_u64_f64(a), vdupq_n_u64(0x000fffffffffffffULL));
    return vreinterpretq_f64_u64(vorrq_u64(bits, vdupq_n_u64(0x3ff0000000000000ULL)));
}
inline D mantissa(D a) { GROUPLEARN_QUARTERS(D, mantissa_quarter(a.v[i])); }

/// The lower and the upper eight lanes.
inline D widened(float32x4_t first, float32x4_t second) {
    return {{vcvt_f64_f32(vget_low_f32(first)), vcvt_high_f64_f32(first), vcvt_f64_f32(vget_low_f32(second)),
             vcvt_high_f64_f32(second)}};
}
inline D low(F a) { return widened(a.v[0], a.v[1]); }
inline D high(F a) { return widened(a.v[2], a.v[3]); }
inline float32x4_t narrowed(float64x2_t first, float64x2_t second) {
    return vcvt_high_f32_f64(vcvt_f32_f64(first), second);
}
inline F narrow(D low, D high) {
    return {{narrowed(low.v[0], low.v[1]), narrowed(low.v[2], low.v[3]), narrowed(high.v[0], high.v[1]),
             narrowed(high.v[2], high.v[3])}};
}
/// Lane j of number i and lane i of number j change places.
template <class V, class Number, int n> inline void turn_in_memory(V (&a)[n]) {
    Number before[n][n], after[n][n];
    for (int i = 0; i < n; i++) store(before[i], a[i]);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) after[i][j] = before[j][i];
    for (int i = 0; i < n; i++) a[i] = load(after[i]);
}
inline void turn(F (&a)[16]) { turn_in_memory<F, float>(a); }
inline void turn(D (&a)[8]) { turn_in_memory<D, double>(a); }
#undef GROUPLEARN_QUARTERS

struct Bits {
    uint64x2_t v[4];
};
inline Bits every_bit() {
    uint64x2_t ones = vdupq_n_u64(~uint64_t(0));
    return {{ones, ones, ones, ones}};
}
inline void store(uint64_t *p, Bits a) {
    for (int i = 0; i < 4; i++) vst1q_u64(p + 2 * i, a.v[i]);
}
inline Bits kept(Bits a, DMask m, uint64_t those) {
    uint64x2_t others = vdupq_n_u64(~those);
    for (int i = 0; i < 4; i++) a.v[i] = vbicq_u64(a.v[i], vandq_u64(m.v[i], others));
    return a;
}
