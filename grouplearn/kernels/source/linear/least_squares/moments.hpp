// Weighted means and centred second moments of rows: where they lie, and how those of two sets of rows become those of both.
#pragma once
#include "algebra/matrices.hpp"

namespace grouplearn {

/// Where the moments of one set of rows lie, of d features and t targets: total (1), mean (d), target_mean (t), square (d),
/// cross (d, t), target_gram (t, t) and, if it is wanted, gram (d, d).
struct Moments {
    double *total, *mean, *target_mean, *square, *cross, *target_gram, *gram;

    Moments at(int64_t place, int64_t d, int64_t t) const {
        return {total + place,         mean + place * d,     target_mean + place * t,
                square + place * d,    cross + place * d * t, target_gram + place * t * t,
                gram ? gram + place * d * d : nullptr};
    }
    static int64_t size(int64_t d, int64_t t) { return 1 + 2 * d + t + d * t + t * t + d * d; }
    /// One after the other in `size` numbers.
    static Moments in(double *p, int64_t d, int64_t t, bool gram) {
        Moments m;
        m.total = p, m.mean = p + 1, m.target_mean = m.mean + d, m.square = m.target_mean + t, m.cross = m.square + d;
        m.target_gram = m.cross + d * t, m.gram = gram ? m.target_gram + t * t : nullptr;
        return m;
    }
};

inline void copy(const Moments &to, const Moments &from, int64_t d, int64_t t) {
    *to.total = *from.total;
    memcpy(to.mean, from.mean, d * sizeof(double));
    memcpy(to.target_mean, from.target_mean, t * sizeof(double));
    memcpy(to.square, from.square, d * sizeof(double));
    memcpy(to.cross, from.cross, d * t * sizeof(double));
    memcpy(to.target_gram, from.target_gram, t * t * sizeof(double));
    if (to.gram) memcpy(to.gram, from.gram, d * d * sizeof(double));
}

/// left + right + factor·(b − a) for each of `count` numbers.
inline void add_between(double *__restrict to, const double *left, const double *right, double factor, const double *a,
                        const double *b, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] = left[i] + right[i] + factor * (b[i] - a[i]);
}

/// The moments of both sets of rows (Chan, Golub & LeVeque 1983); a set without rows changes nothing. `to` may be neither.
inline void merge(const Moments &to, const Moments &left, const Moments &right, int64_t d, int64_t t) {
    if (!(*right.total > 0)) return copy(to, left, d, t);
    if (!(*left.total > 0)) return copy(to, right, d, t);
    double total = *left.total + *right.total, share = *right.total / total, harmonic = *left.total * share;
    *to.total = total;
    for (int64_t j = 0; j < d; j++) {
        double shift = right.mean[j] - left.mean[j], factor = harmonic * shift;
        to.mean[j] = left.mean[j] + shift * share;
        to.square[j] = left.square[j] + right.square[j] + factor * shift;
        add_between(to.cross + j * t, left.cross + j * t, right.cross + j * t, factor, left.target_mean, right.target_mean, t);
        if (to.gram) add_between(to.gram + j * d, left.gram + j * d, right.gram + j * d, factor, left.mean, right.mean, d);
    }
    for (int64_t k = 0; k < t; k++) {
        double shift = right.target_mean[k] - left.target_mean[k];
        to.target_mean[k] = left.target_mean[k] + shift * share;
        add_between(to.target_gram + k * t, left.target_gram + k * t, right.target_gram + k * t, harmonic * shift,
                    left.target_mean, right.target_mean, t);
    }
}

/// The same moments about zero: what a model without intercept sees.
inline void about_zero(const Moments &to, const Moments &from, int64_t d, int64_t t) {
    double total = *from.total;
    *to.total = total;
    for (int64_t j = 0; j < d; j++) {
        to.mean[j] = 0;
        to.square[j] = from.square[j] + total * (from.mean[j] * from.mean[j]);
        for (int64_t k = 0; k < t; k++)
            to.cross[j * t + k] = from.cross[j * t + k] + total * (from.mean[j] * from.target_mean[k]);
        if (to.gram)
            for (int64_t i = 0; i < d; i++)
                to.gram[j * d + i] = from.gram[j * d + i] + total * (from.mean[j] * from.mean[i]);
    }
    for (int64_t j = 0; j < t; j++) {
        to.target_mean[j] = from.target_mean[j];
        for (int64_t k = 0; k < t; k++)
            to.target_gram[j * t + k] = from.target_gram[j * t + k] + total * (from.target_mean[j] * from.target_mean[k]);
    }
}

} // namespace grouplearn
