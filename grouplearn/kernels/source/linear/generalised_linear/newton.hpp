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
#include "linear/generalised_linear/working_set.hpp"
#include <initializer_list>
#include <type_traits>

namespace grouplearn::generalised_linear {
namespace {

/// Share of the predicted fall that a step must reach (Armijo).
constexpr double sufficient = 1e-4;
/// The most lanes there are.
constexpr int most_lanes = 16;
/// A column is constant when its variance is below this share of its squared mean.
constexpr double constant_below = 1e-24;
/// Rows per parameter that the second derivatives are taken from at first, and the fewest.
constexpr int64_t sampled_per_parameter = 16, fewest_sampled = 2048;
/// Of a loss that bends for few rows they are that many times as many: so much by the number of parameters, and no more.
constexpr int64_t few_of_which_bend = 128, most_more = 16;
/// How often its steps are shortened before they are given up, in double precision.
constexpr int far_retries = 60;
/// The same by second derivatives of some rows, which may not have seen a rare category: then they are taken anew, of more rows.
constexpr int few_retries = 8;
/// After so many times the next steps are damped, whatever the loss: second derivatives of rows that are wrong and sure of it are next
/// to nothing (a logistic one is e^-40 there), and a step by them leads far beyond.
constexpr int shortened_much = 8;
/// The same of a step that promised much, by second derivatives in double precision.
constexpr int hopeless_retries = 11;
/// What part of the damping is left after a whole step, and the share of the sum of second derivatives that is none.
constexpr double eased = 0.25, least_damping = 1e-12;
/// What is left of it where damped steps promise next to nothing.
constexpr double doubted = 1e-3;
/// The sum of its losses, of rows that weigh about 1, where all are beyond their margin but for rounding.
constexpr double no_loss = 1e-20;
/// How far a smooth loss is from one with a kink at first and at last, and what is left of that from one to the next. A row adds that
/// much, at most, to what is left to gain: the gap between the objective and its dual (Boyd & Vandenberghe 2004, section 11.2).
constexpr double first_smoothing = 1, least_smoothing = 1e-14, smoother = 0.1;
/// The gain, as a share of the smoothing, below which a smooth loss leads no farther; the share of the objective that rounding hides.
constexpr double level = 1, unseen = 1e-13;
/// What is left of a step that is shortened: half, or less where the smoothing has changed.
constexpr double shorter = 0.5, much_shorter = 0.25;

/// How a stage ends a model, relative to its objective, and what rounding and failures it allows for.
struct Stage {
    double tolerance, rounding, ridge, model_share, curved;
    int retries, model_rounds;
};
constexpr Stage single_stage = {1, 4e-7, 1e-6, 1e-3, 1e-5, 6, 12};
constexpr Stage double_stage = {1e-2, 1e-14, 1e-12, 1e-9, 1e-10, 40, 200};
/// A factor in single precision with a smaller share of a diagonal left says little of that direction.
constexpr double least_share = 1e-3;
/// Penalties beyond this are alike in the curvature.
constexpr double largest_ridge = 1e30;
/// How many weights are made zero, one after the other, before the others have a round of their own.
constexpr int most_cut = 8;
/// A step beyond this is none.
constexpr double farthest = 1e30;
/// Steps after which second derivatives are taken anew: of all rows they take the time of a pass for every four columns.
constexpr int patience = 4;
/// The most steps that are remembered, those of both stages.
constexpr int most_steps = 2 * patience;
/// Second derivatives are taken anew, too, where their sum has become that many times as large or as small.
constexpr double other_bend = 3;
/// The same where they jump: what is left of their sum is of other rows.
constexpr double jumped_bend = 1.1;

/// Share of its first diagonal that the second derivatives of a model of many parameters have left at least.
constexpr double least_diagonal = 1e-9;
/// Where all that the gradient says is that so much of the objective may be left, a model of a matrix that is guessed is not called finished:
/// it promises nothing beside rows that outweigh all others, or where columns say nearly the same. With l1 that holds most weights a small
/// ridge says less of what is left.
constexpr double unproven = 1e-3, unproven_sparse = 1e-2;
/// Where steps promise nothing by a matrix that is guessed, the last must have fallen by less than that many times what ends training.
constexpr double slow = 10;

/// Every how many rows second derivatives are taken from in the given iteration, for ``least`` of them in the first ones.
inline int64_t stride_at(int64_t rows, int64_t size, int64_t iteration, int64_t least) {
    int64_t wanted = sampled_per_parameter * size;
    if (wanted < least) wanted = least;
    for (int64_t later = iteration; later >= 8 && wanted < rows; later -= 6) wanted *= 4;
    return rows / wanted > 1 ? rows / wanted : 1;
}

/// A power of two near a positive number.
inline double power_of_two_near(double a) {
    uint64_t bits;
    memcpy(&bits, &a, sizeof bits);
    bits &= 0x7ff0000000000000ULL;
    memcpy(&a, &bits, sizeof bits);
    return a;
}

/// Whether there are second derivatives at ``trial``: never, for who asks, or already.
enum class Bends { none, asked_for, known };

/// A model in training that is not in the lanes of a register.
struct Model {
    double value = 0, reached = 0, fall = 0, descent = 0, length = 1;
    double objective = 0; // the value, but of a loss with a kink as it is
    bool anew = false;    // whether it stays where it is, to be evaluated by another loss
    bool stuck = false;   // whether no step from there goes down
    double bend = 0, bend_then = 0; // the sum of second derivatives by scores, now and where ``chol`` is from
    bool active = false, accepted = false, converged = false, failed = false, sparse = false, uncounted = true;
    bool trusted = false, doubtful = false, shortened = false, judged = false;
    Bends bends = Bends::asked_for;
    double damping = 0;  // what is added to second derivatives, that steps stay where these hold
    bool damped = false; // whether ``chol`` has some of it
    bool sampled = false; // whether it is of some rows only
    bool few = false;     // whether it is of so few rows that another method may have it
    bool open = false, left = false; // whether its quadratic model was not minimised, and whether it was left for that
    double tolerance = 0, dropped = 0, begins = 1; // what ends it, by how much its last step fell, the length of the next
    int64_t passes = 0;
    int retries = 0, age = 0, steps = 0; // steps since ``chol`` of this stage, and those that are remembered
};

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

