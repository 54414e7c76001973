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
#include "lanes/entry.hpp"
#include "linear/generalised_linear/newton.hpp"
#include <algorithm>

namespace grouplearn::generalised_linear {
namespace {

constexpr int64_t tile_rows = 256;
/// Numbers of a group that may stand beside other groups, at most.
constexpr int64_t most_beside = 1 << 16;
/// The share of a column's sum of squares from which on a row outweighs all others.
constexpr double outweighs = 0.25;

struct Call {
    const float *x_single; // one of the two
    const double *x_double;
    int64_t columns;
    const double *label, *weight;
    const int64_t *start;
    int64_t groups, outputs, fit_intercept, configs, limit;
    Loss loss;
    const double *l1, *l2, *tolerance;
    const double *from_weights, *from_intercept; // where groups begin (G, K, d) and (G, K), null: without weights
    int64_t held; // the column whose weight stays as it begins, -1 for none
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
    Scratch<double> mean, inverse, largest, weight, constant, start, begin, sorted;

    bool reserve(const Call &call, int64_t rows) {
        return mean.reserve(call.columns) && inverse.reserve(call.columns) && largest.reserve(call.columns) && weight.reserve(rows) &&
               constant.reserve(rows + 8) && start.reserve(call.outputs) && begin.reserve(call.size()) && sorted.reserve(rows);
    }
};

/// Σ weight·x over rows by columns, less ``about``; with ``largest`` of squares, and the largest of these.
void sum_columns(const Call &call, const Group &group, const double *about, double *sum, double *largest) {
    for (int64_t j = 0; j < call.columns; j++) sum[j] = 0;
    for (int64_t j = 0; largest && j < call.columns; j++) largest[j] = 0;
    Looks looks;
    for (int64_t i = 0; i < group.rows && !looks.stop(call.columns / 2 + 1); i++) {
        double weight = call.weight[group.first + i];
        for (int64_t j = 0; j < call.columns; j++) {
            double a = call.x(group.first + i, j) - (about ? about[j] : 0);
            sum[j] = __builtin_fma(weight * a, largest ? a : 1.0, sum[j]);
            if (largest && weight * a * a > largest[j]) largest[j] = weight * a * a;
        }
    }
}

/// Centre columns of which one row has more than ``outweighs`` of the sum of squares about the mean at their (lower) median. The mean is
/// drawn away by that row, all others are next to equal about it, so that columns are, too, and with l1 models creep. The intercept takes
/// up any centre.
void centre(const Call &call, Group &group) {
    double *first = group.sorted, *middle = first + (group.rows - 1) / 2;
    Looks looks;
    for (int64_t j = 0; j < call.columns; j++) {
        if (!(group.largest[j] > outweighs * group.inverse[j])) continue;
        if (looks.stop(8 * group.rows)) return;
        for (int64_t i = 0; i < group.rows; i++) first[i] = call.x(group.first + i, j);
        std::nth_element(first, middle, first + group.rows);
        group.mean[j] = *middle;
    }
}

/// Where no weight says anything: the scores of the mean label, the least mean of squared hinges, or 0.
void starting_scores(const Call &call, Group &group) {
    double *start = group.start;
    for (int64_t c = 0; c < call.outputs; c++) start[c] = 0;
    if (!call.fit_intercept) return;
    for (int64_t i = 0; i < group.rows; i++) {
        double label = call.label[group.first + i], weight = call.weight[group.first + i];
        if (losses::of_all_scores(call.loss)) start[(int64_t)label] += weight;
        else start[0] += weight * label;
    }
    for (int64_t c = 0; c < call.outputs; c++) {
        double mean = start[c] / group.total;
        start[c] = losses::with(call.loss, [mean](auto kind) { return decltype(kind)::start(mean); });
    }
}

/// Where the models of a group begin: without weights, or at those that are given.
void place(const Call &call, Group &group) {
    int64_t p = call.parameters();
    for (int64_t k = 0; k < call.size(); k++) group.begin[k] = k % p < call.columns ? 0 : group.start[k / p];
    if (!call.from_weights) return;
    const double *weights = call.from_weights + group.number * call.outputs * call.columns;
    read_model(weights, call.from_intercept + group.number * call.outputs, group.mean, group.inverse, call.columns, call.outputs,
               call.fit_intercept, group.begin);
}

/// Fill in what is known of a group; false where its sums overflow or nothing weighs anything.
bool look_at(const Call &call, Group &group) {
    group.total = 0;
    for (int64_t i = 0; i < group.rows; i++) group.total += call.weight[group.first + i];
    if (!(group.total > 0) || !std::isfinite(group.total)) return false;
    group.scale = power_of_two_near(group.total / (double)group.rows);
    for (int64_t i = 0; i < group.rows; i++) group.weight[i] = call.weight[group.first + i] / group.scale;
    sum_columns(call, group, nullptr, group.mean, nullptr);
    for (int64_t j = 0; j < call.columns; j++) group.mean[j] /= group.total;
    const double *about = call.fit_intercept ? (const double *)group.mean : nullptr;
    sum_columns(call, group, about, group.inverse, group.largest);
    if (call.fit_intercept) centre(call, group);
    for (int64_t j = 0; j < call.columns; j++) {
        double square = group.inverse[j], centre = about ? about[j] : 0;
        if (!std::isfinite(square)) return false;
        group.inverse[j] = inverse_spread(square, group.total, centre);
        if (!call.fit_intercept) group.mean[j] = 0;
    }
    starting_scores(call, group);
    place(call, group);
    if (has_constant(call.loss)) losses::constants(call.loss, call.label + group.first, group.rows, group.constant);
    return true;
}

/// The standardised rows of a group, numbers ``apart`` from each other.
template <class V> void standardise(const Call &call, const Group &group, int64_t apart, Number<V> *z) {
    Looks looks;
    for (int64_t row = group.first; row < group.first + group.rows && !looks.stop(call.columns / 2 + 1); row++) {
        for (int64_t j = 0; j < call.columns; j++, z += apart) *z = (Number<V>)((call.x(row, j) - group.mean[j]) * group.inverse[j]);
        if (call.fit_intercept) *z = 1, z += apart;
    }
}

/// What a lane trains.
struct Seat {
    const Group *group;
    int64_t config;
};

/// Up to a lane's count of models in training: configs of one group, or of several small ones.
template <class V> struct Batch : Newton<V> {
    using Base = Newton<V>;
    using typename Base::N;
    using Base::width, Base::p, Base::size, Base::slots, Base::model, Base::trial, Base::hessian, Base::chol, Base::gradient, Base::bent,
        Base::wants, Base::smoothing, Base::exact, Base::mass;
    const Call &call;
    int64_t rows = 0, stride = 0;
    int lanes = 0;
    bool own = false; // whether lanes have groups of their own
    Seat seat[most_lanes];
    Scratch<N> z, label, weight, constant; // rows; all but ``z`` where lanes have their own
    Scratch<N> curvature, tile_gradient, score, scaled;
    int64_t standardised = -1; // the group whose rows ``z`` has
    double share = 1;          // the weight of the group over that of every ``stride``-th row

    Batch(const Call &call, const Stage &stage)
        : Base(stage, call.columns, call.outputs, call.fit_intercept, most_steps, true, call.limit), call(call) {
        this->expect(call.loss);
        this->held = call.held;
    }

    bool reserve() {
        return Base::reserve() && tile_gradient.reserve(size * width) && score.reserve(rows_abreast * call.outputs * width);
    }

    const Group &group() const { return *seat[0].group; }
    int64_t sampled() const { return (rows + stride - 1) / stride; }

    /// Take second derivatives from every ``every``-th row from now on.
    bool choose(int64_t every) {
        this->of_some = every > 1;
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
                if (has_constant(call.loss)) constant[i * width + lane] = (N)mine.constant[i];
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
            model[lane].few = call.held < 0 && (l1 > 0 || l2 > 0) && are_few(call.loss, call.outputs, mine.rows, call.columns) && call.limit > passes_of_few;
            smoothing[lane] = first_smoothing;
            mass[lane] = mine.total / mine.scale;
            model[lane].tolerance = call.tolerance[seat[lane].config];
            this->set_penalties(lane, l1, l2, mine.scale, mine.inverse);
            for (int64_t k = 0; k < size; k++) trial[k * width + lane] = (N)mine.begin[k];
        }
        this->forget();
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
        Objective<V> objective = {call.loss, Base::rounded(smoothing)};
        for (int lane = 0; lane < width; lane++) exact[lane] = 0;
        gradient.clear(size * width);
        for (int64_t first = 0; first < rows && !stopped(); first += tile_rows) {
            tile_gradient.clear(size * width);
            Sums<V> sums = {zero<V>(), zero<V>(), zero<V>(), tile_gradient, curvature, stride};
            int64_t last = rows - first < tile_rows ? rows : first + tile_rows;
            with_rows([&](const auto &those) { pass_tile(objective, those, first, last, call.outputs, trial, score, sums); });
            N part[width];
            store(part, sums.loss);
            for (int lane = 0; lane < width; lane++) loss[lane] += (double)part[lane];
            store(part, sums.bend);
            for (int lane = 0; lane < width; lane++) bend[lane] += (double)part[lane];
            store(part, sums.exact);
            for (int lane = 0; lane < width; lane++) exact[lane] += (double)part[lane];
            for (int64_t k = 0; k < size * width; k++) gradient[k] += (double)tile_gradient[k];
        }
        this->penalise(loss);
        for (int lane = 0; lane < width; lane++) model[lane].reached = loss[lane], bent[lane] = bend[lane];
    }

