// Generalised linear models epoch by epoch, for those who hold the rows in blocks: sums over a block, where each model wants them,
// and a step by the sums of all blocks. What a model in training is lies in one row of numbers between the two (see ``Form``).
#include "lanes/entry.hpp"
#include "linear/generalised_linear_newton.hpp"

namespace grouplearn::generalised_linear {
namespace {

constexpr int64_t block_rows = 256;
constexpr Stage dense_stage = {1e-1, 1e-14, 1e-12, 1e-9, 1e-10, 20, 200}, wide_stage = {1, 1e-14, 1e-12, 1e-9, 1e-10, 20, 60};

/// Numbers of a model, the first of all: whether its sums are to have second derivatives, and of every how many rows.
enum Field {
    ASKS, STRIDE, PASSES, VALUE, BEND, BEND_THEN, DESCENT, LENGTH, RETRIES, AGE, STEPS, TRUSTED, DAMPING, DAMPED, SIGMA, SCALE, TOTAL, ROWS,
    PER_ROW, OBJECTIVE, SMOOTHING, ANEW, FIELDS
};

/// Where the numbers of a model lie: fields, means and 1/spread of columns, where it is, where its step leads, where it is evaluated
/// next, the slope, the ``history`` of steps, and the factor of the second derivatives or, if not ``dense``, a diagonal.
struct Form {
    int64_t columns, outputs, fit_intercept, history, dense;

    int64_t p() const { return columns + fit_intercept; }
    int64_t size() const { return outputs * p(); }
    int64_t mean() const { return FIELDS; }
    int64_t inverse() const { return mean() + columns; }
    int64_t point() const { return inverse() + columns; }
    int64_t goal() const { return point() + size(); }
    int64_t trial() const { return goal() + size(); }
    int64_t slope() const { return trial() + size(); }
    int64_t inner() const { return slope() + size(); }
    int64_t changes() const { return inner() + history; }
    int64_t bends() const { return changes() + history * size(); }
    int64_t matrix() const { return bends() + history * size(); }
    int64_t in_matrix() const { return dense ? triangle(size()) : size(); }
    int64_t length() const { return matrix() + in_matrix(); }
    /// Of the sums of a model: loss, second derivatives by scores, a loss with a kink as it is (0 of others), gradient.
    static constexpr int64_t before_gradient = 3;
    int64_t sums() const { return before_gradient + size(); }
};

/// Rows whose second derivatives take the time of a pass over all, of a model with this ``row`` of numbers.
int64_t rows_of_a_pass(const double *row, int64_t size) {
    return size ? (int64_t)(4 * row[ROWS] * row[PER_ROW] / (double)(size * size)) : 0;
}

int64_t epoch_stride(const double *row, int64_t size, int64_t fewest) {
    int64_t as_a_pass = rows_of_a_pass(row, size), least = as_a_pass > fewest ? as_a_pass : fewest;
    int64_t stride = stride_at((int64_t)row[ROWS], size, (int64_t)row[PASSES], least);
    return stride < block_rows ? stride : block_rows;
}

/// The steps that second derivatives last, as a share of what they take, at most those that are remembered.
int64_t steps_between(const double *row, const Form &form) {
    int64_t sampled = sampled_per_parameter * form.size(), as_a_pass = rows_of_a_pass(row, form.size());
    if (sampled < fewest_sampled) sampled = fewest_sampled;
    if (sampled <= as_a_pass) return 1;
    return patience * sampled < form.history * as_a_pass ? patience * sampled / as_a_pass : form.history;
}

/// A block of rows: dense ones of one precision, or sparse ones, each with the columns ``place`` from ``start`` to before that of the next.
struct Block {
    const float *x_single;
    const double *x_double, *value;
    const int32_t *place;
    const int64_t *start;
    int64_t rows;
    const double *label, *weight;

