// Parts of ``Newton``: where a parabola with l1 is least: by coordinate descent, and by Newton's steps on the weights that are not zero.
#pragma once
#include "linear/generalised_linear/newton.hpp"
#include "linear/generalised_linear/working_set.hpp"

namespace grouplearn::generalised_linear {
namespace {

/// The least of the models with l1: ``step`` becomes the point, ``moved`` the curvature times the way to it. Lanes without
/// l1 keep the ``step`` that they have if ``others``.
template <class V> void Newton<V>::minimise(bool others) {
    auto mine = zero<V>() < mask_of(&Model::sparse);
    for (int64_t k = 0; k < size; k++) {
        V from = load(point + k * width);
        store(step + k * width, others ? select(mine, from, load(step + k * width)) : from);
    }
    auto open = mine & (zero<V>() < mask_of(&Model::accepted));
    V total = zero<V>();
    Looks looks;
    for (int round = 0; round < stage.model_rounds && any(open) && !stopped(); round++) {
        V gain = zero<V>(), flips = zero<V>();
        for (int64_t k = 0; k < size && !looks.stop(size); k++) descend(k, open, gain, flips);
        total += gain;
        open = open & !(gain <= all<V>(stage.model_share) * total);
        // Where a weight was made zero the others go on without it: by itself it would leave zero again, on the side from which it
        // came, where the columns of others say much the same.
        auto short_of = open & (flips <= zero<V>());
        for (int cut = 0; round && cut < most_cut && any(short_of); cut++) short_of = solve_face(short_of);
    }
    N still[width];
    store(still, select(open, all<V>(1), zero<V>()));
    for (int lane = 0; lane < width; lane++) model[lane].open = still[lane] > 0;
}

/// The same of one model of many parameters, of which few may move.
template <class V> void Newton<V>::minimise_few() {
    memcpy(step, point, (size_t)size * sizeof(N));
    unroll();
    for (int64_t k = 0; k < size; k++) drawn_base[k] = sigma[0] * base[k];
    Parabola parabola{size, model[0].steps, point, slope, penalty, drawn_base, diagonal, bends, turned, up, down};
    WorkingSet few(parabola);
    lacks_memory = !few.reserve();
    if (lacks_memory) return;
    few.descend(stage.model_rounds, stage.model_share, step);
    few.bend(step, moved);
}

template <class V> V Newton<V>::pen(int64_t k) const {
    N lane[width];
    for (int i = 0; i < width; i++) lane[i] = (N)penalty[k * width + i];
    return load(lane);
}

/// One coordinate to the least of its parabola plus penalty.
template <class V> template <class Mask> void Newton<V>::descend(int64_t k, Mask open, V &gain, V &flips) {
    V bend = load(hessian + (triangle(k) + k) * width), now = load(step + k * width);
    V free = now - (load(slope + k * width) + load(moved + k * width)) / bend, threshold = pen(k) / bend;
    V next = larger(free - threshold, zero<V>()) + smaller(free + threshold, zero<V>());
    V change = select(open, next - now, zero<V>());
    if (!any(zero<V>() < size_of(change))) return;
    next = select(open, next, now);
    store(step + k * width, next);
    gain += all<V>(0.5) * bend * change * change;
    auto flipped = (zero<V>() < size_of(change)) & !(zero<V>() < now * next) & (zero<V>() < threshold);
    flips += select(flipped, all<V>(1), zero<V>());
    bend_by(k, change);
}

/// What a ``change`` of one number makes of ``moved``: hessian's column ``k`` times it.
template <class V> void Newton<V>::bend_by(int64_t k, V change) {
    const N *line = hessian + triangle(k) * width;
    for (int64_t i = 0; i <= k; i++) store(moved + i * width, fma(load(line + i * width), change, load(moved + i * width)));
    for (int64_t i = k + 1; i < size; i++)
        store(moved + i * width, fma(load(hessian + (triangle(i) + k) * width), change, load(moved + i * width)));
}

/// Newton's step on the weights that are not zero, as far as the first of them that it makes zero; returns where it made one.
template <class V> template <class Mask> Mask Newton<V>::solve_face(Mask open) {
    N *right = trial; // free until the next trial point
    V one = all<V>(1);
    Looks looks;
    for (int64_t k = 0; k < size && !looks.stop(2 * k); k++) {
        V at = load(step + k * width), pull = pen(k);
        auto free = (zero<V>() < size_of(at)) | (pull <= zero<V>());
        V sign = select(at < zero<V>(), minus(one), one);
        V want = load(slope + k * width) + load(moved + k * width) + pull * sign;
        store(right + k * width, select(free, minus(want), zero<V>()));
        for (int64_t i = 0; i <= k; i++) {
            V other = load(step + i * width);
            auto both = free & ((zero<V>() < size_of(other)) | (pen(i) <= zero<V>()));
            store(face + (triangle(k) + i) * width, select(both, load(hessian + (triangle(k) + i) * width), i == k ? one : zero<V>()));
        }
    }
    factor<V>(face, size, all<V>(1e-14));
    solve<V>(face, size, right);
    V share = one;
    for (int64_t k = 0; k < size; k++) {
        V at = load(step + k * width), way = load(right + k * width);
        open = open & (size_of(way) <= all<V>(farthest));
        share = smaller(share_until_zero(at, way, k), share);
    }
    if (!any(open)) return open;
    for (int64_t k = 0; k < size; k++) {
        V at = load(step + k * width), way = load(right + k * width);
        V part = share_until_zero(at, way, k);
        if (looks.stop(size)) return open;
        V change = select((part < one) & (part <= share), minus(at), way * share);
        change = select(open, change, zero<V>());
        store(step + k * width, at + change);
        bend_by(k, change);
    }
    return open & (share < one);
}

/// How much of its way a penalised weight may go before it changes its sign, at most all of it.
template <class V> V Newton<V>::share_until_zero(V at, V way, int64_t k) const {
    V one = all<V>(1);
    auto ends = (zero<V>() < pen(k)) & (zero<V>() < size_of(at)) & !(zero<V>() < at * (at + way));
    return select(ends, smaller(at / minus(way), one), one);
}

} // namespace
} // namespace grouplearn::generalised_linear