    /// The second derivatives at the accepted points, penalties left out, into ``hessian``, where lanes want them or at the point
    /// ``common`` to all.
    void differentiate(bool common) {
        N *into = hessian;
        if (common && !own) {
            Shared<V> those = {z, nullptr, nullptr, nullptr, p};
            auto everywhere = [into](int64_t at, N value) { store(into + at * width, all(value)); };
            sum_curvature_of(0, sample(those, (const N *)curvature, sampled(), stride, call.outputs), scaled, everywhere);
        } else {
            bool wanted[most_lanes];
            for (int lane = 0; lane < width; lane++) wanted[lane] = wants(model[lane]);
            with_rows([&](const auto &those) {
                sum_curvature_where(wanted, sample(those, (const N *)curvature, sampled(), stride, call.outputs), (N *)scaled, into);
            });
        }
        if (stride > 1)
            for (int64_t at = 0; at < triangle(size); at++) store(hessian + at * width, load(hessian + at * width) * all<V>(share));
    }

    /// The objectives that the lanes have reached, into their curves.
    void note() const {
        for (int lane = 0; lane < lanes; lane++) {
            const Model &m = model[lane];
            if (!m.judged || m.passes == 0) continue;
            int64_t trial = seat[lane].group->number * call.configs + seat[lane].config;
            call.curve[(m.passes - 1) * call.groups * call.configs + trial] = m.objective * seat[lane].group->scale;
        }
    }

