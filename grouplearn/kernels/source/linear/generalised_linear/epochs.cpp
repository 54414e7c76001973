// Generalised linear models epoch by epoch, for those who hold the rows in blocks: sums over a block, where each model wants them,
// and a step by the sums of all blocks. What a model in training is lies in one row of numbers between the two (see ``Form``).
#include "lanes/entry.hpp"
#include "linear/generalised_linear/epoch_sums.hpp"
#include "linear/generalised_linear/newton.hpp"

namespace grouplearn::generalised_linear {
namespace {

constexpr Stage dense_stage = {1e-1, 1e-14, 1e-12, 1e-9, 1e-10, 20, 200}, wide_stage = {1, 1e-14, 1e-12, 1e-9, 1e-10, 20, 60};

/// One model in a lane of ``newton``, from its row of numbers or back; one that lies alone stays where it is.
template <class V> struct Lane {
    const Form &form;
    Newton<V> &newton;
    double *row;
    int lane;
    static constexpr int width = Lanes<V>::count;

    void copy(double *lanes, int64_t first, int64_t count, bool back) const {
        Looks looks;
        for (int64_t k = 0; k < count && !looks.stop(1); k++) {
            if (back) row[first + k] = lanes[k * width + lane];
            else lanes[k * width + lane] = row[first + k];
        }
    }
    void vectors(bool back) const {
        if constexpr (Newton<V>::alone) {
            newton.point.lend(row + form.point(), form.size());
            newton.goal.lend(row + form.goal(), form.size());
            newton.trial.lend(row + form.trial(), form.size());
            newton.slope.lend(row + form.slope(), form.size());
            newton.inner.lend(row + form.inner(), form.history);
            newton.changes.lend(row + form.changes(), form.history * form.size());
            newton.bends.lend(row + form.bends(), form.history * form.size());
            if (!back) copy(newton.base, form.matrix(), form.in_matrix(), false);
            return;
        }
        copy(newton.point, form.point(), form.size(), back);
        copy(newton.goal, form.goal(), form.size(), back);
        copy(newton.trial, form.trial(), form.size(), back);
        copy(newton.slope, form.slope(), form.size(), back);
        copy(newton.inner, form.inner(), form.history, back);
        copy(newton.changes, form.changes(), form.history * form.size(), back);
        copy(newton.bends, form.bends(), form.history * form.size(), back);
        if (form.dense) copy(newton.chol, form.matrix(), form.in_matrix(), back);
        else if (!back) copy(newton.base, form.matrix(), form.in_matrix(), back);
    }

    void take(bool active, double l1, double l2, double tolerance, double first_length) {
        vectors(false);
        Model &m = newton.model[lane];
        m = Model();
        m.active = active;
        m.uncounted = false;
        m.sparse = l1 > 0;
        m.tolerance = tolerance;
        m.passes = (int64_t)row[PASSES];
        m.begins = m.passes ? 1 : first_length;
        m.value = row[VALUE];
        m.bend = row[BEND];
        m.bend_then = row[BEND_THEN];
        m.descent = row[DESCENT];
        m.length = row[LENGTH];
        m.retries = (int)row[RETRIES];
        m.age = (int)row[AGE];
        m.steps = (int)row[STEPS];
        m.trusted = row[TRUSTED] > 0;
        m.damping = row[DAMPING];
        m.damped = row[DAMPED] > 0;
        m.bends = row[ASKS] > 0 ? Bends::known : Bends::none;
        m.objective = row[OBJECTIVE];
        m.anew = row[ANEW] > 0;
        m.sampled = row[SAMPLED] > 0;
        newton.smoothing[lane] = row[SMOOTHING];
        newton.mass[lane] = row[TOTAL];
        newton.sigma[lane] = row[SIGMA];
        newton.set_penalties(lane, l1, l2, row[SCALE], row + form.inverse());
        for (int64_t at = lane; !form.dense && at < form.size() * width; at += width) {
            double pull = newton.ridge[at];
            newton.base[at] += pull < largest_ridge ? pull : largest_ridge;
        }
    }

    /// The sums of the model, its gradient by the solver's coordinates; returns its loss.
    double hear(const double *sums) const {
        newton.bent[lane] = sums[1];
        newton.exact[lane] = sums[2];
        bool written = sums[3] > 0;
        const double *mean = row + form.mean(), *inverse = row + form.inverse();
        for (int64_t c = 0; c < form.outputs; c++) {
            const double *slope = sums + Form::before_gradient + c * form.p();
            double all = form.fit_intercept ? slope[form.columns] : 0;
            for (int64_t j = 0; j < form.p(); j++) {
                bool turns = written && j < form.columns;
                newton.gradient[(c * form.p() + j) * width + lane] = turns ? __builtin_fma(-all, mean[j], slope[j]) * inverse[j] : slope[j];
            }
        }
        return sums[0];
    }

    /// Back into the row; returns whether training is over.
    bool give() const {
        const Model &m = newton.model[lane];
        vectors(true);
        row[ASKS] = newton.will_want(m);
        row[PASSES] = (double)m.passes;
        row[STRIDE] = (double)epoch_stride(row, form.size(), newton.fewest);
        row[VALUE] = m.failed ? (double)NAN : m.value;
        row[OBJECTIVE] = m.failed ? (double)NAN : m.objective;
        row[SMOOTHING] = newton.smoothing[lane];
        row[ANEW] = m.anew;
        row[SAMPLED] = m.sampled;
        row[BEND] = m.bend;
        row[BEND_THEN] = m.bend_then;
        row[DESCENT] = m.descent;
        row[LENGTH] = m.length;
        row[RETRIES] = m.retries;
        row[AGE] = m.age;
        row[STEPS] = m.steps;
        row[TRUSTED] = m.trusted;
        row[DAMPING] = m.damping;
        row[DAMPED] = m.damped;
        row[SIGMA] = newton.sigma[lane];
        if (!form.dense) write_trial(form, row);
        return !m.active;
    }
};

/// A step of models with the sums of all blocks; see ``step_generalised_linear``.
struct Steps {
    const Form &form;
    Loss loss;
    int64_t models;
    double *const *row;
    const double *l1, *l2, *tolerance, *first_length, *sums, *curvature;
    double sampled;
    int64_t held; // the column whose weight stays as it begins, -1 for none
    double *weights, *intercept, *value;
    uint8_t *finished;

