// Losses and gradients of generalised linear models over a block of rows, for those who sum blocks themselves.
#include "entry.hpp"
#include "generalised_linear_rows.hpp"

namespace grouplearn::generalised_linear {
namespace {

constexpr int64_t block_rows = 256;

/// Rows with a column of ones last, so that an intercept is a weight.
struct Widened {
    Scratch<double> z;

    bool fill(const float *x_single, const double *x_double, int64_t first, int64_t rows, int64_t columns) {
        if (!z.reserve(block_rows * (columns + 1))) return false;
        double *to = z;
        for (int64_t i = first; i < first + rows; i++, to += columns + 1) {
            for (int64_t j = 0; j < columns; j++) to[j] = x_single ? (double)x_single[i * columns + j] : x_double[i * columns + j];
            to[columns] = 1;
        }
        return true;
    }
};

} // namespace

/// Σ weight·loss (M,), Σ weight·slope (M, K) and Σ weight·slope·x' (M, K, d) of M models; 2 without memory.
GROUPLEARN_ENTRY int sum_generalised_linear(const float *x_single, const double *x_double, int64_t rows, int64_t columns,
                                            const double *label, const double *weight, int64_t kind, int64_t outputs, int64_t models,
                                            const double *weights, const double *intercept, double *loss, double *residual,
                                            double *product) {
    Arithmetic arithmetic;
    constexpr int width = Lanes<D>::count;
    int64_t p = columns + 1, size = outputs * p;
    Widened widened;
    Scratch<double> point, gradient, score, constant;
    int64_t batches = (models + width - 1) / width;
    if (!point.reserve(batches * size * width) || !gradient.reserve(batches * size * width) ||
        !score.reserve(rows_abreast * outputs * width) || !constant.reserve(block_rows + 8))
        return 2;
    gradient.clear(batches * size * width);
    for (int64_t at = 0; at < batches * size * width; at++) {
        int64_t model = at / (size * width) * width + at % width, k = at / width % size, j = k % p, output = k / p;
        if (model >= models) model = models - 1;
        point[at] = j < columns ? weights[(model * outputs + output) * columns + j] : intercept[model * outputs + output];
    }
    for (int64_t m = 0; m < models; m++) loss[m] = 0;
    for (int64_t first = 0; first < rows; first += block_rows) {
        int64_t count = rows - first < block_rows ? rows - first : block_rows;
        if (!widened.fill(x_single, x_double, first, count, columns)) return 2;
        if ((Loss)kind == Loss::poisson) count_constants(label + first, count, constant);
        Shared<D> tile = {widened.z, label + first, weight + first, constant, p};
        for (int64_t batch = 0; batch < batches; batch++) {
            Sums<D> sums = {zero<D>(), zero<D>(), gradient + batch * size * width, nullptr, 1};
            pass_tile((Loss)kind, tile, 0, count, outputs, point + batch * size * width, score, sums);
            double part[width];
            store(part, sums.loss);
            for (int64_t m = batch * width; m < models && m < (batch + 1) * width; m++) loss[m] += part[m - batch * width];
        }
    }
    for (int64_t m = 0; m < models; m++)
        for (int64_t k = 0; k < size; k++) {
            double sum = gradient[(m / width * size + k) * width + m % width];
            int64_t output = m * outputs + k / p;
            if (k % p < columns) product[output * columns + k % p] = sum;
            else residual[output] = sum;
        }
    return 0;
}

/// Turn scores (n, M, K) into weighted slopes, and sum losses (M,) and slopes (M, K); 2 without memory.
GROUPLEARN_ENTRY int weigh_slopes(double *score, int64_t rows, const double *label, const double *weight, int64_t kind, int64_t outputs,
                                  int64_t models, double *loss, double *residual) {
    Arithmetic arithmetic;
    constexpr int width = Lanes<D>::count;
    Scratch<double> lanes, constant;
    if (!lanes.reserve(outputs * width) || !constant.reserve(8)) return 2;
    for (int64_t m = 0; m < models; m++) loss[m] = 0;
    for (int64_t k = 0; k < models * outputs; k++) residual[k] = 0;
    for (int64_t row = 0; row < rows; row++) {
        count_constants(label + row, (Loss)kind == Loss::poisson, constant);
        for (int64_t first = 0; first < models; first += width) {
            int64_t count = models - first < width ? models - first : width;
            double *mine = score + (row * models + first) * outputs;
            lanes.clear(outputs * width);
            for (int64_t k = 0; k < count * outputs; k++) lanes[k % outputs * width + k / outputs] = mine[k];
            D total, slope, bend = zero<D>(), factor = all<D>(weight[row]);
            if ((Loss)kind == Loss::softmax) total = softmax<D>(outputs, all<D>(label[row]), factor, lanes, nullptr, bend);
            else {
                if ((Loss)kind == Loss::logistic) Logistic::at(load(lanes), all<D>(label[row]), total, slope, bend);
                else Poisson::at(load(lanes), all<D>(label[row]), total, slope, bend), total += all<D>(constant[0]);
                total *= factor;
                store(lanes, factor * slope);
            }
            double part[width];
            store(part, total);
            for (int64_t m = 0; m < count; m++) loss[first + m] += part[m];
            for (int64_t k = 0; k < count * outputs; k++) {
                mine[k] = lanes[k % outputs * width + k / outputs];
                residual[first * outputs + k] += mine[k];
            }
        }
    }
    return 0;
}

} // namespace grouplearn::generalised_linear
