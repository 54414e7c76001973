// Parts of ``Newton``: when a step is shortened, damped or given up, and when a model is finished.
#pragma once
#include "linear/generalised_linear/newton.hpp"

namespace grouplearn::generalised_linear {
namespace {

/// No part of a step goes down: what it is made by is forgotten, and the model evaluated where it is.
template <class V> void Newton<V>::begin_anew(int lane) {
    Model &m = model[lane];
    m.anew = true;
    m.trusted = false;
    m.length = 1;
    m.retries = m.steps = 0;
    for (int64_t k = 0; k < size; k++) goal[k * width + lane] = point[k * width + lane];
}

/// No part of a step goes down that promises much, or there is none: it was made as if the loss hardly bent. The next one is as if it
/// bent as much as it falls, and so no longer than 1, which is a standard deviation of the columns; or shorter still.
template <class V> void Newton<V>::shorten_all(int lane) {
    Model &m = model[lane];
    double steep = steepness(lane);
    if (dense) m.damping = m.damping < steep ? steep : m.damping / m.length * 16;
    else sigma[lane] = (N)(sigma[lane] / m.length);
    begin_anew(lane);
}

template <class V> double Newton<V>::steepness(int lane) const {
    double sum = 0;
    for (int64_t k = 0; k < size; k++) sum += (double)slope[k * width + lane] * (double)slope[k * width + lane];
    return __builtin_sqrt(sum);
}

/// More damping where a step was shortened: what would have made it as long as it is along its direction, and so shorter still
/// where rows bend less. Less of it where a whole step went down.
template <class V> void Newton<V>::damp(int lane) {
    Model &m = model[lane];
    if (!m.retries) {
        m.damping = m.damping > least_damping * m.bend ? m.damping * eased : 0;
        return;
    }
    double far = 0;
    for (int64_t k = 0; k < size; k++) {
        double way = (double)goal[k * width + lane] - (double)point[k * width + lane];
        far += way * way;
    }
    double more = -m.descent / far * (1 / m.length - 1);
    if (std::isfinite(more)) m.damping += more;
}

/// Where a smooth loss leads no farther, the next is nearer to the one with a kink, or the model is finished: all rows together
/// leave no more to gain than is asked for, or than can be told from rounding.
template <class V> void Newton<V>::come_nearer(int lane) {
    Model &m = model[lane];
    if (!m.active || !(m.accepted || m.stuck)) return;
    double gap = smoothing[lane] * mass[lane], wanted = m.tolerance * m.objective, hidden = unseen * __builtin_fabs(m.value);
    double little = level * smoothing[lane] > hidden ? level * smoothing[lane] : hidden;
    bool best = m.objective <= no_loss, rests = m.stuck || m.fall <= little || !(m.descent < 0);
    bool near = gap + m.fall <= wanted || smoothing[lane] <= least_smoothing;
    if (best || (rests && near && (m.stuck || !may_be_far(lane)))) {
        m.converged = best || !m.stuck;
        m.active = false;
    } else if (rests && !near) {
        double next = smoother * smoothing[lane], last = 0.5 * wanted / mass[lane];
        if (next < last) next = last < smoothing[lane] ? last : next;
        smoothing[lane] = next < least_smoothing ? least_smoothing : next;
        m.anew = true;
        m.length = 1;
        m.retries = 0;
        for (int64_t k = 0; k < size; k++) goal[k * width + lane] = point[k * width + lane];
    }
}

/// By how much the objective may be above the least, which is as convex as its ridge: Σ slope²/(2·ridge), slopes being those that
/// penalties without one do not hold (Boyd & Vandenberghe 2004, 9.1.2); the intercept has gone to its best.
template <class V> double Newton<V>::most_left(int lane) const {
    double sum = 0;
    for (int64_t k = 0; k < size; k++) {
        int64_t at = k * width + lane;
        double held = penalty[at], pull = slope[at], u = point[at];
        if (!(ridge[at] > 0)) continue;
        if (u != 0) pull += u > 0 ? held : -held;
        else pull = __builtin_fabs(pull) > held ? __builtin_fabs(pull) - held : 0;
        sum += pull * pull / (2 * ridge[at]);
    }
    return sum;
}

/// Whether a matrix that is guessed says that a model is near the end, and its gradient, where there is a ridge, does not.
template <class V> bool Newton<V>::may_be_far(int lane) const {
    const Model &m = model[lane];
    return !dense && (m.sparse ? unproven_sparse : unproven) * __builtin_fabs(m.value) < most_left(lane);
}

/// End what is finished; where nothing says more, models go to the end of their steps or to a part of it.
template <class V> bool Newton<V>::go_on() {
    bool some = false;
    N whole[width], length[width];
    for (int lane = 0; lane < width; lane++) {
        Model &m = model[lane];
        if (narrows) come_nearer(lane);
        else if (m.active && m.accepted) {
            double bound = stage.tolerance * m.tolerance * __builtin_fabs(m.value);
            // Where curvature has become less than it was, a step leads farther down than it promises.
            double promised = m.fall * (m.bend_then > m.bend && m.bend > 0 ? m.bend_then / m.bend : 1);
            // What damped steps promise says nothing of others, but where even a shorter one went nowhere.
            bool unsaid = promised <= bound && m.damped && !(m.shortened && m.dropped <= bound);
            if (unsaid) m.damping = damps || m.damping * doubted < least_damping * m.bend ? 0 : m.damping * doubted;
            bool rests = (promised <= bound && !unsaid && (dense || m.dropped <= slow * bound)) || !(m.descent < 0);
            if ((rests && !may_be_far(lane)) || m.value <= nothing) {
                m.converged = true;
                m.active = false;
            }
        }
        bool leaves = m.few && m.active && m.value > no_loss && (m.passes >= passes_of_few || (m.open && width == Lanes<D>::count));
        if (leaves) m.left = true;
        if (leaves || m.passes >= limit) m.active = false;
        some = some || m.active;
        whole[lane] = m.length == 1;
        length[lane] = (N)m.length;
    }
    auto moves = zero<V>() < mask_of(&Model::active), fails = zero<V>() < mask_of(&Model::failed), full = zero<V>() < load(whole);
    for (int64_t k = 0; k < size; k++) {
        V from = load(point + k * width), to = load(goal + k * width);
        V next = select(full, to, fma(load(length), to - from, from));
        store(trial + k * width, select(fails, zero<V>(), select(moves, next, from)));
    }
    return some;
}

} // namespace
} // namespace grouplearn::generalised_linear