    bool sparse() const { return value != nullptr; }
};

/// The models of a call in lanes, a batch after the other.
struct Models {
    static constexpr int width = Lanes<D>::count;
    Form form;
    int64_t count;
    const double *row;
    Loss loss;
    int64_t batches() const { return (count + width - 1) / width; }
    const double *model(int64_t m) const { return row + (m < count ? m : count - 1) * form.length(); }
    const double *model() const { return row; }
    bool asks(int64_t batch) const {
        for (int64_t m = batch * width; m < count && m < (batch + 1) * width; m++)
            if (model(m)[ASKS] > 0) return true;
        return false;
    }
};

/// The sums of a block, in lanes.
struct Work {
    static constexpr int width = Lanes<D>::count;
    const Models &models;
    const Block &block;
    int64_t columns, p, size, outputs, pairs, stride, kept = 0;
    bool curved = false; // whether any model asks for second derivatives
    const double *mean, *inverse;
    Scratch<double> point, total, bend, exact, smoothing, gradient, curvature, score, weight, constant, z, rows, scaled, hessian, written, product, lift, residual;

    Work(const Models &models, const Block &block)
        : models(models), block(block), columns(models.form.columns), p(models.form.p()), size(models.form.size()),
          outputs(models.form.outputs), pairs(outputs * (outputs + 1) / 2), stride((int64_t)models.model()[STRIDE]),
          mean(models.model() + models.form.mean()), inverse(models.model() + models.form.inverse()) {}

    int64_t most_kept() const { return (block.rows / block_rows + 1) * ((block_rows + stride - 1) / stride); }

    bool reserve() {
        for (int64_t batch = 0; batch < models.batches(); batch++) curved = curved || models.asks(batch);
        int64_t lanes = models.batches() * width, sampled = curved ? most_kept() : 0;
        if (!point.reserve(lanes * size) || !total.reserve(lanes) || !bend.reserve(lanes) || !exact.reserve(lanes) || !smoothing.reserve(lanes) || !gradient.reserve(lanes * size) ||
            !curvature.reserve(lanes * sampled * pairs) || !score.reserve(rows_abreast * outputs * width) || !weight.reserve(block.rows) ||
            !constant.reserve(block.rows + 8) || !z.reserve(block.sparse() ? 0 : block_rows * p) || !rows.reserve(sampled * p + most_lanes) ||
            !scaled.reserve(sampled * p) || !hessian.reserve(curved ? triangle(size) * width : 0) ||
            !written.reserve(block.sparse() ? outputs * columns * width : 0) || !product.reserve(block.sparse() ? outputs * columns * width : 0) ||
            !lift.reserve(outputs * width) || !residual.reserve(outputs * width))
            return false;
        for (auto each : {&total, &bend, &exact}) each->clear(lanes);
        for (int64_t m = 0; m < lanes; m++) smoothing[m] = models.model(m)[SMOOTHING];
        gradient.clear(lanes * size);
        for (int64_t m = 0; m < lanes; m++)
            for (int64_t k = 0; k < size; k++)
                point[(m / width * size + k) * width + m % width] = models.model(m)[models.form.trial() + k];
        for (int64_t i = 0; i < block.rows; i++) weight[i] = block.weight[i] / models.model()[SCALE];
        if (models.loss == Loss::poisson) count_constants(block.label, block.rows, constant);
        return true;
    }

    Objective<D> objective(int64_t batch) const { return {models.loss, load(smoothing + batch * width)}; }

    double *curvature_of(int64_t batch) const { return curvature + batch * most_kept() * pairs * width; }

    void standardise_row(int64_t row, double *to) const {
        int64_t j = 0, at = row * columns;
        for (; block.x_double && j + width <= columns; j += width)
            store(to + j, (load(block.x_double + at + j) - load(mean + j)) * load(inverse + j));
        for (; block.x_single && j + 2 * width <= columns; j += 2 * width) {
            F both = load(block.x_single + at + j);
            store(to + j, (low(both) - load(mean + j)) * load(inverse + j));
            store(to + j + width, (high(both) - load(mean + j + width)) * load(inverse + j + width));
        }
        for (; j < columns; j++) to[j] = ((block.x_single ? (double)block.x_single[at + j] : block.x_double[at + j]) - mean[j]) * inverse[j];
        if (p > columns) to[columns] = 1;
    }

