// Numbers side by side: F is 16 of single precision, D is 8 of double precision, whatever the processor's registers hold.
//
// Every operation is per lane and rounded once (IEEE 754), sums over lanes are a fixed tree, and multiplication and
// addition are fused where `fma` is written and nowhere else (-ffp-contract=off). So all builds give the same bits.
// A mask says per lane yes or no. `larger` and `smaller` return the second where a lane is no number.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

namespace grouplearn {

#if defined(GROUPLEARN_AVX512)
#include "lanes/builds/avx512.hpp"
#elif defined(GROUPLEARN_AVX2)
#include "lanes/builds/avx2.hpp"
#elif defined(GROUPLEARN_NEON)
#include "lanes/builds/neon.hpp"
#else
#include "lanes/builds/portable.hpp"
#endif

template <class V> struct Lanes;
template <> struct Lanes<F> {
    using Number = float;
    static constexpr int count = 16;
};
template <> struct Lanes<D> {
    using Number = double;
    static constexpr int count = 8;
};
// Bits is 64 bits beside each lane of a D: `every_bit`, `store`, and `kept(bits, mask, those)`, which are the bits of
// `bits` that are among `those` where the mask says yes, and all of them elsewhere.

template <class V> inline V zero() { return all<V>(0); }
template <class V> inline V minus(V a) { return zero<V>() - a; }
template <class V> inline V &operator+=(V &a, V b) { return a = a + b; }
template <class V> inline V &operator-=(V &a, V b) { return a = a - b; }
template <class V> inline V &operator*=(V &a, V b) { return a = a * b; }

/// The numbers at eight places; 0 where a place is below 0.
inline D gathered(const double *from, const int32_t *at) {
#if defined(GROUPLEARN_AVX512)
    __m256i places = _mm256_loadu_si256((const __m256i *)at);
    __mmask8 there = _mm256_cmp_epi32_mask(places, _mm256_setzero_si256(), _MM_CMPINT_NLT);
    return {_mm512_mask_i32gather_pd(_mm512_setzero_pd(), there, places, from, 8)};
#else
    double lane[8];
    for (int i = 0; i < 8; i++) lane[i] = at[i] < 0 ? 0 : from[at[i]];
    return load(lane);
#endif
}

/// The sum over lanes, halves first: lane i and lane i + n/2, and so on.
template <class V> inline typename Lanes<V>::Number sum(V a) {
    typename Lanes<V>::Number lane[Lanes<V>::count];
    store(lane, a);
    for (int width = Lanes<V>::count / 2; width; width /= 2)
        for (int i = 0; i < width; i++) lane[i] += lane[i + width];
    return lane[0];
}

/// The sum over lanes of each of as many numbers as there are lanes, as `sum` has it, side by side.
template <class V> inline V sums(V (&a)[Lanes<V>::count]) {
    turn(a);
    for (int width = Lanes<V>::count / 2; width; width /= 2)
        for (int i = 0; i < width; i++) a[i] += a[i + width];
    return a[0];
}

} // namespace grouplearn
