// What hidden units make of their sums: relu, tanh, the logistic function and gelu, each with its slope.
//
// tanh: below 0.625 the rational of the Cephes library (Moshier), a polynomial in single precision; else 1 − 2/(e²ˣ + 1).
// gelu: z·Φ(z) with Φ(z) = erfc(−z/√2)/2; e^(a²)·erfc(a)·(1 + 2a) is a polynomial in (a − c)/(a + c) for a ≥ 0, as in
// Shepherd & Laframboise (1981); the coefficients are those of a Chebyshev interpolation: 3e-15 and 3e-7 relative.
#pragma once
#include "lanes/links.hpp"

namespace grouplearn {

enum Activation { RELU, TANH, GELU, LOGISTIC };

template <class V> struct ValueAndSlope {
    V value, slope;
};

/// p[0] + p[1]·t + …, by Horner's rule.
template <class V, int n> inline V polynomial(const typename Lanes<V>::Number (&p)[n], V t) {
    V sum = all(p[n - 1]);
    for (int i = n - 2; i >= 0; i--) sum = fma(sum, t, all(p[i]));
    return sum;
}

/// tanh(x)/x − 1 for |x| < 0.625, as a function of x².
inline F tanh_beyond(F square) {
    static constexpr float p[] = {-3.33332819422e-1f, 1.33314422036e-1f, -5.37397155531e-2f, 2.06390887954e-2f, -5.70498872745e-3f};
    return square * polynomial<F>(p, square);
}
inline D tanh_beyond(D square) {
    static constexpr double p[] = {-1.61468768441708447952e3, -9.92877231001918586564e1, -9.64399179425052238628e-1};
    static constexpr double q[] = {4.84406305325125486048e3, 2.23548839060100448583e3, 1.12811678491632931402e2, 1.0};
    return square * (polynomial<D>(p, square) / polynomial<D>(q, square));
}
template <class V> inline V hyperbolic_tangent(V x) {
    V positive = size(x);
    V large = all<V>(1) - all<V>(2) / (exponential(positive + positive) + all<V>(1));
    large = select(x < zero<V>(), minus(large), large);
    return select(positive < all<V>(0.625), fma(x, tanh_beyond(x * x), x), large);
}

/// e^(a²)·erfc(a) for a ≥ 0.
inline F scaled_erfc(F a) {
    static constexpr float p[] = {1.2648380994796753f,   -0.12235689908266068f,  -0.09901786595582962f,  0.1576368808746338f,
                                  -0.10302112996578217f, 0.03270399570465088f,   0.0010876291198655963f, -0.004215244669467211f,
                                  0.0003030190127901733f, 0.0004209658072795719f};
    return polynomial<F>(p, (a - all(2.5f)) / (a + all(2.5f))) / fma(all(2.f), a, all(1.f));
}
inline D scaled_erfc(D a) {
    static constexpr double p[] = {
        1.2375126308378264,     -0.14024059858550575,  0.0035854154857627857,   0.08227673848704045,    -0.10880393015433062,
        0.09230432122771155,    -0.05869339838397541,  0.02836227674782648,     -0.009746581262494456,  0.0017556295487634313,
        0.0002937218341919264,  -0.00029016639136143893, 5.162479200942778e-05, 2.241015775977701e-05,  -1.1397625287921655e-05,
        -1.0084713725546233e-06, 1.6939254478276176e-06, -2.7685663849700945e-08, -2.1321360409864602e-07, 8.512559451761331e-09,
        1.7312209083118933e-08};
    return polynomial<D>(p, (a - all(3.75)) / (a + all(3.75))) / fma(all(2.0), a, all(1.0));
}
template <class V> inline ValueAndSlope<V> gelu(V z) {
    V density = exponential(all<V>(-0.5) * z * z);
    V tail = all<V>(0.5) * density * scaled_erfc(size(z) * all<V>(0.7071067811865476));
    V below = select(z < zero<V>(), tail, all<V>(1) - tail); // Φ(z)
    return {z * below, fma(z * all<V>(0.3989422804014327), density, below)};
}

/// The value and the slope at z.
template <Activation which, class V> inline ValueAndSlope<V> activated(V z) {
    V one = all<V>(1);
    if (which == RELU) return {larger(zero<V>(), z), select(zero<V>() < z, one, zero<V>())};
    if (which == TANH) {
        V y = hyperbolic_tangent(z);
        return {y, fnma(y, y, one)};
    }
    if (which == LOGISTIC) {
        V y = logistic(z);
        return {y, y * (one - y)};
    }
    return gelu(z);
}

} // namespace grouplearn