    /// No part of a step goes down: what it is made by is forgotten, and the model evaluated where it is.
    void begin_anew(int lane) {
        Model &m = model[lane];
        m.anew = true;
        m.trusted = false;
        m.length = 1;
        m.retries = m.steps = 0;
        for (int64_t k = 0; k < size; k++) goal[k * width + lane] = point[k * width + lane];
    }

    /// Whether the step that leads nowhere promised more than what ends training, so that it is not for rounding.
    static bool promises_more(const Model &m) { return !(-0.5 * m.descent <= m.tolerance * __builtin_fabs(m.value)); }

    /// No part of a step goes down that promises much, or there is none: it was made as if the loss hardly bent. The next one is as if it
    /// bent as much as it falls, and so no longer than 1, which is a standard deviation of the columns; or shorter still.
    void shorten_all(int lane) {
        Model &m = model[lane];
        double steep = steepness(lane);
        if (dense) m.damping = m.damping < steep ? steep : m.damping / m.length * 16;
        else sigma[lane] = (N)(sigma[lane] / m.length);
        begin_anew(lane);
    }

    double steepness(int lane) const {
        double sum = 0;
        for (int64_t k = 0; k < size; k++) sum += (double)slope[k * width + lane] * (double)slope[k * width + lane];
        return __builtin_sqrt(sum);
    }