    void pass_dense() {
        for (int64_t first = 0; first < block.rows; first += block_rows) {
            int64_t count = block.rows - first < block_rows ? block.rows - first : block_rows;
            if (stop(count * (p + 8) / 8)) return;
            for (int64_t i = 0; i < count; i++) standardise_row(first + i, z + i * p);
            Shared<D> tile = {z, block.label + first, weight + first, constant + first, p};
            for (int64_t batch = 0; batch < models.batches(); batch++) {
                bool asks = models.asks(batch);
                double *bends = asks ? curvature_of(batch) + kept * pairs * width : nullptr;
                Sums<D> sums = {load(total + batch * width), load(bend + batch * width), load(exact + batch * width), gradient + batch * size * width, bends, stride};
                pass_tile(objective(batch), tile, 0, count, outputs, point + batch * size * width, score, sums);
                store(total + batch * width, sums.loss);
                store(bend + batch * width, sums.bend);
                store(exact + batch * width, sums.exact);
            }
            for (int64_t i = 0; curved && i < count; i += stride) memcpy(rows + kept++ * p, z + i * p, (size_t)p * sizeof(double));
        }
    }

    /// As written, weights need no mean of what is zero: the intercept has it.
    void pass_sparse() {
        Looks looks;
        for (int64_t batch = 0; batch < models.batches(); batch++) {
            const double *mine = point + batch * size * width;
            for (int64_t c = 0; c < outputs; c++) {
                D rest = p > columns ? load(mine + (c * p + columns) * width) : zero<D>();
                for (int64_t j = 0; j < columns; j++) {
                    D weight = load(mine + (c * p + j) * width) * all(inverse[j]);
                    rest = fnma(weight, all(mean[j]), rest);
                    store(written + (c * columns + j) * width, weight);
                }
                store(lift + c * width, rest);
            }
            product.clear(outputs * columns * width);
            residual.clear(outputs * width);
            double *bends = models.asks(batch) ? curvature_of(batch) : nullptr;
            for (int64_t i = 0; i < block.rows; i++) {
                if (looks.stop(outputs * (2 * (block.start[i + 1] - block.start[i]) + 16))) return;
                bool sampled = bends && i % stride == 0;
                pass_sparse_row(i, batch, sampled ? bends + i / stride * pairs * width : nullptr);
            }
            for (int64_t c = 0; c < outputs; c++) {
                double *slope = gradient + (batch * size + c * p) * width;
                D sum = load(residual + c * width);
                for (int64_t j = 0; j < columns; j++)
                    store(slope + j * width, fnma(sum, all(mean[j]), load(product + (c * columns + j) * width)) * all(inverse[j]));
                if (p > columns) store(slope + columns * width, sum);
            }
        }
        for (int64_t i = 0; curved && i < block.rows && !looks.stop(p / 4); i += stride) {
            double *to = rows + kept++ * p;
            for (int64_t j = 0; j < columns; j++) to[j] = -mean[j] * inverse[j];
            for (int64_t at = block.start[i]; at < block.start[i + 1]; at++) to[block.place[at]] += block.value[at] * inverse[block.place[at]];
            if (p > columns) to[columns] = 1;
        }
    }

    void pass_sparse_row(int64_t i, int64_t batch, double *bends) {
        for (int64_t c = 0; c < outputs; c++) {
            D value = load(lift + c * width);
            for (int64_t at = block.start[i]; at < block.start[i + 1]; at++)
                value = fma(load(written + (c * columns + block.place[at]) * width), all(block.value[at]), value);
            store(score + c * width, value);
        }
        D sum = load(total + batch * width), trace = load(bend + batch * width), label = all(block.label[i]), factor = all(weight[i]);
        if (models.loss == Loss::softmax) sum += softmax<D>(outputs, label, factor, score, bends, trace);
        else {
            D loss, slope, curve;
            with_loss_of_a_score(objective(batch), [&](const auto &kind) {
                kind.at(load(score), label, loss, slope, curve);
                if (kind.with_constant) loss += all(constant[i]);
                if constexpr (std::remove_reference_t<decltype(kind)>::with_kink)
                    store(exact + batch * width, fma(factor, kind.exact(load(score), label), load(exact + batch * width)));
            });
            sum = fma(factor, loss, sum);
            trace = fma(factor, curve, trace);
            if (bends) store(bends, factor * curve);
            store(score, factor * slope);
        }
        store(total + batch * width, sum);
        store(bend + batch * width, trace);
        for (int64_t c = 0; c < outputs; c++) {
            D slope = load(score + c * width);
            store(residual + c * width, load(residual + c * width) + slope);
            for (int64_t at = block.start[i]; at < block.start[i + 1]; at++) {
                double *place = product + (c * columns + block.place[at]) * width;
                store(place, fma(slope, all(block.value[at]), load(place)));
            }
        }
    }

