// Any processor: arrays and the C library's fma, slow, for tests and for processors without the others.
struct F {
    float v[16];
};
struct D {
    double v[8];
};
struct FMask {
    bool v[16];
};
struct DMask {
    bool v[8];
};

#define GROUPLEARN_LANES(result, count, expression)                                                                       \
    result r;                                                                                                             \
    for (int i = 0; i < count; i++) r.v[i] = expression;                                                                  \
    return r

template <class V> inline V all(double x);
inline F all(float x) { GROUPLEARN_LANES(F, 16, x); }
inline D all(double x) { GROUPLEARN_LANES(D, 8, x); }
template <> inline F all<F>(double x) { return all((float)x); }
template <> inline D all<D>(double x) { return all(x); }
inline F load(const float *p) { GROUPLEARN_LANES(F, 16, p[i]); }
inline D load(const double *p) { GROUPLEARN_LANES(D, 8, p[i]); }
inline void store(float *p, F a) { memcpy(p, a.v, sizeof a.v); }
inline void store(double *p, D a) { memcpy(p, a.v, sizeof a.v); }

#define GROUPLEARN_BOTH(name, expression)                                                                                 \
    inline F name(F a, F b) { GROUPLEARN_LANES(F, 16, expression); }                                                      \
    inline D name(D a, D b) { GROUPLEARN_LANES(D, 8, expression); }
GROUPLEARN_BOTH(operator+, a.v[i] + b.v[i])
GROUPLEARN_BOTH(operator-, a.v[i] - b.v[i])
GROUPLEARN_BOTH(operator*, a.v[i] * b.v[i])
GROUPLEARN_BOTH(operator/, a.v[i] / b.v[i])
GROUPLEARN_BOTH(larger, a.v[i] > b.v[i] ? a.v[i] : b.v[i])
GROUPLEARN_BOTH(smaller, a.v[i] < b.v[i] ? a.v[i] : b.v[i])
#undef GROUPLEARN_BOTH
inline F fma(F a, F b, F c) { GROUPLEARN_LANES(F, 16, __builtin_fmaf(a.v[i], b.v[i], c.v[i])); }
inline D fma(D a, D b, D c) { GROUPLEARN_LANES(D, 8, __builtin_fma(a.v[i], b.v[i], c.v[i])); }
/// c − a·b.
inline F fnma(F a, F b, F c) { GROUPLEARN_LANES(F, 16, __builtin_fmaf(-a.v[i], b.v[i], c.v[i])); }
inline D fnma(D a, D b, D c) { GROUPLEARN_LANES(D, 8, __builtin_fma(-a.v[i], b.v[i], c.v[i])); }
inline F root(F a) { GROUPLEARN_LANES(F, 16, __builtin_sqrtf(a.v[i])); }
inline D root(D a) { GROUPLEARN_LANES(D, 8, __builtin_sqrt(a.v[i])); }
inline F size(F a) { GROUPLEARN_LANES(F, 16, __builtin_fabsf(a.v[i])); }
inline D size(D a) { GROUPLEARN_LANES(D, 8, __builtin_fabs(a.v[i])); }

inline FMask operator<(F a, F b) { GROUPLEARN_LANES(FMask, 16, a.v[i] < b.v[i]); }
inline DMask operator<(D a, D b) { GROUPLEARN_LANES(DMask, 8, a.v[i] < b.v[i]); }
inline FMask operator<=(F a, F b) { GROUPLEARN_LANES(FMask, 16, a.v[i] <= b.v[i]); }
inline DMask operator<=(D a, D b) { GROUPLEARN_LANES(DMask, 8, a.v[i] <= b.v[i]); }
inline FMask operator&(FMask a, FMask b) { GROUPLEARN_LANES(FMask, 16, a.v[i] && b.v[i]); }
inline DMask operator&(DMask a, DMask b) { GROUPLEARN_LANES(DMask, 8, a.v[i] && b.v[i]); }
inline FMask operator|(FMask a, FMask b) { GROUPLEARN_LANES(FMask, 16, a.v[i] || b.v[i]); }
inline DMask operator|(DMask a, DMask b) { GROUPLEARN_LANES(DMask, 8, a.v[i] || b.v[i]); }
inline FMask operator!(FMask a) { GROUPLEARN_LANES(FMask, 16, !a.v[i]); }
inline DMask operator!(DMask a) { GROUPLEARN_LANES(DMask, 8, !a.v[i]); }
inline bool any(FMask a) {
    for (bool each : a.v)
        if (each) return true;
    return false;
}
inline bool any(DMask a) {
    for (bool each : a.v)
        if (each) return true;
    return false;
}
inline F select(FMask m, F yes, F no) { GROUPLEARN_LANES(F, 16, m.v[i] ? yes.v[i] : no.v[i]); }
inline D select(DMask m, D yes, D no) { GROUPLEARN_LANES(D, 8, m.v[i] ? yes.v[i] : no.v[i]); }

/// 2ⁿ for whole n from -126 to 127 (single), -1022 to 1023 (double). Of other n the bits mean nothing.
inline float two_to_lane(float n) {
    uint32_t bits = ((uint32_t)(int32_t)(n >= -2e9f && n <= 2e9f ? n : 0) + 127u) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return power;
}
inline double two_to_lane(double n) {
    double shifted = n + (6755399441055744.0 + 1023); // n is in the low bits of its mantissa
    uint64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits <<= 52;
    memcpy(&shifted, &bits, sizeof bits);
    return shifted;
}
inline F two_to(F n) { GROUPLEARN_LANES(F, 16, two_to_lane(n.v[i])); }
inline D two_to(D n) { GROUPLEARN_LANES(D, 8, two_to_lane(n.v[i])); }
/// The bits of each lane as whole numbers, shifted right by those of the mantissa: exponent and sign.
inline double exponent_lane(double a) {
    uint64_t bits;
    memcpy(&bits, &a, sizeof bits);
    return (double)(bits >> 52) - 1023;
}
inline double mantissa_lane(double a) {
    uint64_t bits;
    memcpy(&bits, &a, sizeof bits);
    bits = (bits & 0x000fffffffffffffULL) | 0x3ff0000000000000ULL;
    memcpy(&a, &bits, sizeof bits);
    return a;
}
inline D exponent(D a) { GROUPLEARN_LANES(D, 8, exponent_lane(a.v[i])); }
/// The mantissa of each positive lane, in [1, 2).
inline D mantissa(D a) { GROUPLEARN_LANES(D, 8, mantissa_lane(a.v[i])); }

/// The lower and the upper eight lanes.
inline D low(F a) { GROUPLEARN_LANES(D, 8, (double)a.v[i]); }
inline D high(F a) { GROUPLEARN_LANES(D, 8, (double)a.v[i + 8]); }
inline F narrow(D low, D high) { GROUPLEARN_LANES(F, 16, (float)(i < 8 ? low.v[i] : high.v[i - 8])); }
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
#undef GROUPLEARN_LANES

struct Bits {
    uint64_t v[8];
};
inline Bits every_bit() {
    Bits r;
    for (uint64_t &lane : r.v) lane = ~uint64_t(0);
    return r;
}
inline void store(uint64_t *p, Bits a) { memcpy(p, a.v, sizeof a.v); }
inline Bits kept(Bits a, DMask m, uint64_t those) {
    for (int i = 0; i < 8; i++) a.v[i] &= m.v[i] ? those : ~uint64_t(0);
    return a;
}
