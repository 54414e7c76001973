// Newton's method for up to a lane's count of models, told of each point what sums over rows are there: `advance` turns these into
// the next points. Whoever holds the rows makes the sums.
//
// Steps are by second derivatives and, until these are taken anew, by what the steps since have changed of the gradient. Models of
// too many parameters for a matrix have a diagonal in its place (L-BFGS: Liu & Nocedal 1989); with l1 the parabola through these
// changes is minimised by coordinate descent, too (Scheinberg & Tang 2016).
#pragma once
#include "lanes/elementary.hpp"
#include "lanes/few.hpp"
#include "linear/generalised_linear/few_rows.hpp"
#include "linear/generalised_linear/rows.hpp"
#include "lanes/lane_algebra.hpp"
#include "lanes/memory.hpp"
#include "linear/generalised_linear/stages.hpp"
#include <type_traits>

namespace grouplearn::generalised_linear {
namespace {

/// Several models lie lane by lane; one of many parameters, of which no others would fill the lanes, lies by itself.
template <class V> struct Newton {
    static constexpr int width = Lanes<V>::count;
    static constexpr bool alone = width == 1;
    using N = Number<V>;
    static constexpr bool coarse = std::is_same_v<N, float>;
    using Wide = std::conditional_t<alone, V, D>; // double precision of some lanes
    const Stage &stage;
    int64_t columns, outputs, p, size;
    int slots;              // the most steps that are remembered
    bool dense;             // whether there is room for second derivatives
    int lasting = patience;          // the steps that these last
    int64_t fewest = fewest_sampled; // the rows that they are taken from, at least
    int most_retries;                // how often a step is shortened until it is given up
    double other = other_bend;       // by how many times their sum may change until they are taken anew
    bool lacks_memory = false;       // for what a step needs of the weights that may move
    bool damps = false;              // whether steps are damped after one that went too far
    bool of_some = false;            // whether second derivatives are now taken of some rows only
    double nothing = -1;             // the objective from which on downward it is rounding
    int64_t limit;
    int64_t held = -1; // the column whose weight stays as it begins, -1 for none
    Model model[most_lanes];
    // By parameter and lane: where the models are, where their steps lead, and where they are evaluated.
    Scratch<N> point, goal, trial, slope, step, moved;
    Scratch<N> hessian, chol, face;    // lower triangles
    Scratch<N> changes, bends, inner;  // the last steps, what they changed of the slope, 1 / (their product) or 0
    Scratch<N> base, turned, diagonal; // in place of the triangles: a diagonal, and what with the steps makes a parabola of it
    Scratch<N> sigma, up, down, drawn, drawn_base;
    Scratch<double> gradient, ridge, penalty;
    double bent[most_lanes] = {}; // the sum of second derivatives at ``trial``
    bool narrows = false;         // whether the loss has a kink, and is trained by smooth ones that come ever nearer
    double smoothing[most_lanes] = {}, exact[most_lanes] = {}, mass[most_lanes] = {}; // how near, the objective itself at ``trial``, Σ weight

    Newton(const Stage &stage, int64_t columns, int64_t outputs, bool fit_intercept, int slots, bool dense, int64_t limit)
        : stage(stage), columns(columns), outputs(outputs), p(columns + fit_intercept), size(outputs * p), slots(slots), dense(dense),
          most_retries(stage.retries), limit(limit) {}

    bool reserve() {
        int64_t here = size * width, lower = dense ? triangle(size) * width : 0, wide = dense ? 0 : here;
        return point.reserve(here) && goal.reserve(here) && trial.reserve(here) && slope.reserve(here) && step.reserve(here) &&
               moved.reserve(here) && hessian.reserve(lower) && chol.reserve(lower) && face.reserve(lower) &&
               changes.reserve(slots * here) && bends.reserve(slots * here) && inner.reserve(slots * width) && base.reserve(wide) &&
               turned.reserve(slots * wide) && diagonal.reserve(wide) && sigma.reserve(width) && up.reserve(slots * width) &&
               down.reserve(slots * width) && drawn.reserve(slots * width) && drawn_base.reserve(wide) &&
               gradient.reserve(here) && ridge.reserve(here) && penalty.reserve(here);
    }

    /// Take second derivatives anew where rows came to their margin or left it, and of more rows where that takes little time: they are
    /// those of the few inside. Where these leave a direction free, a step along it may lead very far: the next ones are damped.
    void expect_jumps() {
        other = jumped_bend;
        int64_t more = few_of_which_bend / (size ? size : 1);
        fewest = fewest_sampled * (more < 1 ? 1 : more < most_more ? more : most_more);
        if (width == Lanes<D>::count) most_retries = far_retries;
        nothing = no_loss;
        damps = dense;
    }

    /// Come nearer to the kink of the loss wherever a smooth one leads no farther. Second derivatives are taken at each point, of all rows:
    /// those near the kink are few, and decide.
    void expect_kink() {
        narrows = true;
        fewest = INT64_MAX;
    }

    /// What the loss asks for.
    void expect(Loss loss) {
        if (jumps(loss)) expect_jumps();
        if (has_kink(loss)) expect_kink();
    }

    /// Penalties of a lane on standardised columns, where rows' weights are divided by ``scale``.
    void set_penalties(int lane, double l1, double l2, double scale, const double *inverse) {
        for (int64_t k = 0; k < size; k++) {
            int64_t j = k % p, at = k * width + lane;
            double shrunk = j < columns && j != held ? inverse[j] : 0;
            ridge[at] = l2 / scale * shrunk * shrunk;
            penalty[at] = l1 / scale * shrunk;
        }
    }

    void forget() {
        inner.clear(slots * width);
        changes.clear(slots * size * width);
        bends.clear(slots * size * width);
    }

    /// From sums at ``trial`` (values with penalties in ``reached``, ``gradient`` and ``bent``) to the next ``trial``; returns whether
    /// any lane goes on. ``differentiate`` fills in the ``hessian`` of the lanes that want one.
    template <class Differentiate> bool advance(bool first, Differentiate differentiate) {
        if (judge(first)) {
            bool needed = false;
            for (int lane = 0; lane < width; lane++) needed = needed || wants(model[lane]);
            if constexpr (!alone)
                if (needed) {
                    differentiate();
                    hold_still();
                    complete();
                    factorise();
                }
            aim();
        }
        return go_on();
    }

    /// Add penalties to the sums at ``trial``.
    void penalise(double *loss) {
        for (int64_t k = 0; k < size; k++)
            for (int lane = 0; lane < width; lane++) {
                int64_t at = k * width + lane;
                double u = trial[at], pull = ridge[at] * u, more = penalty[at] * __builtin_fabs(u) + 0.5 * pull * u;
                loss[lane] += more;
                exact[lane] += more;
                gradient[at] += pull;
            }
        for (int lane = 0; held >= 0 && lane < width; lane++) gradient[held * width + lane] = 0;
    }

    /// Let no step move the weight that is held: it has a slope of 0, and second derivatives of its own alone.
    void hold_still() {
        if (held < 0) return;
        for (int64_t k = 0; k < size; k++) {
            int64_t above = held < k ? k : held, left = held < k ? held : k;
            store(hessian + (triangle(above) + left) * width, all<V>(k == held ? 1 : 0));
        }
    }

    /// Which lanes went down far enough, and shorter steps for those that did not; returns whether any did.
    bool judge(bool first) {
        V nothing = zero<V>(); // no number where a gradient has one that is infinite
        for (int64_t k = 0; k < size; k++) {
            store(moved + k * width, rounded(gradient + k * width));
            nothing = fma(load(moved + k * width), zero<V>(), nothing);
        }
        N finite[width];
        store(finite, nothing);
        bool any_accepted = false;
        for (int lane = 0; lane < width; lane++) {
            Model &m = model[lane];
            m.accepted = m.shortened = false;
            m.judged = m.active;
            if (!m.active) continue;
            if (!(first && m.uncounted)) m.passes++;
            double bound = m.value + sufficient * m.length * m.descent + stage.rounding * __builtin_fabs(m.value);
            bool begins = first || m.anew;
            m.accepted = std::isfinite(m.reached) && finite[lane] == 0 && (begins || m.reached <= bound);
            m.anew = m.stuck = false;
            if (m.accepted) {
                m.dropped = begins ? (double)INFINITY : m.value - m.reached;
                m.value = m.reached;
                m.objective = narrows ? exact[lane] : m.reached;
                m.bend = bent[lane];
                m.age += !first;
                m.shortened = m.retries > 0;
                bool far = !m.sparse && (damps || (!narrows && m.retries >= shortened_much));
                if (dense && !begins && (far || m.damping > 0)) damp(lane);
            } else if (first) m.failed = true, m.active = false;
            else {
                m.length *= narrows ? much_shorter : shorter;
                bool little_known = m.sampled && few_retries < most_retries;
                bool hopeless = !coarse && !narrows && promises_more(m);
                int most = hopeless && dense ? hopeless_retries : most_retries;
                if (++m.retries <= (little_known ? few_retries : most)) continue;
                if (little_known || (!dense && m.steps > 0)) begin_anew(lane);
                else if (narrows) m.stuck = true;
                else if (hopeless) shorten_all(lane);
                else m.active = false, m.converged = true;
            }
            any_accepted = any_accepted || m.accepted;
        }
        if (!first) remember();
        auto mine = zero<V>() < mask_of(&Model::accepted);
        for (int64_t k = 0; k < size; k++) {
            store(point + k * width, select(mine, load(trial + k * width), load(point + k * width)));
            store(slope + k * width, select(mine, load(moved + k * width), load(slope + k * width)));
        }
        return any_accepted;
    }

    /// Whether the step that leads nowhere promised more than what ends training, so that it is not for rounding.
    static bool promises_more(const Model &m) { return !(-0.5 * m.descent <= m.tolerance * __builtin_fabs(m.value)); }

    static V load(const N *a) {
        if constexpr (alone) return taken<V>(a);
        else return grouplearn::load(a);
    }

    static V rounded(const double *a) {
        if constexpr (width == 16) return narrow(grouplearn::load(a), grouplearn::load(a + 8));
        else return load(a);
    }

    /// The lanes from ``half`` on that a Wide has.
    static Wide wide(const N *a, int half) {
        if constexpr (width == 16) return half ? high(load(a)) : low(load(a));
        else return load(a + half);
    }

    V mask_of(bool Model::*flag) const {
        N lane[width];
        for (int i = 0; i < width; i++) lane[i] = model[i].*flag ? 1 : 0;
        return load(lane);
    }

    V product(const N *a, const N *b) const {
        V sum[2] = {zero<V>(), zero<V>()};
        for (int64_t k = 0; k < size; k++) sum[k & 1] = fma(load(a + k * width), load(b + k * width), sum[k & 1]);
        return sum[0] + sum[1];
    }

    /// Where the quadratic models of the accepted lanes are least, and what they promise there.
    void aim() {
        bool smooth = false, sparse = false;
        for (int lane = 0; lane < width; lane++) {
            smooth = smooth || (model[lane].accepted && !model[lane].sparse);
            sparse = sparse || (model[lane].accepted && model[lane].sparse);
        }
        N *where = step;
        for (int64_t k = 0; k < size; k++) {
            store(where + k * width, minus(load(slope + k * width)));
            store(moved + k * width, zero<V>());
        }
        if (smooth) {
            approach(step);
            for (int64_t k = 0; k < size; k++) store(step + k * width, load(point + k * width) + load(step + k * width));
        }
        if constexpr (alone) {
            if (sparse) minimise_few();
        } else if (sparse) minimise(smooth);
        double along[width], bent[width], pulled[width];
        promise(along, bent, pulled);
        auto mine = zero<V>() < mask_of(&Model::accepted);
        for (int64_t k = 0; k < size; k++) store(goal + k * width, select(mine, load(step + k * width), load(goal + k * width)));
        for (int lane = 0; lane < width; lane++) {
            Model &m = model[lane];
            if (!m.accepted) continue;
            m.descent = along[lane] + pulled[lane];
            m.fall = m.sparse ? -(m.descent + 0.5 * bent[lane]) : -0.5 * along[lane];
            m.length = m.begins;
            m.begins = 1;
            m.retries = 0;
            if (std::isfinite(m.fall)) continue;
            // No direction, where curvature has vanished: nothing is left to gain, or nothing that this precision tells, or it is there.
            bool ends = coarse || !dense || m.value <= no_loss || !(steepness(lane) > m.tolerance * __builtin_fabs(m.value));
            if (ends) begin_anew(lane);
            else shorten_all(lane);
            m.anew = !ends;
            m.fall = ends ? 0 : (double)INFINITY;
            m.descent = ends ? 0 : -1;
        }
    }

    /// Of the way from ``point`` to ``step`` in double precision: the slope along it, its curvature, what it adds to penalties.
    void promise(double *along, double *bent, double *pulled) const {
        for (int half = 0; half < width; half += 8) {
            Wide slopes = zero<Wide>(), curves = zero<Wide>(), penalties = zero<Wide>();
            for (int64_t k = 0; k < size; k++) {
                int64_t at = k * width;
                Wide from = wide(point + at, half), to = wide(step + at, half), change = to - from;
                slopes = fma(taken<Wide>(gradient + at + half), change, slopes);
                curves = fma(wide(moved + at, half), change, curves);
                penalties = fma(taken<Wide>(penalty + at + half), grouplearn::size(to) - grouplearn::size(from), penalties);
            }
            store(along + half, slopes);
            store(bent + half, curves);
            store(pulled + half, penalties);
        }
    }

    static V size_of(V a) { return grouplearn::size(a); }

    // curvature.hpp
    void complete();
    void close_softmax();
    bool wants(const Model &m) const;
    bool will_want(const Model &m) const;
    bool stale(const Model &m, int age) const;
    void factorise();
    void remember();
    void drop_oldest(int lane);
    void approach(N *right);
    void unroll();

    // sparse_steps.hpp
    void minimise(bool others);
    void minimise_few();
    V pen(int64_t k) const;
    template <class Mask> void descend(int64_t k, Mask open, V &gain, V &flips);
    void bend_by(int64_t k, V change);
    template <class Mask> Mask solve_face(Mask open);
    V share_until_zero(V at, V way, int64_t k) const;

    // endings.hpp
    void begin_anew(int lane);
    void shorten_all(int lane);
    double steepness(int lane) const;
    void damp(int lane);
    void come_nearer(int lane);
    double most_left(int lane) const;
    bool may_be_far(int lane) const;
    bool go_on();
};

/// A model on the features as written: ``point`` (outputs · p), its numbers ``apart`` from each other, to weights (outputs, columns)
/// and intercepts (outputs).
inline void write_model(const double *point, int64_t apart, const double *mean, const double *inverse, int64_t columns, int64_t outputs,
                        bool fit_intercept, double *weights, double *intercept) {
    for (int64_t c = 0; c < outputs; c++, point += (columns + fit_intercept) * apart, weights += columns) {
        double shift = 0;
        for (int64_t j = 0; j < columns; j++) {
            weights[j] = point[j * apart] * inverse[j];
            shift += weights[j] * mean[j];
        }
        intercept[c] = fit_intercept ? point[columns * apart] - shift : 0;
    }
}

/// The ``point`` (outputs · p) that ``write_model`` would write as these weights and intercepts; columns without spread have no weight.
/// Scores of classes, whose differences alone count, are shifted so that the constants, which are in ``point`` before, keep their sum.
inline void read_model(const double *weights, const double *intercept, const double *mean, const double *inverse, int64_t columns,
                       int64_t outputs, bool fit_intercept, double *point) {
    int64_t p = columns + fit_intercept;
    double shift = 0;
    for (int64_t c = 0; c < outputs; c++) {
        double *own = point + c * p, constant = intercept[c];
        for (int64_t j = 0; j < columns; j++, weights++) {
            constant = __builtin_fma(*weights, mean[j], constant);
            own[j] = inverse[j] > 0 ? *weights / inverse[j] : 0;
        }
        if (!fit_intercept) continue;
        shift += (own[columns] - constant) / (double)outputs;
        own[columns] = constant;
    }
    for (int64_t c = 0; fit_intercept && outputs > 1 && c < outputs; c++) point[c * p + columns] += shift;
}

} // namespace
} // namespace grouplearn::generalised_linear

#include "linear/generalised_linear/curvature.hpp"
#include "linear/generalised_linear/endings.hpp"
#include "linear/generalised_linear/sparse_steps.hpp"
