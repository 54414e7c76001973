// Generalised linear models of many groups: Σ weight·loss + l1·‖w‖₁ + ½·l2·‖w‖², every config of a group in its own lane, or,
// where there are few, those of several small groups.
//
// Newton's method on features of unit spread, with a backtracking line search (Boyd & Vandenberghe 2004, section 9.5). Second
// derivatives are kept for some steps, from which their inverse is updated (L-BFGS: Liu & Nocedal 1989, with a factor in place
// of a diagonal to begin with); with l1 they are taken at each step, and the quadratic model is minimised by coordinate descent
// and, once signs rest, on the weights that are not zero (Lee, Sun & Saunders 2014). Groups of many rows take second derivatives
// from a share of them, which grows. A first stage in single precision comes near; a second in double precision starts from
// there and decides what is reported.
// Lanes never see each other: a model has the same bits alone, in any pack and beside any groups.
#include "entry.hpp"
#include "generalised_linear_rows.hpp"
#include "lane_algebra.hpp"

namespace grouplearn::generalised_linear {
namespace {

constexpr int64_t tile_rows = 256;
/// Rows per parameter that the second derivatives are taken from at first, and the fewest.
constexpr int64_t sampled_per_parameter = 16, fewest_sampled = 2048;
/// Numbers of a group that may stand beside other groups, at most.
constexpr int64_t most_beside = 1 << 16;
/// Share of the predicted fall that a step must reach (Armijo).
constexpr double sufficient = 1e-4;
/// A column is constant when its variance is below this share of its squared mean.
constexpr double constant_below = 1e-24;
/// Class shares are kept this far from 0 and 1, and mean counts from 0, where they set the start.
constexpr double smallest_share = 1e-6, smallest_mean = 1e-6;

struct Call {
    const float *x_single; // one of the two
    const double *x_double;
    int64_t columns;
    const double *label, *weight;
    const int64_t *start;
    int64_t groups, outputs, fit_intercept, configs, limit;
    Loss loss;
    const double *l1, *l2, *tolerance;
    // Results: (G, C, K, d), (G, C, K), (G, C), (G, C), (G, C) and (limit, G, C).
    double *weights, *intercept, *value;
    int64_t *passes;
    uint8_t *converged;
    double *curve;

    int64_t parameters() const { return columns + fit_intercept; }
    int64_t size() const { return outputs * parameters(); }
    double x(int64_t row, int64_t column) const {
        int64_t place = row * columns + column;
        return x_single ? (double)x_single[place] : x_double[place];
    }
};

/// What is known of a group before it trains; ``scale``, a power of two, divides weights and penalties.
struct Group {
    int64_t number, first, rows;
    double total, scale;
    Scratch<double> mean, inverse, weight, constant, start;