    /// Train the active lanes from ``trial`` on, which is ``common`` to all of them or not. 0, or why it could not.
    int train(bool common, Watch watch) {
        for (int64_t iteration = 0;; iteration++) {
            if (!choose(stride_at(rows, size, iteration, this->fewest))) return 2;
            evaluate();
            if (stopped()) return 1;
            bool some = this->advance(iteration == 0, [&] { differentiate(common && iteration == 0); });
            if (stopped()) return 1;
            note();
            if (!some) return 0;
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
        now.damping = was.damping;
        now.damped = was.damped;
        now.sampled = was.sampled;
        now.uncounted = !was.failed; // it has been there
        if (was.failed) continue;
        for (int64_t k = 0; k < to.size; k++) {
            if (k == to.held) continue; // it keeps all its digits
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
        call.value[trial] = m.failed ? (double)NAN : m.objective * group.scale;
        call.passes[trial] = m.passes > 0 ? m.passes : 1;
        if (m.passes == 0) call.curve[trial] = call.value[trial];
        call.converged[trial] = m.converged;
        double *weights = call.weights + trial * call.outputs * call.columns, *intercept = call.intercept + trial * call.outputs;
        write_model(batch.point + lane, Lanes<D>::count, group.mean, group.inverse, call.columns, call.outputs, call.fit_intercept, weights,
                    intercept);
        if (!m.failed) continue;
        for (int64_t k = 0; k < call.outputs * call.columns; k++) weights[k] = (double)NAN;
        for (int64_t k = 0; k < call.outputs; k++) intercept[k] = call.fit_intercept ? (double)NAN : 0;
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
    bool single = losses::begins_single(call.loss);
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

/// Train every config on every group, from weights that are given or without any: 0 when done, 1 when ``watch`` said stop, 2 without memory.
GROUPLEARN_ENTRY int solve_generalised_linear(const float *x_single, const double *x_double, int64_t columns, const double *label,
                                              const double *weight, const int64_t *start, int64_t groups, int64_t loss, int64_t outputs,
                                              int64_t fit_intercept, const double *l1, const double *l2, const double *tolerance,
                                              int64_t configs, int64_t limit, const double *from_weights, const double *from_intercept, int64_t held,
                                              double *weights, double *intercept, double *value,
                                              int64_t *passes, uint8_t *converged, double *curve, Watch watch) {
    Arithmetic arithmetic;
    Call call = {x_single, x_double, columns,   label, weight, start,     groups, outputs, fit_intercept, configs,   limit,
                 (Loss)loss, l1,     l2,        tolerance, from_weights, from_intercept, held, weights, intercept, value,  passes,  converged,     curve};
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
        bool known = look_at(call, mine);
        if (stop(rows)) return 1;
        if (!known) {
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

/// The name of a loss, null after the last.
GROUPLEARN_ENTRY const char *loss_name(int64_t number) { return losses::name_of(number); }

} // namespace grouplearn::generalised_linear