    /// More damping where a step was shortened: what would have made it as long as it is along its direction, and so shorter still
    /// where rows bend less. Less of it where a whole step went down.
    void damp(int lane) {
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

    /// Keep the step of the accepted lanes to ``trial``, and by how much the slope became ``moved``, where it curved upward.
    void remember() {
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

    void drop_oldest(int lane) {
        for (int slot = 1; slot < slots; slot++) {
            inner[(slot - 1) * width + lane] = inner[slot * width + lane];
            for (auto each : {&changes, &bends})
                for (int64_t at = slot * size; at < (slot + 1) * size; at++) (*each)[(at - size) * width + lane] = (*each)[at * width + lane];
        }
        model[lane].steps = slots - 1;
        inner[(slots - 1) * width + lane] = 0;
    }

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

    /// What the loss lacks of second derivatives: penalties, and 1 for a direction without any.
    void complete() {
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
    void close_softmax() {
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
    bool wants(const Model &m) const {
        if (!m.accepted || m.bends == Bends::none) return false;
        return m.bends == Bends::known || m.shortened || stale(m, m.age);
    }
    /// Whether it will at the next point, of what is known before.
    bool will_want(const Model &m) const { return dense && m.active && (m.retries > 0 || stale(m, m.age + 1)); }
    bool stale(const Model &m, int age) const {
        return m.sparse || narrows || m.damped || m.damping > 0 || !m.trusted || age >= lasting || m.bend_then > other * m.bend ||
               m.bend > other * m.bend_then;
    }

    /// Factor the second derivatives for the lanes that want it, which forget their steps.
    void factorise() {
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

    /// Turn slopes into steps by the inverse of ``chol``, updated by the steps since (Nocedal & Wright 2006, algorithm 7.4).
    void approach(N *right) {
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

    /// The least of the models with l1: ``step`` becomes the point, ``moved`` the curvature times the way to it. Lanes without
    /// l1 keep the ``step`` that they have if ``others``.
    void minimise(bool others) {
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
    void minimise_few() {
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

    /// The second derivatives of a model of many parameters, sigma·base + Σ y·y'/(s'y) − Σ v·v'/(s'v): the v of a step s, which are
    /// the product with s of what the steps before made (BFGS), and the diagonal.
    void unroll() {
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

    V pen(int64_t k) const {
        N lane[width];
        for (int i = 0; i < width; i++) lane[i] = (N)penalty[k * width + i];
        return load(lane);
    }

    /// One coordinate to the least of its parabola plus penalty.
    template <class Mask> void descend(int64_t k, Mask open, V &gain, V &flips) {
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
    static V size_of(V a) { return grouplearn::size(a); }

    /// What a ``change`` of one number makes of ``moved``: hessian's column ``k`` times it.
    void bend_by(int64_t k, V change) {
        const N *line = hessian + triangle(k) * width;
        for (int64_t i = 0; i <= k; i++) store(moved + i * width, fma(load(line + i * width), change, load(moved + i * width)));
        for (int64_t i = k + 1; i < size; i++)
            store(moved + i * width, fma(load(hessian + (triangle(i) + k) * width), change, load(moved + i * width)));
    }

    /// Newton's step on the weights that are not zero, as far as the first of them that it makes zero; returns where it made one.
    template <class Mask> Mask solve_face(Mask open) {
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
    V share_until_zero(V at, V way, int64_t k) const {
        V one = all<V>(1);
        auto ends = (zero<V>() < pen(k)) & (zero<V>() < size_of(at)) & !(zero<V>() < at * (at + way));
        return select(ends, smaller(at / minus(way), one), one);
    }

    /// Where a smooth loss leads no farther, the next is nearer to the one with a kink, or the model is finished: all rows together
    /// leave no more to gain than is asked for, or than can be told from rounding.
    void come_nearer(int lane) {
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
    double most_left(int lane) const {
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
    bool may_be_far(int lane) const {
        const Model &m = model[lane];
        return !dense && (m.sparse ? unproven_sparse : unproven) * __builtin_fabs(m.value) < most_left(lane);
    }

    /// End what is finished; where nothing says more, models go to the end of their steps or to a part of it.
    bool go_on() {
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

} // namespace
} // namespace grouplearn::generalised_linear