    /// Second derivatives of the models that ask for them, (asking, triangle); returns the weight of the rows that they are of.
    double differentiate(double *into) {
        for (int64_t batch = 0; batch < models.batches(); batch++) {
            if (!models.asks(batch)) continue;
            bool wanted[width];
            for (int lane = 0; lane < width; lane++) {
                int64_t m = batch * width + lane;
                wanted[lane] = m < models.count && models.model(m)[ASKS] > 0;
            }
            Shared<D> those = {rows, nullptr, nullptr, nullptr, p};
            sum_curvature_where(wanted, sample(those, (const double *)curvature_of(batch), kept, 1, outputs), (double *)scaled, (double *)hessian);
            for (int lane = 0; lane < width; lane++)
                for (int64_t at = 0; wanted[lane] && at < triangle(size); at++) *into++ = hessian[at * width + lane];
        }
        double sum = 0;
        for (int64_t i = 0; i < block.rows; i++) {
            int64_t row = block.sparse() ? i : i % block_rows;
            if (row % stride == 0) sum += weight[i];
        }
        return sum;
    }
};

/// One model in a lane of ``newton``, from its row of numbers or back.
struct Lane {
    const Form &form;
    Newton<D> &newton;
    double *row;
    int lane;
    static constexpr int width = Lanes<D>::count;

