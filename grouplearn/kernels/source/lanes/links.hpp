// From scores to probabilities, per lane, and functions of arrays by lanes.
#pragma once
#include "lanes/elementary.hpp"
#include "lanes/looks.hpp"

namespace grouplearn {

/// The bits of what is no number differ between processors.
template <class Number> inline Number one_nan(Number x) { return x == x ? x : (Number)NAN; }

/// 1/(1 + e⁻ˣ).
template <class V> inline V logistic(V x) { return all<V>(1) / (all<V>(1) + exponential(minus(x))); }

/// The same by way of e^-|x|, which never overflows; other last digits below 0.
template <class V> inline V probability(V x) {
    V e = exponential(minus(size(x))), share = all<V>(1) / (all<V>(1) + e);
    return select(x < zero<V>(), e * share, share);
}

/// e^xₖ / Σ e^xⱼ of ``outputs`` scores, in place; they stand ``apart`` numbers from each other.
template <class V> inline void shares(typename Lanes<V>::Number *scores, int64_t apart, int64_t outputs) {
    V most = load(scores), total = zero<V>();
    for (int64_t k = 1; k < outputs; k++) most = larger(load(scores + k * apart), most);
    for (int64_t k = 0; k < outputs; k++) {
        V e = exponential(load(scores + k * apart) - most);
        total += e;
        store(scores + k * apart, e);
    }
    for (int64_t k = 0; k < outputs; k++) store(scores + k * apart, load(scores + k * apart) / total);
}

/// ``function`` of n numbers that stand ``step`` from each other, also in place.
template <class V, class Function>
inline void by_lanes(const typename Lanes<V>::Number *from, typename Lanes<V>::Number *to, int64_t n, int64_t step, Function function) {
    constexpr int width = Lanes<V>::count;
    Looks looks;
    for (int64_t i = 0; i < n && !looks.stop(8); i += width) {
        typename Lanes<V>::Number part[width] = {};
        int64_t here = n - i < width ? n - i : width;
        for (int64_t lane = 0; lane < here; lane++) part[lane] = from[(i + lane) * step];
        store(part, function(load(part)));
        for (int64_t lane = 0; lane < here; lane++) to[(i + lane) * step] = part[lane];
    }
}

/// ``shares`` of each row of (n, outputs), in place; rows are the lanes, ``lanes`` is scratch for outputs · 8.
inline void shares_of_rows(double *scores, int64_t n, int64_t outputs, double *lanes) {
    constexpr int width = Lanes<D>::count;
    Looks looks;
    for (int64_t i = 0; i < n && !looks.stop(16 * outputs); i += width) {
        int64_t here = n - i < width ? n - i : width;
        for (int64_t k = 0; k < outputs; k++)
            for (int64_t row = 0; row < width; row++) lanes[k * width + row] = scores[(i + (row < here ? row : 0)) * outputs + k];
        shares<D>(lanes, width, outputs);
        for (int64_t k = 0; k < outputs; k++)
            for (int64_t row = 0; row < here; row++) scores[(i + row) * outputs + k] = one_nan(lanes[k * width + row]);
    }
}

} // namespace grouplearn