    template <class V> int take() {
        constexpr int width = Lanes<V>::count;
        Newton<V> newton(form.dense ? dense_stage : wide_stage, form.columns, form.outputs, form.fit_intercept, (int)form.history, form.dense, INT64_MAX);
        if (Newton<V>::alone && !newton.base.reserve(form.size())) return 2;
        for (int64_t first = 0; first < models && !stop(form.size()); first += width) {
            if constexpr (Newton<V>::alone) Lane<V>{form, newton, row[first], 0}.vectors(false);
            if (!newton.reserve()) return 2;
            step(newton, first);
            if (newton.lacks_memory) return 2;
            if (stopped()) return 1;
        }
        return stopped() ? 1 : 0;
    }

  private:
    template <class V> void step(Newton<V> &newton, int64_t first) {
        constexpr int width = Lanes<V>::count;
        double reached[width];
        bool begins = row[first][PASSES] == 0;
        newton.lasting = (int)steps_between(row[first], form);
        newton.of_some = row[0][STRIDE] > 1;
        newton.expect(loss);
        newton.held = held;
        if (form.dense) newton.hessian.clear(triangle(form.size()) * width);
        for (int lane = 0; lane < width; lane++) {
            int64_t m = first + lane < models ? first + lane : models - 1;
            Lane<V> mine{form, newton, row[m], lane};
            mine.take(first + lane < models, l1[m], l2[m], tolerance[m], first_length[m]);
            reached[lane] = mine.hear(sums + m * form.sums());
            if (first + lane >= models || !(row[m][ASKS] > 0)) continue;
            double share = sampled > 0 ? row[m][TOTAL] / sampled : 1;
            for (int64_t at = 0; at < triangle(form.size()); at++) newton.hessian[at * width + lane] = *curvature++ * share;
        }
        newton.penalise(reached);
        for (int lane = 0; lane < width; lane++) newton.model[lane].reached = reached[lane];
        newton.advance(begins, [] {});
        for (int lane = 0; lane < width && first + lane < models && !stopped(); lane++) {
            int64_t m = first + lane;
            double *mine = row[m];
            finished[m] = Lane<V>{form, newton, mine, lane}.give();
            value[m] = mine[OBJECTIVE] * mine[SCALE];
            write_model(mine + form.point(), 1, mine + form.mean(), mine + form.inverse(), form.columns, form.outputs, form.fit_intercept,
                        weights + m * form.outputs * form.columns, intercept + m * form.outputs);
        }
    }
};

} // namespace

/// How many numbers a model in training has.
GROUPLEARN_ENTRY int64_t generalised_linear_numbers(int64_t columns, int64_t outputs, int64_t fit_intercept, int64_t history, int64_t dense) {
    return Form{columns, outputs, fit_intercept, history, dense}.length();
}

/// Whether rows of models that come from a file lead nowhere else than into themselves: their counts are counts.
GROUPLEARN_ENTRY int generalised_linear_are_sound(int64_t columns, int64_t outputs, int64_t fit_intercept, int64_t history, int64_t dense,
                                                  int64_t count, const double *models) {
    Form form{columns, outputs, fit_intercept, history, dense};
    auto is_count = [](double number, double least, double most) { return number >= least && number <= most && number == __builtin_floor(number); };
    for (int64_t place = 0; place < count; place++) {
        const double *row = models + place * form.length();
        bool counts = is_count(row[STRIDE], 1, 1e15) && is_count(row[PASSES], 0, 1e9) && is_count(row[RETRIES], 0, 1e9) &&
                      is_count(row[AGE], 0, 1e9) && is_count(row[STEPS], 0, (double)history) && is_count(row[ANEW], 0, 1);
        counts = counts && row[SMOOTHING] >= least_smoothing && row[SMOOTHING] <= first_smoothing;
        if (!counts) return 0;
    }
    return 1;
}

/// The row of a model without weights, and the sums there, loss, gradient and second derivatives, from the moments of its rows:
/// their count and that of the values stored in them, Σw, means (d,), Σw(x−x̄)² (d,), Σw(x−x̄)(t−t̄)' (d, t), Σw(x−x̄)(x−x̄)' (d, d) or nothing. ``residual`` (K) is the mean
/// slope, ``coupling`` (K, K) the second derivatives by the scores.
GROUPLEARN_ENTRY void begin_generalised_linear(int64_t kind, int64_t columns, int64_t outputs, int64_t fit_intercept, int64_t history, int64_t dense, double rows, double values,
                                               double total, const double *mean, const double *square, const double *cross,
                                               int64_t targets, const double *gram, const double *score, const double *mean_score,
                                               double loss, const double *coupling, double *row, double *sums, double *curvature,
                                               double *sampled) {
    Arithmetic arithmetic;
    Form form = {columns, outputs, fit_intercept, history, dense};
    int64_t p = form.p();
    double scale = power_of_two_near(total / rows), whole = total / scale;
    memset(row, 0, (size_t)form.length() * sizeof(double));
    row[ASKS] = form.dense;
    row[STRIDE] = 1;
    row[LENGTH] = row[SIGMA] = 1;
    row[SMOOTHING] = first_smoothing;
    row[SCALE] = scale;
    row[TOTAL] = *sampled = whole;
    row[ROWS] = rows;
    // Beside the products of a score and of a gradient a row takes its loss.
    row[PER_ROW] = (double)outputs * (values / rows + (double)fit_intercept) + 7;
    double *centre = row + form.mean(), *inverse = row + form.inverse();
    for (int64_t j = 0; j < columns; j++) {
        double about = fit_intercept ? square[j] : __builtin_fma(total * mean[j], mean[j], square[j]);
        centre[j] = fit_intercept ? mean[j] : 0;
        inverse[j] = inverse_spread(about, total, centre[j]);
    }
    double trace = 0;
    for (int64_t c = 0; c < outputs; c++) {
        trace += coupling[c * outputs + c];
        for (int64_t k = 0; k < p; k++) {
            int64_t at = c * p + k;
            double start = k < columns ? 0 : score[c], slope = whole * mean_score[c];
            if (k < columns) {
                double product = fit_intercept ? 0 : slope * mean[k];
                slope = (product - cross[k * targets + c] / scale) * inverse[k];
            }
            row[form.point() + at] = row[form.goal() + at] = row[form.trial() + at] = start;
            sums[Form::before_gradient + at] = slope;
            double own = coupling[c * outputs + c] * whole;
            if (!form.dense) row[form.matrix() + at] = k < columns && !(inverse[k] > 0) ? 1 : own;
        }
    }
    sums[0] = loss * whole;
    sums[1] = trace * whole;
    sums[2] = has_kink((Loss)kind) ? whole : 0; // of scores that are 0
    sums[3] = 0;                                // the slopes are those of standardised columns
    if (!form.dense) return write_trial(form, row);
    auto product = [&](int64_t a, int64_t b) { // of two standardised columns
        if (a == columns || b == columns) return a == b ? whole : 0.0;
        double beside = fit_intercept ? 0 : total * mean[a] * mean[b];
        return (gram[a * columns + b] + beside) / scale * (inverse[a] * inverse[b]);
    };
    for (int64_t a = 0; a < form.size(); a++)
        for (int64_t b = 0; b <= a; b++) *curvature++ = coupling[a / p * outputs + b / p] * product(a % p, b % p);
}

/// Let a model that has not begun be evaluated first at these weights (K, d) and intercepts (K,), in place of none.
GROUPLEARN_ENTRY void place_generalised_linear(int64_t columns, int64_t outputs, int64_t fit_intercept, int64_t history, int64_t dense,
                                               const double *weights, const double *intercept, double *row) {
    Form form = {columns, outputs, fit_intercept, history, dense};
    read_model(weights, intercept, row + form.mean(), row + form.inverse(), columns, outputs, fit_intercept, row + form.trial());
    if (!dense) write_trial(form, row);
}

/// Sums over a block at the points of models, of which each has a ``row``, (M, 4 + K·p), see ``Form``, second derivatives of
/// those that ask for them (asking, triangle) and the weight of the rows that these are of; 2 without memory.
GROUPLEARN_ENTRY int sum_generalised_linear(const float *x_single, const double *x_double, const double *value, const int32_t *place,
                                            const int64_t *start, int64_t rows, const double *label, const double *weight, int64_t kind,
                                            int64_t columns, int64_t outputs, int64_t fit_intercept, int64_t history, int64_t dense, int64_t models,
                                            const double *const *row, double *sums, double *curvature, double *sampled) {
    Arithmetic arithmetic;
    constexpr int width = Lanes<D>::count;
    Models those = {{columns, outputs, fit_intercept, history, dense}, models, row, (Loss)kind};
    Block block = {x_single, x_double, value, place, start, rows, label, weight};
    if (block.sparse() && !dense) {
        Apart apart(those, block);
        if (!apart.reserve()) return 2;
        memset(sums, 0, (size_t)(models * those.form.sums()) * sizeof(double));
        for (int64_t m = 0; m < models && !stopped(); m++) apart.pass(row[m], sums + m * those.form.sums());
        return stopped() ? 1 : 0;
    }
    Work work(those, block);
    if (!work.reserve()) return 2;
    if (block.sparse()) work.pass_sparse();
    else work.pass_dense();
    for (int64_t m = 0; m < models; m++, sums += those.form.sums()) {
        sums[0] = work.total[m];
        sums[1] = work.bend[m];
        sums[2] = work.exact[m];
        sums[3] = 0;
        for (int64_t k = 0; k < work.size; k++) sums[Form::before_gradient + k] = work.gradient[(m / width * work.size + k) * width + m % width];
    }
    if (work.curved && !stopped()) *sampled = work.differentiate(curvature);
    return stopped() ? 1 : 0;
}

/// A step of every model by the sums over all blocks: their rows of numbers change. Also the models as written, weights (M, K, d) and
/// intercepts (M, K), their objectives (M,), no number where there is none, and which are finished (M,); 2 without memory.
GROUPLEARN_ENTRY int step_generalised_linear(int64_t kind, int64_t columns, int64_t outputs, int64_t fit_intercept, int64_t history, int64_t dense,
                                             int64_t models, const double *l1, const double *l2, const double *tolerance, const double *first_length,
                                             const double *sums, const double *curvature, double sampled, int64_t held, double *const *row, double *weights,
                                             double *intercept, double *value, uint8_t *finished) {
    Arithmetic arithmetic;
    Form form = {columns, outputs, fit_intercept, history, dense};
    Steps steps = {form, (Loss)kind, models, row, l1, l2, tolerance, first_length, sums, curvature, sampled, held, weights, intercept, value, finished};
    return dense ? steps.take<D>() : steps.take<Few<1>>();
}

} // namespace grouplearn::generalised_linear