    bool reserve(const Call &call, int64_t rows) {
        return mean.reserve(call.columns) && inverse.reserve(call.columns) && weight.reserve(rows) && constant.reserve(rows + 8) &&
               start.reserve(call.outputs);
    }
};

/// A power of two near a positive number.
double power_of_two_near(double a) {
    uint64_t bits;
    memcpy(&bits, &a, sizeof bits);
    bits &= 0x7ff0000000000000ULL;
    memcpy(&a, &bits, sizeof bits);
    return a;
}

/// Σ weight·x over rows by columns, less ``about``; ``squared`` sums its squares.
void sum_columns(const Call &call, const Group &group, const double *about, bool squared, double *sum) {
    for (int64_t j = 0; j < call.columns; j++) sum[j] = 0;
    for (int64_t i = 0; i < group.rows; i++) {
        double weight = call.weight[group.first + i];
        for (int64_t j = 0; j < call.columns; j++) {
            double a = call.x(group.first + i, j) - (about ? about[j] : 0);
            sum[j] = __builtin_fma(weight * a, squared ? a : 1.0, sum[j]);
        }
    }
}

/// Where no weight says anything: the scores of the mean label.
void starting_scores(const Call &call, Group &group) {
    double *start = group.start;
    for (int64_t c = 0; c < call.outputs; c++) start[c] = 0;
    if (!call.fit_intercept) return;
    for (int64_t i = 0; i < group.rows; i++) {
        double label = call.label[group.first + i], weight = call.weight[group.first + i];
        if (call.loss == Loss::softmax) start[(int64_t)label] += weight;
        else start[0] += weight * label;
    }
    double lane[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    for (int64_t c = 0; c < call.outputs; c++) {
        double share = start[c] / group.total;
        if (call.loss == Loss::poisson) lane[0] = share < smallest_mean ? smallest_mean : share;
        else {
            share = share < smallest_share ? smallest_share : share > 1 - smallest_share ? 1 - smallest_share : share;
            lane[0] = call.loss == Loss::logistic ? share / (1 - share) : share;
        }
        double logarithms[8];
        store(logarithms, logarithm(load(lane)));
        start[c] = logarithms[0];
    }
}

/// Fill in what is known of a group; false where its sums overflow or nothing weighs anything.
bool look_at(const Call &call, Group &group) {
    group.total = 0;
    for (int64_t i = 0; i < group.rows; i++) group.total += call.weight[group.first + i];
    if (!(group.total > 0) || !std::isfinite(group.total)) return false;
    group.scale = power_of_two_near(group.total / (double)group.rows);
    for (int64_t i = 0; i < group.rows; i++) group.weight[i] = call.weight[group.first + i] / group.scale;
    sum_columns(call, group, nullptr, false, group.mean);
    for (int64_t j = 0; j < call.columns; j++) group.mean[j] /= group.total;
    const double *about = call.fit_intercept ? (const double *)group.mean : nullptr;
    sum_columns(call, group, about, true, group.inverse);
    for (int64_t j = 0; j < call.columns; j++) {
        double square = group.inverse[j], mean = about ? about[j] : 0;
        if (!std::isfinite(square)) return false;
        bool varies = square > 0 && square > constant_below * group.total * mean * mean;
        group.inverse[j] = varies ? __builtin_sqrt(group.total) / __builtin_sqrt(square) : 0;
        if (!call.fit_intercept) group.mean[j] = 0;
    }
    starting_scores(call, group);
    if (call.loss == Loss::poisson) count_constants(call.label + group.first, group.rows, group.constant);
    return true;
}

/// The standardised rows of a group, numbers ``apart`` from each other.
template <class V> void standardise(const Call &call, const Group &group, int64_t apart, Number<V> *z) {
    for (int64_t row = group.first; row < group.first + group.rows; row++) {
        for (int64_t j = 0; j < call.columns; j++, z += apart) *z = (Number<V>)((call.x(row, j) - group.mean[j]) * group.inverse[j]);
        if (call.fit_intercept) *z = 1, z += apart;
    }
}

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
/// A step beyond this is none.
constexpr double farthest = 1e30;
/// Lanes of which each by itself takes less time than all together.
constexpr int few = 6;
/// The most lanes there are.
constexpr int most_lanes = 16;
/// Steps after which second derivatives are taken anew: they take the time of a pass for every four columns.
constexpr int patience = 4;
/// The most steps that are remembered, those of both stages.
constexpr int most_steps = 2 * patience;
/// Second derivatives are taken anew, too, where their sum has become that many times as large or as small.
constexpr double other_bend = 3;

/// A model in training that is not in the lanes of a register.
struct Model {
    double value = 0, reached = 0, fall = 0, descent = 0, length = 1;
    double bend = 0, bend_then = 0; // the sum of second derivatives by scores, now and where ``chol`` is from
    bool active = false, accepted = false, converged = false, failed = false, sparse = false, uncounted = true;
    bool trusted = false, doubtful = false, shortened = false;
    int64_t passes = 0;
    int retries = 0, age = 0, steps = 0; // steps since ``chol`` of this stage, and those that are remembered
};

/// What a lane trains.
struct Seat {
    const Group *group;
    int64_t config;
};

/// Up to a lane's count of models in training: configs of one group, or of several small ones.
template <class V> struct Batch {
    static constexpr int width = Lanes<V>::count;
    using N = Number<V>;
    const Call &call;
    const Stage &stage;
    int64_t p, size, rows = 0, stride = 0;
    int lanes = 0;
    bool own = false; // whether lanes have groups of their own
    Seat seat[most_lanes];
    Model model[most_lanes];
    // By parameter and lane: where the models are, where their steps lead, and where they are evaluated.
    Scratch<N> point, goal, trial, slope, step, moved;
    Scratch<N> hessian, chol, face;             // lower triangles
    Scratch<N> z, label, weight, constant;      // rows; all but ``z`` where lanes have their own
    Scratch<N> curvature, tile_gradient, score, scaled;
    Scratch<N> changes, bends, inner;           // the last steps, what they changed of the slope, 1 / (their product) or 0
    Scratch<double> gradient, ridge, penalty;
    int64_t standardised = -1;                             // the group whose rows ``z`` has
    double bent[most_lanes] = {};                          // the sum of second derivatives at ``trial``
    double share = 1;                                      // the weight of the group over that of every ``stride``-th row

    Batch(const Call &call, const Stage &stage) : call(call), stage(stage), p(call.parameters()), size(call.size()) {}

    bool reserve() {
        int64_t here = size * width, lower = triangle(size) * width;
        return point.reserve(here) && goal.reserve(here) && trial.reserve(here) && slope.reserve(here) && step.reserve(here) &&
               moved.reserve(here) && hessian.reserve(lower) && chol.reserve(lower) && face.reserve(lower) &&
               changes.reserve(most_steps * here) && bends.reserve(most_steps * here) && inner.reserve(most_steps * width) &&
               tile_gradient.reserve(here) && score.reserve(rows_abreast * call.outputs * width) && gradient.reserve(here) &&
               ridge.reserve(here) && penalty.reserve(here);
    }

    const Group &group() const { return *seat[0].group; }
    int64_t sampled() const { return (rows + stride - 1) / stride; }

    /// Take second derivatives from every ``every``-th row from now on.
    bool choose(int64_t every) {
        if (every == stride) return true;
        stride = every;
        if (!own && !scaled.reserve(sampled() * p)) return false;
        if (!curvature.reserve(sampled() * call.outputs * (call.outputs + 1) / 2 * width)) return false;
        double whole = 0, part = 0;
        for (int64_t i = 0; every > 1 && i < rows; i++) {
            whole += group().weight[i];
            part += i % every ? 0 : group().weight[i];
        }
        share = part > 0 ? whole / part : 1;
        return true;
    }

    /// Standardise the rows of the groups that have a seat.
    bool lay_out() {
        if (!own) {
            if (standardised == group().number) return true;
            standardised = group().number;
            if (!z.reserve(rows * p + most_lanes)) return false;
            standardise<V>(call, group(), 1, z);
            return true;
        }
        standardised = -1;
        if (!z.reserve(rows * p * width) || !label.reserve(rows * width) || !weight.reserve(rows * width) || !constant.reserve(rows * width))
            return false;
        for (auto each : {&label, &weight, &constant}) each->clear(rows * width);
        z.clear(rows * p * width);
        for (int lane = 0; lane < lanes; lane++) {
            const Group &mine = *seat[lane].group;
            standardise<V>(call, mine, width, z + lane);
            for (int64_t i = 0; i < mine.rows; i++) {
                label[i * width + lane] = (N)call.label[mine.first + i];
                weight[i * width + lane] = (N)mine.weight[i];
                if (call.loss == Loss::poisson) constant[i * width + lane] = (N)mine.constant[i];
            }
        }
        return true;
    }

    /// Give models their seats, ``count`` of them; lanes beyond the last repeat it and stay idle.
    bool begin(const Seat *seats, int count) {
        lanes = count < width ? count : width;
        own = false;
        rows = stride = 0;
        for (int lane = 0; lane < width; lane++) {
            seat[lane] = seats[lane < lanes ? lane : lanes - 1];
            own = own || seat[lane].group != seat[0].group;
            if (seat[lane].group->rows > rows) rows = seat[lane].group->rows;
            const Group &mine = *seat[lane].group;
            double l1 = call.l1[seat[lane].config], l2 = call.l2[seat[lane].config];
            model[lane] = Model();
            model[lane].active = lane < lanes;
            model[lane].sparse = l1 > 0;
            for (int64_t k = 0; k < size; k++) {
                int64_t j = k % p;
                double inverse = j < call.columns ? mine.inverse[j] : 0;
                ridge[k * width + lane] = l2 / mine.scale * inverse * inverse;
                penalty[k * width + lane] = l1 / mine.scale * inverse;
                trial[k * width + lane] = (N)(j < call.columns ? 0 : mine.start[k / p]);
            }
        }
        inner.clear(most_steps * width);
        changes.clear(most_steps * size * width);
        bends.clear(most_steps * size * width);
        return lay_out();
    }

    /// Call ``work`` with the rows, in the form that they have.
    template <class Work> void with_rows(Work work) const {
        if (own) work(Own<V>{z, label, weight, constant, p});
        else work(Shared<V>{z, call.label + group().first, group().weight, group().constant, p});
    }

    /// Objectives at ``trial`` into the models, and their gradients, penalties l2 included.
    void evaluate() {
        double loss[most_lanes] = {}, bend[most_lanes] = {};
        gradient.clear(size * width);
        for (int64_t first = 0; first < rows; first += tile_rows) {
            tile_gradient.clear(size * width);
            Sums<V> sums = {zero<V>(), zero<V>(), tile_gradient, curvature, stride};
            int64_t last = rows - first < tile_rows ? rows : first + tile_rows;
            with_rows([&](const auto &those) { pass_tile(call.loss, those, first, last, call.outputs, trial, score, sums); });
            N part[width];
            store(part, sums.loss);
            for (int lane = 0; lane < width; lane++) loss[lane] += (double)part[lane];
            store(part, sums.bend);
            for (int lane = 0; lane < width; lane++) bend[lane] += (double)part[lane];
            for (int64_t k = 0; k < size * width; k++) gradient[k] += (double)tile_gradient[k];
        }
        for (int64_t k = 0; k < size; k++)
            for (int lane = 0; lane < width; lane++) {
                int64_t at = k * width + lane;
                double u = trial[at], pull = ridge[at] * u;
                loss[lane] += penalty[at] * __builtin_fabs(u) + 0.5 * pull * u;
                gradient[at] += pull;
            }
        for (int lane = 0; lane < width; lane++) model[lane].reached = loss[lane], bent[lane] = bend[lane];
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
            if (!m.active) continue;
            if (!(first && m.uncounted)) m.passes++;
            double bound = m.value + sufficient * m.length * m.descent + stage.rounding * __builtin_fabs(m.value);
            m.accepted = std::isfinite(m.reached) && finite[lane] == 0 && (first || m.reached <= bound);
            if (m.accepted) {
                m.value = m.reached;
                m.bend = bent[lane];
                m.age += !first;
                m.shortened = m.retries > 0;
            } else if (first) m.failed = true, m.active = false;
            else {
                m.length *= 0.5;
                if (++m.retries > stage.retries) m.active = false;
            }
            const Group &mine = *seat[lane].group;
            if (m.passes > 0) call.curve[((m.passes - 1) * call.groups + mine.number) * call.configs + seat[lane].config] = m.value * mine.scale;
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

    /// Keep the step of the accepted lanes to ``trial``, and by how much the slope became ``moved``, where it curved upward.
    void remember() {
        for (int slot = most_steps - 1; slot >= 0; slot--) { // downward: a lane's count grows in its own
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
            for (int lane = 0; lane < width; lane++)
                if (here[lane] > 0) model[lane].steps = slot + 1;
        }
    }

    static V rounded(const double *a) {
        if constexpr (width == 16) return narrow(load(a), load(a + 8));
        else return load(a);
    }

    /// The eight lanes from ``half`` on.
    static D eight(const N *a, int half) {
        if constexpr (width == 16) return half ? high(load(a)) : low(load(a));
        else return load(a + half);
    }

    V mask_of(bool Model::*flag) const {
        N lane[width];
        for (int i = 0; i < width; i++) lane[i] = model[i].*flag ? 1 : 0;
        return load(lane);
    }

    /// The second derivatives at the accepted points into ``hessian``, where lanes want them or at the point ``common`` to
    /// all; a direction without any has 1.
    void differentiate(bool common) {
        N *into = hessian;
        int wanted = 0;
        for (int lane = 0; lane < width; lane++) wanted += wants(model[lane]);
        auto of = [&](int lane, auto place) {
            Shared<V> those = {z, nullptr, nullptr, nullptr, p};
            sum_curvature_of(lane, sample(those, (const N *)curvature, sampled(), stride, call.outputs), scaled, place);
        };
        if (common && !own) of(0, [into](int64_t at, N value) { store(into + at * width, all(value)); });
        else if (own || wanted > few)
            with_rows([&](const auto &those) { sum_curvature(sample(those, (const N *)curvature, sampled(), stride, call.outputs), into); });
        else
            for (int lane = 0; lane < width; lane++)
                if (wants(model[lane])) of(lane, [into, lane](int64_t at, N value) { into[at * width + lane] = value; });
        if (stride > 1)
            for (int64_t at = 0; at < triangle(size); at++) store(hessian + at * width, load(hessian + at * width) * all<V>(share));
        if (call.outputs > 1) close_softmax();
        for (int64_t k = 0; k < size; k++) {
            N *diagonal = hessian + (triangle(k) + k) * width;
            N pull[width];
            for (int lane = 0; lane < width; lane++) {
                double r = ridge[k * width + lane];
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
        int64_t outputs = call.outputs;
        for (int64_t k = 0; k < p; k++) {
            V mean = zero<V>();
            for (int64_t a = 0; a < outputs; a++) mean += load(hessian + (triangle(a * p + k) + a * p + k) * width);
            V smooth = k < call.columns ? without_l1 : all<V>(1);
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
        if (!m.accepted) return false;
        return m.sparse || !m.trusted || m.shortened || m.age >= patience || m.bend_then > other_bend * m.bend ||
               m.bend > other_bend * m.bend_then;
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
        }
        auto mine = zero<V>() < load(wanted);
        for (int64_t at = 0; at < triangle(size); at++)
            store(chol + at * width, select(mine, load(face + at * width), load(chol + at * width)));
        for (int i = 0; i < most_steps; i++) store(inner + i * width, select(mine, zero<V>(), load(inner + i * width)));
    }

    /// Turn slopes into steps by the inverse of ``chol``, updated by the steps since (Nocedal & Wright 2006, algorithm 7.4).
    void approach(N *right) {
        N share[most_steps * width];
        int last = 0;
        for (int lane = 0; lane < width; lane++)
            if (model[lane].accepted && model[lane].steps > last) last = model[lane].steps;
        for (int slot = last - 1; slot >= 0; slot--) {
            const N *change = changes + slot * size * width, *bend = bends + slot * size * width;
            V factor = load(inner + slot * width) * product(change, right);
            store(share + slot * width, factor);
            for (int64_t k = 0; k < size; k++) store(right + k * width, fnma(factor, load(bend + k * width), load(right + k * width)));
        }
        solve<V>(chol, size, right);
        for (int slot = 0; slot < last; slot++) {
            const N *change = changes + slot * size * width, *bend = bends + slot * size * width;
            V factor = fnma(load(inner + slot * width), product(bend, right), load(share + slot * width));
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
        if (sparse) minimise(smooth);
        double along[width], bent[width], pulled[width];
        promise(along, bent, pulled);
        auto mine = zero<V>() < mask_of(&Model::accepted);
        for (int64_t k = 0; k < size; k++) store(goal + k * width, select(mine, load(step + k * width), load(goal + k * width)));
        for (int lane = 0; lane < width; lane++) {
            Model &m = model[lane];
            if (!m.accepted) continue;
            m.descent = along[lane] + pulled[lane];
            m.fall = m.sparse ? -(m.descent + 0.5 * bent[lane]) : -0.5 * along[lane];
            m.length = 1;
            m.retries = 0;
            if (std::isfinite(m.fall)) continue;
            // No direction: where curvature has vanished there is nothing left to gain, or nothing that this precision tells.
            m.fall = m.descent = 0;
            m.trusted = false;
            for (int64_t k = 0; k < size; k++) goal[k * width + lane] = point[k * width + lane];
        }
    }

    /// Of the way from ``point`` to ``step`` in double precision: the slope along it, its curvature, what it adds to penalties.
    void promise(double *along, double *bent, double *pulled) const {
        for (int half = 0; half < width; half += 8) {
            D slopes = zero<D>(), curves = zero<D>(), penalties = zero<D>();
            for (int64_t k = 0; k < size; k++) {
                int64_t at = k * width;
                D from = eight(point + at, half), to = eight(step + at, half), change = to - from;
                slopes = fma(load(gradient + at + half), change, slopes);
                curves = fma(eight(moved + at, half), change, curves);
                penalties = fma(load(penalty + at + half), grouplearn::size(to) - grouplearn::size(from), penalties);
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
        for (int round = 0; round < stage.model_rounds && any(open); round++) {
            V gain = zero<V>(), flips = zero<V>();
            for (int64_t k = 0; k < size; k++) descend(k, open, gain, flips);
            total += gain;
            open = open & !(gain <= all<V>(stage.model_share) * total);
            if (round) solve_face(open & (flips <= zero<V>()));
        }
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

    /// moved += hessian's column ``k`` times ``change``.
    void bend_by(int64_t k, V change) {
        const N *line = hessian + triangle(k) * width;
        for (int64_t i = 0; i <= k; i++) store(moved + i * width, fma(load(line + i * width), change, load(moved + i * width)));
        for (int64_t i = k + 1; i < size; i++)
            store(moved + i * width, fma(load(hessian + (triangle(i) + k) * width), change, load(moved + i * width)));
    }

    /// Newton's step on the weights that are not zero, as far as the first of them that it makes zero.
    template <class Mask> void solve_face(Mask open) {
        if (!any(open)) return;
        N *right = trial; // free until the next trial point
        V one = all<V>(1);
        for (int64_t k = 0; k < size; k++) {
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
        if (!any(open)) return;
        for (int64_t k = 0; k < size; k++) {
            V at = load(step + k * width), way = load(right + k * width);
            V part = share_until_zero(at, way, k);
            V change = select((part < one) & (part <= share), minus(at), way * share);
            change = select(open, change, zero<V>());
            store(step + k * width, at + change);
            bend_by(k, change);
        }
    }

    /// How much of its way a penalised weight may go before it changes its sign, at most all of it.
    V share_until_zero(V at, V way, int64_t k) const {
        V one = all<V>(1);
        auto ends = (zero<V>() < pen(k)) & (zero<V>() < size_of(at)) & !(zero<V>() < at * (at + way));
        return select(ends, smaller(at / minus(way), one), one);
    }

    /// End what is finished; where nothing says more, models go to the end of their steps or to a part of it.
    bool go_on() {
        bool some = false;
        N whole[width], length[width];
        for (int lane = 0; lane < width; lane++) {
            Model &m = model[lane];
            if (m.active && m.accepted) {
                double bound = stage.tolerance * call.tolerance[seat[lane].config] * __builtin_fabs(m.value);
                // Where curvature has become less than it was, a step leads farther down than it promises.
                double promised = m.fall * (m.bend_then > m.bend && m.bend > 0 ? m.bend_then / m.bend : 1);
                if (promised <= bound || !(m.descent < 0)) {
                    m.converged = true;
                    m.active = false;
                }
            }
            if (m.passes >= call.limit) m.active = false;
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

    /// Every how many rows second derivatives are taken from in the given iteration.
    int64_t stride_at(int64_t iteration) const {
        int64_t wanted = sampled_per_parameter * size;
        if (wanted < fewest_sampled) wanted = fewest_sampled;
        for (int64_t later = iteration; later >= 8 && wanted < rows; later -= 6) wanted *= 4;
        return rows / wanted > 1 ? rows / wanted : 1;
    }

    /// Train the active lanes from ``trial`` on, which is ``common`` to all of them or not. 0, or why it could not.
    int train(bool common, Watch watch) {
        for (int64_t iteration = 0;; iteration++) {
            if (!choose(stride_at(iteration))) return 2;
            evaluate();
            if (judge(iteration == 0)) {
                bool needed = false;
                for (int lane = 0; lane < width; lane++) needed = needed || wants(model[lane]);
                if (needed) {
                    differentiate(common && iteration == 0);
                    factorise();
                }
                aim();
            }
            if (!go_on()) return 0;
            if (watch(0)) return 1;
        }
    }
};

/// Let a batch in double precision go on with what lanes of one in single precision found.
void hand_on(Batch<F> &from, Batch<D> &to, int offset) {
    for (int lane = 0; lane < to.lanes; lane++) {
        const Model &was = from.model[offset + lane];
        Model &now = to.model[lane];
        now.passes = was.passes;
        now.trusted = was.trusted && !was.doubtful && !was.failed && !was.sparse;
        now.bend_then = was.bend_then;
        now.steps = was.steps;
        now.uncounted = !was.failed; // it has been there
        if (was.failed) continue;
        for (int64_t k = 0; k < to.size; k++) {
            int64_t at = k * Lanes<F>::count + offset + lane;
            to.trial[k * Lanes<D>::count + lane] = from.point[at]; // the end of its last step nobody has evaluated
        }
    }
    auto half = [offset](const float *from, double *to, int64_t count) {
        for (int64_t at = 0; at < count; at++) {
            F both = load(from + at * Lanes<F>::count);
            store(to + at * Lanes<D>::count, offset ? high(both) : low(both));
        }
    };
    half(from.chol, to.chol, triangle(to.size));
    half(from.changes, to.changes, most_steps * to.size);
    half(from.bends, to.bends, most_steps * to.size);
    half(from.inner, to.inner, most_steps);
}

/// Write the models of a finished batch, on the features as written.
void write(const Batch<D> &batch, const Call &call) {
    for (int lane = 0; lane < batch.lanes; lane++) {
        const Model &m = batch.model[lane];
        const Group &group = *batch.seat[lane].group;
        int64_t trial = group.number * call.configs + batch.seat[lane].config;
        call.value[trial] = m.failed ? (double)NAN : m.value * group.scale;
        call.passes[trial] = m.passes > 0 ? m.passes : 1;
        if (m.passes == 0) call.curve[trial] = call.value[trial];
        call.converged[trial] = !m.failed && (m.converged || m.passes < call.limit);
        for (int64_t c = 0; c < call.outputs; c++) {
            const double *point = batch.point + c * batch.p * Lanes<D>::count + lane;
            double *weights = call.weights + (trial * call.outputs + c) * call.columns;
            double shift = 0;
            for (int64_t j = 0; j < call.columns; j++) {
                weights[j] = m.failed ? (double)NAN : point[j * Lanes<D>::count] * group.inverse[j];
                shift += weights[j] * group.mean[j];
            }
            double intercept = call.fit_intercept && !m.failed ? point[call.columns * Lanes<D>::count] : 0;
            call.intercept[trial * call.outputs + c] = call.fit_intercept ? intercept - shift : 0;
        }
    }
}

/// What of a group is no number: its models are not.
void write_nothing(const Call &call, const Group &group) {
    for (int64_t c = 0; c < call.configs; c++) {
        int64_t trial = group.number * call.configs + c;
        call.value[trial] = (double)NAN;
        call.curve[trial] = (double)NAN;
        call.passes[trial] = 1;
        call.converged[trial] = 0;
        for (int64_t k = 0; k < call.outputs * call.columns; k++) call.weights[trial * call.outputs * call.columns + k] = (double)NAN;
        for (int64_t k = 0; k < call.outputs; k++) call.intercept[trial * call.outputs + k] = (double)NAN;
    }
}

/// Train the models of some seats, at most those of a lane's count.
int solve_seats(const Call &call, const Seat *seats, int count, Batch<F> &coarse, Batch<D> &fine, Watch watch) {
    bool single = call.loss != Loss::poisson; // large counts need double precision from the first step on
    if (single) {
        if (!coarse.begin(seats, count)) return 2;
        if (int stopped = coarse.train(true, watch)) return stopped;
    }
    for (int offset = 0; offset < count; offset += Lanes<D>::count) {
        if (!fine.begin(seats + offset, count - offset)) return 2;
        if (single) hand_on(coarse, fine, offset);
        if (int stopped = fine.train(!single, watch)) return stopped;
        write(fine, call);
        int64_t passes = 0;
        for (int lane = 0; lane < fine.lanes; lane++) passes += fine.model[lane].passes;
        if (watch(passes)) return 1;
    }
    return 0;
}

/// Whether the rows of a group may stand beside those of others, each in lanes of its own: they take that many times the memory.
bool is_small(const Call &call, int64_t rows) { return rows <= fewest_sampled && rows * call.parameters() <= most_beside; }

} // namespace

/// Train every config on every group: 0 when done, 1 when ``watch`` said stop, 2 without memory.
GROUPLEARN_ENTRY int solve_generalised_linear(const float *x_single, const double *x_double, int64_t columns, const double *label,
                                              const double *weight, const int64_t *start, int64_t groups, int64_t loss, int64_t outputs,
                                              int64_t fit_intercept, const double *l1, const double *l2, const double *tolerance,
                                              int64_t configs, int64_t limit, double *weights, double *intercept, double *value,
                                              int64_t *passes, uint8_t *converged, double *curve, Watch watch) {
    Arithmetic arithmetic;
    Call call = {x_single, x_double, columns,   label, weight, start,     groups, outputs, fit_intercept, configs,   limit,
                 (Loss)loss, l1,     l2,        tolerance, weights, intercept, value,  passes,  converged,     curve};
    Group group[most_lanes];
    Seat seat[most_lanes];
    Batch<F> coarse(call, single_stage);
    Batch<D> fine(call, double_stage);
    if (!coarse.reserve() || !fine.reserve()) return 2;
    int beside = 0, seats = 0; // groups and their models that wait for others
    auto solve_waiting = [&] {
        int count = seats;
        beside = seats = 0;
        return count ? solve_seats(call, seat, count, coarse, fine, watch) : 0;
    };
    for (int64_t number = 0; number < groups; number++) {
        int64_t rows = start[number + 1] - start[number];
        bool small = is_small(call, rows);
        if (!small || seats + configs > most_lanes)
            if (int stopped = solve_waiting()) return stopped;
        Group &mine = group[beside];
        mine.number = number;
        mine.first = start[number];
        mine.rows = rows;
        if (!mine.reserve(call, rows)) return 2;
        if (!look_at(call, mine)) {
            write_nothing(call, mine);
            continue;
        }
        for (int64_t config = 0; config < configs; config++) {
            seat[seats++] = {&mine, config};
            bool full = seats == most_lanes || (config + 1 == configs && !small);
            if (full)
                if (int stopped = solve_waiting()) return stopped;
        }
        beside += seats > 0;
    }
    return solve_waiting();
}

} // namespace grouplearn::generalised_linear
