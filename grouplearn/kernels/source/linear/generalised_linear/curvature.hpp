// Parts of ``Newton``: second derivatives, as they are taken and as the steps since have changed them, and what their inverse makes of a slope.
#pragma once
#include "linear/generalised_linear/newton.hpp"
#include <initializer_list>

namespace grouplearn::generalised_linear {
namespace {

/// What the loss lacks of second derivatives: penalties, and 1 for a direction without any.
template <class V> void Newton<V>::complete() {
    if (outputs > 1) close_softmax();
    for (int64_t k = 0; k < size; k++) {
        N *diagonal = hessian + (triangle(k) + k) * width;
        N pull[width];
        for (int lane = 0; lane < width; lane++) {
            double r = ridge[k * width + lane];
            r += model[lane].damping;
            pull[lane] = (N)(r < largest_ridge ? r : largest_ridge);
        }
        V value = load(diagonal);
        value = fma(value, all<V>(stage.ridge), value) + load(pull);
        store(diagonal, select(zero<V>() < value, value, all<V>(1)));
    }
}

/// Adding the same to the weights of all classes changes no probability: some curvature there makes steps definite. The
/// gradient has none of that direction, so the steps stay what they are. With l1 it is the penalty that decides, but for
/// intercepts, which have none.
template <class V> void Newton<V>::close_softmax() {
    V without_l1 = all<V>(1) - mask_of(&Model::sparse);
    for (int64_t k = 0; k < p; k++) {
        V mean = zero<V>();
        for (int64_t a = 0; a < outputs; a++) mean += load(hessian + (triangle(a * p + k) + a * p + k) * width);
        V smooth = k < columns ? without_l1 : all<V>(1);
        mean = smooth * (mean / all<V>((double)(outputs * outputs)));
        for (int64_t a = 0; a < outputs; a++)
            for (int64_t b = 0; b <= a; b++) {
                N *place = hessian + (triangle(a * p + k) + b * p + k) * width;
                store(place, load(place) + mean);
            }
    }
}

/// Whether a lane takes second derivatives where it is: those that it has are too old, or of a place too different.
template <class V> bool Newton<V>::wants(const Model &m) const {
    if (!m.accepted || m.bends == Bends::none) return false;
    return m.bends == Bends::known || m.shortened || stale(m, m.age);
}

/// Whether it will at the next point, of what is known before.
template <class V> bool Newton<V>::will_want(const Model &m) const { return dense && m.active && (m.retries > 0 || stale(m, m.age + 1)); }

template <class V> bool Newton<V>::stale(const Model &m, int age) const {
    return m.sparse || narrows || m.damped || m.damping > 0 || !m.trusted || age >= lasting || m.bend_then > other * m.bend ||
           m.bend > other * m.bend_then;
}

/// Factor the second derivatives for the lanes that want it, which forget their steps.
template <class V> void Newton<V>::factorise() {
    memcpy(face, hessian, (size_t)(triangle(size) * width) * sizeof(N));
    N share[width], wanted[width];
    store(share, factor<V>(face, size, all<V>(1e-14)));
    for (int lane = 0; lane < width; lane++) {
        Model &m = model[lane];
        wanted[lane] = wants(m);
        if (!wanted[lane]) continue;
        m.trusted = true;
        m.doubtful = share[lane] < (N)least_share;
        m.age = m.steps = 0;
        m.bend_then = m.bend;
        m.damped = m.damping > 0;
        m.sampled = of_some;
    }
    auto mine = zero<V>() < load(wanted);
    for (int64_t at = 0; at < triangle(size); at++)
        store(chol + at * width, select(mine, load(face + at * width), load(chol + at * width)));
    for (int i = 0; i < slots; i++) store(inner + i * width, select(mine, zero<V>(), load(inner + i * width)));
}

/// Keep the step of the accepted lanes to ``trial``, and by how much the slope became ``moved``, where it curved upward.
template <class V> void Newton<V>::remember() {
    for (int lane = 0; lane < width; lane++)
        if (model[lane].accepted && model[lane].steps == slots && !dense) drop_oldest(lane);
    for (int slot = slots - 1; slot >= 0 && !stop(size); slot--) { // downward: a lane's count grows in its own
        N here[width];
        for (int lane = 0; lane < width; lane++) here[lane] = model[lane].accepted && model[lane].steps == slot;
        auto mine = zero<V>() < load(here);
        if (!any(mine)) continue;
        N *change = changes + slot * size * width, *bend = bends + slot * size * width;
        V along = zero<V>(), far = zero<V>(), steep = zero<V>();
        for (int64_t k = 0; k < size; k++) {
            V s = load(trial + k * width) - load(point + k * width), y = load(moved + k * width) - load(slope + k * width);
            store(change + k * width, select(mine, s, load(change + k * width)));
            store(bend + k * width, select(mine, y, load(bend + k * width)));
            along = fma(s, y, along);
            far = fma(s, s, far);
            steep = fma(y, y, steep);
        }
        auto curved = mine & (all<V>(stage.curved) * root(far) * root(steep) < along);
        store(inner + slot * width, select(curved, all<V>(1) / along, select(mine, zero<V>(), load(inner + slot * width))));
        N keeps[width];
        for (int lane = 0; lane < width; lane++)
            if (here[lane] > 0) model[lane].steps = slot + 1;
        if (dense) continue;
        V weighed = zero<V>();
        for (int64_t k = 0; k < size; k++) {
            V y = load(bend + k * width);
            weighed = fma(y, y / load(base + k * width), weighed);
        }
        store(sigma, select(curved, weighed / along, load(sigma)));
        store(keeps, select(curved, all<V>(1), zero<V>()));
        for (int lane = 0; lane < width; lane++)
            if (here[lane] > 0 && !(keeps[lane] > 0)) model[lane].steps = slot;
    }
}

template <class V> void Newton<V>::drop_oldest(int lane) {
    for (int slot = 1; slot < slots; slot++) {
        inner[(slot - 1) * width + lane] = inner[slot * width + lane];
        for (auto each : {&changes, &bends})
            for (int64_t at = slot * size; at < (slot + 1) * size; at++) (*each)[(at - size) * width + lane] = (*each)[at * width + lane];
    }
    model[lane].steps = slots - 1;
    inner[(slots - 1) * width + lane] = 0;
}

/// Turn slopes into steps by the inverse of ``chol``, updated by the steps since (Nocedal & Wright 2006, algorithm 7.4).
template <class V> void Newton<V>::approach(N *right) {
    int last = 0;
    for (int lane = 0; lane < width; lane++)
        if (model[lane].accepted && model[lane].steps > last) last = model[lane].steps;
    for (int slot = last - 1; slot >= 0; slot--) {
        if (stop(2 * size)) return;
        const N *change = changes + slot * size * width, *bend = bends + slot * size * width;
        V factor = load(inner + slot * width) * product(change, right);
        store(drawn + slot * width, factor);
        for (int64_t k = 0; k < size; k++) store(right + k * width, fnma(factor, load(bend + k * width), load(right + k * width)));
    }
    if constexpr (!alone)
        if (dense) solve<V>(chol, size, right);
    for (int64_t k = 0; k < size && !dense; k++)
        store(right + k * width, load(right + k * width) / (load(sigma) * load(base + k * width)));
    for (int slot = 0; slot < last; slot++) {
        if (stop(2 * size)) return;
        const N *change = changes + slot * size * width, *bend = bends + slot * size * width;
        V factor = fnma(load(inner + slot * width), product(bend, right), load(drawn + slot * width));
        for (int64_t k = 0; k < size; k++) store(right + k * width, fma(factor, load(change + k * width), load(right + k * width)));
    }
}

/// The second derivatives of a model of many parameters, sigma·base + Σ y·y'/(s'y) − Σ v·v'/(s'v): the v of a step s, which are
/// the product with s of what the steps before made (BFGS), and the diagonal.
template <class V> void Newton<V>::unroll() {
    V many = load(sigma);
    for (int64_t k = 0; k < size; k++) store(diagonal + k * width, many * load(base + k * width));
    for (int slot = 0; slot < model[0].steps; slot++) {
        const N *change = changes + slot * size * width, *bend = bends + slot * size * width;
        N *turn = turned + slot * size * width;
        for (int64_t k = 0; k < size; k++) store(turn + k * width, many * load(base + k * width) * load(change + k * width));
        for (int before = 0; before < slot; before++) {
            if (stop(4 * size)) return;
            const N *old = bends + before * size * width, *less = turned + before * size * width;
            V more = load(up + before * width) * product(old, change), fewer = load(down + before * width) * product(less, change);
            for (int64_t k = 0; k < size; k++)
                store(turn + k * width, fnma(fewer, load(less + k * width), fma(more, load(old + k * width), load(turn + k * width))));
        }
        V curve = product(change, turn), known = load(inner + slot * width);
        auto used = (zero<V>() < known) & (zero<V>() < curve);
        V more = select(used, known, zero<V>()), fewer = select(used, all<V>(1) / curve, zero<V>());
        store(up + slot * width, more);
        store(down + slot * width, fewer);
        for (int64_t k = 0; k < size; k++) {
            V y = load(bend + k * width), v = load(turn + k * width);
            store(diagonal + k * width, fnma(fewer * v, v, fma(more * y, y, load(diagonal + k * width))));
        }
    }
    for (int64_t k = 0; k < size; k++)
        store(diagonal + k * width, larger(load(diagonal + k * width), all<V>(least_diagonal) * many * load(base + k * width)));
}

} // namespace
} // namespace grouplearn::generalised_linear
