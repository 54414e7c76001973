// Generalised linear models epoch by epoch, for those who hold the rows in blocks: sums over a block, where each model wants them,
// and a step by the sums of all blocks. What a model in training is lies in one row of numbers between the two (see ``Form``).
#include "lanes/entry.hpp"
#include "linear/generalised_linear/newton.hpp"

namespace grouplearn::generalised_linear {
namespace {

constexpr int64_t block_rows = 256;
constexpr Stage dense_stage = {1e-1, 1e-14, 1e-12, 1e-9, 1e-10, 20, 200}, wide_stage = {1, 1e-14, 1e-12, 1e-9, 1e-10, 20, 60};

/// Numbers of a model, the first of all: whether its sums are to have second derivatives, and of every how many rows.
enum Field {
    ASKS, STRIDE, PASSES, VALUE, BEND, BEND_THEN, DESCENT, LENGTH, RETRIES, AGE, STEPS, TRUSTED, DAMPING, DAMPED, SIGMA, SCALE, TOTAL, ROWS,
    PER_ROW, OBJECTIVE, SMOOTHING, ANEW, SAMPLED, FIELDS
};

/// Where the numbers of a model lie: fields, means and 1/spread of columns, where it is, where its step leads, where it is evaluated
/// next, the slope, the ``history`` of steps, and the factor of the second derivatives or, if not ``dense``, a diagonal and where it is
/// evaluated next as written, weights and then intercepts.
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
    int64_t written() const { return matrix() + in_matrix(); }
    int64_t lift() const { return written() + outputs * columns; }
    int64_t length() const { return dense ? written() : lift() + outputs; }
    /// Of the sums of a model: loss, second derivatives by scores, a loss with a kink as it is (0 of others), how many rows have their
    /// share of the gradient by columns as written, which are all or none, gradient.
    static constexpr int64_t before_gradient = 4;
    int64_t sums() const { return before_gradient + size(); }
};

/// Where a model of many parameters is evaluated next, as written: what columns are less their means for is the intercept's.
void write_trial(const Form &form, double *row) {
    const double *mean = row + form.mean(), *inverse = row + form.inverse();
    for (int64_t c = 0; c < form.outputs; c++) {
        const double *trial = row + form.trial() + c * form.p();
        double *written = row + form.written() + c * form.columns, rest = form.fit_intercept ? trial[form.columns] : 0;
        for (int64_t j = 0; j < form.columns; j++) {
            written[j] = trial[j] * inverse[j];
            rest = __builtin_fma(-written[j], mean[j], rest);
        }
        row[form.lift() + c] = rest;
    }
}

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

/// The models of a call, by their rows of numbers; in lanes, a batch after the other.
struct Models {
    static constexpr int width = Lanes<D>::count;
    Form form;
    int64_t count;
    const double *const *row;
    Loss loss;
    int64_t batches() const { return (count + width - 1) / width; }
    const double *model(int64_t m) const { return row[m < count ? m : count - 1]; }
    const double *model() const { return row[0]; }
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
        if (has_constant(models.loss)) losses::constants(models.loss, block.label, block.rows, constant);
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
        if (losses::of_all_scores(models.loss)) sum += loss_of_all_scores<D>(models.loss, outputs, label, factor, score, bends, trace);
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

/// Sums over a block of sparse rows for models of many parameters, one after the other: weights and gradients are as written, so that a
/// row asks for no more than its own columns, and the pass of a block for no more than its gradient besides.
struct Apart {
    static constexpr int abreast = Lanes<D>::count;
    const Models &models;
    const Block &block;
    int64_t columns, outputs;
    Scratch<double> label, weight, constant, score, losses;

    Apart(const Models &models, const Block &block)
        : models(models), block(block), columns(models.form.columns), outputs(models.form.outputs) {}

    bool reserve() {
        int64_t padded = (block.rows + abreast - 1) / abreast * abreast;
        if (!label.reserve(padded) || !weight.reserve(padded) || !constant.reserve(padded) || !score.reserve(outputs * abreast)) return false;
        for (int64_t i = 0; i < padded; i++) {
            label[i] = i < block.rows ? block.label[i] : 0;
            weight[i] = i < block.rows ? block.weight[i] / models.model()[SCALE] : 0;
        }
        if (has_constant(models.loss)) losses::constants(models.loss, block.label, block.rows, constant);
        return true;
    }

