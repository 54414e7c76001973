// exp, log(1 + u) and log of our own, per lane: a processor's C library would decide the last bits.
//
// exp: 2ⁿ times a polynomial of the rest, |rest| ≤ log(2)/2 (Cody & Waite 1980, chapter 6). Single: the coefficients of the
// Cephes library's expf (Moshier), 2 units in the last place. Double: Taylor's to r¹³, whose next term is 4e-18.
// log: 2·artanh((x − 1)/(x + 1)) by its series.
#pragma once
#include "lanes/lanes.hpp"

namespace grouplearn {

/// eˣ; 0 where it is nearly subnormal (below 2⁻¹²⁵ and 2⁻¹⁰²¹), infinity where it is too large.
inline F exponential(F x) {
    F bound = larger(smaller(x, all(88.722839f)), all(-86.6f));
    F n = fma(bound, all(1.44269504f), all(12582912.f)) - all(12582912.f);
    F r = fnma(n, all(0.693145752f), bound);
    r = fnma(n, all(1.42860677e-6f), r);
    F p = all(1.9875691500e-4f);
    p = fma(p, r, all(1.3981999507e-3f));
    p = fma(p, r, all(8.3334519073e-3f));
    p = fma(p, r, all(4.1665795894e-2f));
    p = fma(p, r, all(1.6666665459e-1f));
    p = fma(p, r, all(5.0000001201e-1f));
    p = fma(p, r * r, r + all(1.f)) * two_to(n - all(1.f)) * all(2.f); // 2¹²⁸ itself would be infinite
    p = select(x < all(-86.6f), zero<F>(), p);
    p = select(all(88.722839f) < x, all(INFINITY), p);
    return select(x <= x, p, x);
}

inline D exponential(D x) {
    D bound = larger(smaller(x, all(709.782712893384)), all(-707.7));
    D n = fma(bound, all(1.4426950408889634), all(6755399441055744.0)) - all(6755399441055744.0);
    D r = fnma(n, all(6.93147180369123816490e-01), bound);
    r = fnma(n, all(1.90821492927058770002e-10), r);
    D p = all(1.0 / 6227020800.0);
    p = fma(p, r, all(1.0 / 479001600.0));
    p = fma(p, r, all(1.0 / 39916800.0));
    p = fma(p, r, all(1.0 / 3628800.0));
    p = fma(p, r, all(1.0 / 362880.0));
    p = fma(p, r, all(1.0 / 40320.0));
    p = fma(p, r, all(1.0 / 5040.0));
    p = fma(p, r, all(1.0 / 720.0));
    p = fma(p, r, all(1.0 / 120.0));
    p = fma(p, r, all(1.0 / 24.0));
    p = fma(p, r, all(1.0 / 6.0));
    p = fma(p, r, all(0.5));
    p = fma(p, r * r, r + all(1.0)) * two_to(n - all(1.0)) * all(2.0);
    p = select(x < all(-707.7), zero<D>(), p);
    p = select(all(709.782712893384) < x, all((double)INFINITY), p);
    return select(x <= x, p, x);
}

/// Σ z^(2k)/(2k + 1) for k from 0, to ``terms``: artanh(z)/z.
template <int terms, class V> inline V artanh_ratio(V square) {
    V p = all<V>(1.0 / (2 * terms - 1));
    for (int k = terms - 2; k >= 0; k--) p = fma(p, square, all<V>(1.0 / (2 * k + 1)));
    return p;
}

/// log(1 + u) for u in [0, 1].
inline F log_of_one_plus(F u) {
    F z = u / (u + all(2.f));
    return all(2.f) * z * artanh_ratio<7>(z * z);
}
inline D log_of_one_plus(D u) {
    D z = u / (u + all(2.0));
    return all(2.0) * z * artanh_ratio<17>(z * z);
}

/// log x for normal x > 0; of 0 and of subnormal numbers -infinity, of negative ones and what is no number NaN.
inline D logarithm(D x) {
    D m = mantissa(x), e = exponent(x);
    auto above = all(1.4142135623730951) < m;
    m = select(above, m * all(0.5), m);
    e = select(above, e + all(1.0), e);
    D z = (m - all(1.0)) / (m + all(1.0));
    D p = all(2.0) * z * artanh_ratio<12>(z * z);
    p = fma(e, all(6.93147180369123816490e-01), fma(e, all(1.90821492927058770002e-10), p));
    p = select(x < all(2.2250738585072014e-308), all(-(double)INFINITY), p);
    p = select(all(1.7976931348623157e308) < x, x, p);
    return select(zero<D>() <= x, p, all((double)NAN));
}

/// The same of numbers in single precision, computed in double.
inline F logarithm(F x) { return narrow(logarithm(low(x)), logarithm(high(x))); }

/// The same of one number.
inline double logarithm_of(double number) {
    double lane[8] = {1, 1, 1, 1, 1, 1, 1, 1}, logarithms[8];
    lane[0] = number;
    store(logarithms, logarithm(load(lane)));
    return logarithms[0];
}

} // namespace grouplearn