    void copy(double *lanes, int64_t first, int64_t count, bool back) const {
        Looks looks;
        for (int64_t k = 0; k < count && !looks.stop(1); k++) {
            if (back) row[first + k] = lanes[k * width + lane];
            else lanes[k * width + lane] = row[first + k];
        }
    }
    void vectors(bool back) const {
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
        newton.smoothing[lane] = row[SMOOTHING];
        newton.mass[lane] = row[TOTAL];
        newton.sigma[lane] = row[SIGMA];
        for (int64_t k = 0; k < form.size(); k++) {
            int64_t j = k % form.p(), at = k * width + lane;
            double inverse = j < form.columns ? row[form.inverse() + j] : 0, pull = l2 / row[SCALE] * inverse * inverse;
            newton.ridge[at] = pull;
            newton.penalty[at] = l1 / row[SCALE] * inverse;
            if (!form.dense) newton.base[at] += pull < largest_ridge ? pull : largest_ridge;
        }
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
        return !m.active;
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
        bool varies = about > 0 && about > constant_below * total * centre[j] * centre[j];
        inverse[j] = varies ? __builtin_sqrt(total) / __builtin_sqrt(about) : 0;
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
    if (!form.dense) return;
    auto product = [&](int64_t a, int64_t b) { // of two standardised columns
        if (a == columns || b == columns) return a == b ? whole : 0.0;
        double beside = fit_intercept ? 0 : total * mean[a] * mean[b];
        return (gram[a * columns + b] + beside) / scale * (inverse[a] * inverse[b]);
    };
    for (int64_t a = 0; a < form.size(); a++)
        for (int64_t b = 0; b <= a; b++) *curvature++ = coupling[a / p * outputs + b / p] * product(a % p, b % p);
}

/// Sums over a block at the points of models: loss, second derivatives by scores, exact loss and gradient (M, 3 + K·p), second derivatives of
/// those that ask for them (asking, triangle) and the weight of the rows that these are of; 2 without memory.
GROUPLEARN_ENTRY int sum_generalised_linear(const float *x_single, const double *x_double, const double *value, const int32_t *place,
                                            const int64_t *start, int64_t rows, const double *label, const double *weight, int64_t kind,
                                            int64_t columns, int64_t outputs, int64_t fit_intercept, int64_t history, int64_t dense, int64_t models,
                                            const double *row, double *sums, double *curvature, double *sampled) {
    Arithmetic arithmetic;
    constexpr int width = Lanes<D>::count;
    Models those = {{columns, outputs, fit_intercept, history, dense}, models, row, (Loss)kind};
    Block block = {x_single, x_double, value, place, start, rows, label, weight};
    Work work(those, block);
    if (!work.reserve()) return 2;
    if (block.sparse()) work.pass_sparse();
    else work.pass_dense();
    for (int64_t m = 0; m < models; m++, sums += those.form.sums()) {
        sums[0] = work.total[m];
        sums[1] = work.bend[m];
        sums[2] = work.exact[m];
        for (int64_t k = 0; k < work.size; k++) sums[Form::before_gradient + k] = work.gradient[(m / width * work.size + k) * width + m % width];
    }
    if (work.curved && !stopped()) *sampled = work.differentiate(curvature);
    return stopped() ? 1 : 0;
}

/// A step of every model by the sums over all blocks: their rows (M, length) change. Also the models as written, weights (M, K, d) and
/// intercepts (M, K), their objectives (M,), no number where there is none, and which are finished (M,); 2 without memory.
GROUPLEARN_ENTRY int step_generalised_linear(int64_t kind, int64_t columns, int64_t outputs, int64_t fit_intercept, int64_t history, int64_t dense,
                                             int64_t models, const double *l1, const double *l2, const double *tolerance, const double *first_length,
                                             const double *sums, const double *curvature, double sampled, double *row, double *weights,
                                             double *intercept, double *value, uint8_t *finished) {
    Arithmetic arithmetic;
    constexpr int width = Lanes<D>::count;
    Form form = {columns, outputs, fit_intercept, history, dense};
    Newton<D> newton(form.dense ? dense_stage : wide_stage, columns, outputs, fit_intercept, (int)form.history, form.dense, INT64_MAX);
    if (!newton.reserve()) return 2;
    for (int64_t first = 0; first < models && !stop(form.size()); first += width) {
        double loss[width];
        const double *one = row + first * form.length();
        bool begins = one[PASSES] == 0;
        newton.lasting = (int)steps_between(one, form);
        if (jumps((Loss)kind)) newton.expect_jumps();
        if (has_kink((Loss)kind)) newton.expect_kink();
        if (form.dense) newton.hessian.clear(triangle(form.size()) * width);
        for (int lane = 0; lane < width; lane++) {
            int64_t m = first + lane < models ? first + lane : models - 1;
            const double *mine = sums + m * form.sums();
            double *numbers = row + m * form.length();
            Lane{form, newton, numbers, lane}.take(first + lane < models, l1[m], l2[m], tolerance[m], first_length[m]);
            loss[lane] = mine[0];
            newton.bent[lane] = mine[1];
            newton.exact[lane] = mine[2];
            for (int64_t k = 0; k < form.size(); k++) newton.gradient[k * width + lane] = mine[Form::before_gradient + k];
            if (first + lane >= models || !(numbers[ASKS] > 0)) continue;
            double share = sampled > 0 ? numbers[TOTAL] / sampled : 1;
            for (int64_t at = 0; at < triangle(form.size()); at++) newton.hessian[at * width + lane] = *curvature++ * share;
        }
        newton.penalise(loss);
        for (int lane = 0; lane < width; lane++) newton.model[lane].reached = loss[lane];
        newton.advance(begins, [] {});
        if (stopped()) return 1;
        for (int lane = 0; lane < width && first + lane < models; lane++) {
            int64_t m = first + lane;
            double *mine = row + m * form.length();
            finished[m] = Lane{form, newton, mine, lane}.give();
            value[m] = mine[OBJECTIVE] * mine[SCALE];
            write_model(mine + form.point(), 1, mine + form.mean(), mine + form.inverse(), columns, outputs, fit_intercept,
                        weights + m * outputs * columns, intercept + m * outputs);
        }
    }
    return stopped() ? 1 : 0;
}

} // namespace grouplearn::generalised_linear