    /// The sums of a model, see ``Form``, which are 0.
    void pass(const double *model, double *sums) {
        double *gradient = sums + Form::before_gradient;
        Objective<D> objective = {models.loss, all(model[SMOOTHING])};
        Looks looks;
        for (int64_t first = 0; first < block.rows; first += abreast) {
            int count = (int)(block.rows - first < abreast ? block.rows - first : abreast);
            if (looks.stop(outputs * (2 * (block.start[first + count] - block.start[first]) / 8 + 16 * abreast))) return;
            expect(model, gradient, first + abreast);
            for (int64_t c = 0; c < outputs; c++) score_rows(model, c, first, count);
            judge(objective, first, count, sums);
            for (int64_t c = 0; c < outputs; c++) add_rows(c, first, count, gradient + c * models.form.p());
        }
        sums[3] = (double)block.rows;
    }

  private:
    /// Asks for what the next rows touch.
    void expect(const double *model, const double *gradient, int64_t first) const {
        int64_t last = first + abreast < block.rows ? first + abreast : block.rows;
        if (first >= last) return;
        for (int64_t at = block.start[first]; at < block.start[last]; at++) {
            __builtin_prefetch(model + models.form.written() + block.place[at]);
            __builtin_prefetch(gradient + block.place[at], 1);
        }
    }

    void score_rows(const double *model, int64_t c, int64_t first, int count) const {
        const double *weights = model + models.form.written() + c * columns;
        for (int i = 0; i < abreast; i++) score[c * abreast + i] = 0;
        for (int i = 0; i < count; i++) {
            double value = model[models.form.lift() + c];
            for (int64_t at = block.start[first + i]; at < block.start[first + i + 1]; at++)
                value = __builtin_fma(weights[block.place[at]], block.value[at], value);
            score[c * abreast + i] = value;
        }
    }

    /// Scores become weighted slopes; losses and the like are added row after row.
    void judge(const Objective<D> &objective, int64_t first, int count, double *sums) const {
        D y = load(label + first), w = load(weight + first), loss, curve = zero<D>(), exact = zero<D>();
        if (losses::of_all_scores(models.loss)) loss = loss_of_all_scores<D>(models.loss, outputs, y, w, score, nullptr, curve);
        else {
            D slope, at = load(score);
            with_loss_of_a_score(objective, [&](const auto &kind) {
                kind.at(at, y, loss, slope, curve);
                if (kind.with_constant) loss += load(constant + first);
                if constexpr (std::remove_reference_t<decltype(kind)>::with_kink) exact = w * kind.exact(at, y);
            });
            loss = w * loss, curve = w * curve;
            store(score, w * slope);
        }
        D of_rows[3] = {loss, curve, exact};
        for (int which = 0; which < 3; which++) {
            double lane[abreast];
            store(lane, of_rows[which]);
            for (int i = 0; i < count; i++) sums[which] += lane[i];
        }
    }

    void add_rows(int64_t c, int64_t first, int count, double *gradient) const {
        for (int i = 0; i < count; i++) {
            double slope = score[c * abreast + i];
            for (int64_t at = block.start[first + i]; at < block.start[first + i + 1]; at++) {
                double *place = gradient + block.place[at];
                *place = __builtin_fma(slope, block.value[at], *place);
            }
            if (models.form.fit_intercept) gradient[columns] += slope;
        }
    }
};

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
        for (int64_t k = 0; k < form.size(); k++) {
            int64_t j = k % form.p(), at = k * width + lane;
            double inverse = j < form.columns ? row[form.inverse() + j] : 0, pull = l2 / row[SCALE] * inverse * inverse;
            newton.ridge[at] = pull;
            newton.penalty[at] = l1 / row[SCALE] * inverse;
            if (!form.dense) newton.base[at] += pull < largest_ridge ? pull : largest_ridge;
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
        if (jumps(loss)) newton.expect_jumps();
        if (has_kink(loss)) newton.expect_kink();
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
                                             const double *sums, const double *curvature, double sampled, double *const *row, double *weights,
                                             double *intercept, double *value, uint8_t *finished) {
    Arithmetic arithmetic;
    Form form = {columns, outputs, fit_intercept, history, dense};
    Steps steps = {form, (Loss)kind, models, row, l1, l2, tolerance, first_length, sums, curvature, sampled, weights, intercept, value, finished};
    return dense ? steps.take<D>() : steps.take<Few<1>>();
}

} // namespace grouplearn::generalised_linear
