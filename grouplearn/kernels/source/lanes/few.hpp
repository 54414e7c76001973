// One, two or four numbers of double precision side by side: what is too few for a D, with its operations and its bits.
#pragma once
#include "lanes/lanes.hpp"

namespace grouplearn {

template <int n> struct Few {
    double v[n];
};
template <int n> struct Lanes<Few<n>> {
    using Number = double;
    static constexpr int count = n;
};

/// As many numbers as V has lanes, from memory.
template <class V> inline V taken(const double *p) {
    if constexpr (Lanes<V>::count == 8) return load(p);
    else {
        V r;
        memcpy(&r, p, sizeof r);
        return r;
    }
}
template <int n> inline void store(double *p, Few<n> a) { memcpy(p, a.v, sizeof a.v); }

/// The same number in every lane.
template <class V> inline V every(double x) {
    if constexpr (Lanes<V>::count == 8) return all<V>(x);
    else {
        V r;
        for (double &lane : r.v) lane = x;
        return r;
    }
}

#define GROUPLEARN_FEW(expression)                                                                                        \
    Few<n> r;                                                                                                             \
    for (int i = 0; i < n; i++) r.v[i] = expression;                                                                      \
    return r
template <int n> inline Few<n> operator+(Few<n> a, Few<n> b) { GROUPLEARN_FEW(a.v[i] + b.v[i]); }
template <int n> inline Few<n> operator-(Few<n> a, Few<n> b) { GROUPLEARN_FEW(a.v[i] - b.v[i]); }
template <int n> inline Few<n> operator*(Few<n> a, Few<n> b) { GROUPLEARN_FEW(a.v[i] * b.v[i]); }
template <int n> inline Few<n> operator/(Few<n> a, Few<n> b) { GROUPLEARN_FEW(a.v[i] / b.v[i]); }
template <int n> inline Few<n> larger(Few<n> a, Few<n> b) { GROUPLEARN_FEW(a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }
template <int n> inline Few<n> smaller(Few<n> a, Few<n> b) { GROUPLEARN_FEW(a.v[i] < b.v[i] ? a.v[i] : b.v[i]); }
template <int n> inline Few<n> root(Few<n> a) { GROUPLEARN_FEW(__builtin_sqrt(a.v[i])); }
template <int n> inline Few<n> size(Few<n> a) { GROUPLEARN_FEW(__builtin_fabs(a.v[i])); }
template <int n> inline Few<n> fnma(Few<n> a, Few<n> b, Few<n> c) { GROUPLEARN_FEW(__builtin_fma(-a.v[i], b.v[i], c.v[i])); }
template <int n> inline Few<n> fma(Few<n> a, Few<n> b, Few<n> c) { GROUPLEARN_FEW(__builtin_fma(a.v[i], b.v[i], c.v[i])); }
/// What is left of `a` when it is moved towards 0 by `down` if it is positive and by `up` if it is negative, but not across.
template <int n> inline Few<n> shortened(Few<n> a, Few<n> down, Few<n> up) {
    GROUPLEARN_FEW(a.v[i] > 0 ? (0 > a.v[i] - down.v[i] ? 0 : a.v[i] - down.v[i])
                              : (a.v[i] < 0 ? (0 < a.v[i] + up.v[i] ? 0 : a.v[i] + up.v[i]) : a.v[i]));
}
#undef GROUPLEARN_FEW

template <> inline Few<1> all<Few<1>>(double x) { return {{x}}; }
/// The mask of one number.
inline bool operator<(Few<1> a, Few<1> b) { return a.v[0] < b.v[0]; }
inline bool operator<=(Few<1> a, Few<1> b) { return a.v[0] <= b.v[0]; }
inline Few<1> select(bool mask, Few<1> yes, Few<1> no) { return mask ? yes : no; }
inline bool any(bool mask) { return mask; }
inline D shortened(D a, D down, D up) {
    D none = zero<D>();
    return select(none < a, larger(none, a - down), select(a < none, smaller(none, a + up), a));
}

} // namespace grouplearn
