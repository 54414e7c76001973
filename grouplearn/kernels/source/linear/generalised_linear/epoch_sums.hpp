// The sums over a block of rows that a step of generalised linear models needs, where each of them wants them.
#pragma once
#include "linear/generalised_linear/epoch_form.hpp"
#include "linear/generalised_linear/rows.hpp"
#include <initializer_list>

namespace grouplearn::generalised_linear {
namespace {

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

} // namespace
} // namespace grouplearn::generalised_linear
