// Rows on principal components: coordinates, what is left of a row beside them, and what these sum to.
#include "lanes/entry.hpp"
#include "rows/features.hpp"
#include "algebra/matrices.hpp"
#include "algebra/products.hpp"
#include <vector>

namespace grouplearn::projections {
namespace {

/// Rows less a mean (d), on orthogonal components (k, d) of any length.
class Projector {
  public:
    static constexpr int64_t ROWS = 48; // at a time
    static constexpr int64_t BEFORE = 2; // of a row's scores, the numbers before its coordinates

    Projector(const double *mean, const double *components, int64_t k, int64_t d)
        : d(d), k(k), width(in_lanes(d)), length(in_lanes(k)), mean(mean), across(d * length), back(k * width), shrink(length),
          own(length), left(ROWS * width), coordinates(ROWS * length) {
        for (int64_t c = 0; c < k; c++) {
            for (int64_t j = 0; j < d; j++) across[j * length + c] = back[c * width + j] = components[c * d + j];
            double square = dot(back + c * width, back + c * width, width);
            shrink[c] = square > 0 ? 1 / square : 0;
            for (int64_t j = 0; j < d; j++) back[c * width + j] *= -shrink[c];
        }
    }

    /// Projects the rows from `from` on, ROWS at most; false where it was told to stop.
    bool project(const Features &x, int64_t from, int64_t count) {
        if (stop(count * d)) return false;
        for (int64_t i = 0; i < count; i++) {
            double *row = left + i * width;
            x.read((from + i) * d, d, row);
            for (int64_t j = 0; j < d; j++) row[j] -= mean[j];
        }
        multiply<D>(Product<double>{left, width, 1, across, length, coordinates, length, count, length / 8, d});
        multiply<D>(Product<double>{coordinates, length, 1, back, width, left, width, count, width / 8, k, nullptr, true});
        return !stopped();
    }
    /// Of a row that was projected: its coordinates (k), the length of what is left of it, and the square of its projection's.
    const double *at(int64_t row) { return coordinates + row * length; }
    double residual(int64_t row) { return __builtin_sqrt(dot(left + row * width, left + row * width, width)); }
    double square(int64_t row) {
        for (int64_t c = 0; c < k; c++) own[c] = at(row)[c] * shrink[c];
        return dot(at(row), own, length);
    }

  private:
    int64_t d, k, width, length;
    const double *mean;
    Numbers across, back, shrink, own, left, coordinates;
};

} // namespace

/// Scores (count, 2 + k) of rows on components (k, d): the length of what is left, the square of the projection's, the coordinates.
GROUPLEARN_ENTRY void project_rows(const float *x_single, const double *x_double, int64_t count, int64_t d, const double *mean,
                                   const double *components, int64_t k, double *scores) {
    Arithmetic arithmetic;
    Projector projector(mean, components, k, d);
    for (int64_t from = 0; from < count; from += Projector::ROWS) {
        int64_t here = count - from < Projector::ROWS ? count - from : Projector::ROWS;
        if (!projector.project({x_single, x_double}, from, here)) return;
        for (int64_t i = 0; i < here; i++) {
            double *to = scores + (from + i) * (Projector::BEFORE + k);
            to[0] = projector.residual(i);
            to[1] = projector.square(i);
            memcpy(to + Projector::BEFORE, projector.at(i), (size_t)k * sizeof(double));
        }
    }
}

/// The same of runs of rows one after another, run r from start[r] on by the means (d,) and components (k, d) numbered model[r].
GROUPLEARN_ENTRY void project_rows_runs(const double *x, int64_t d, const int64_t *start, const int64_t *model, int64_t runs,
                                        const double *mean, const double *components, int64_t k, double *scores) {
    Looks looks;
    for (int64_t r = 0; r < runs && !looks.stop((start[r + 1] - start[r]) * d * (1 + k)); r++)
        project_rows(nullptr, x + start[r] * d, start[r + 1] - start[r], d, mean + model[r] * d, components + model[r] * k * d, k,
                     scores + start[r] * (Projector::BEFORE + k));
}

/// The sums of rows with such scores (count, models, width): Σ w, and per model Σ w·r² of what is left and Σ w·‖p‖² of projections,
/// one row after another.
GROUPLEARN_ENTRY void sum_projections(const double *scores, const double *weight, int64_t count, int64_t models, int64_t width,
                                      double *total, double *residual, double *explained) {
    Arithmetic arithmetic;
    *total = 0;
    for (int64_t m = 0; m < models; m++) residual[m] = explained[m] = 0;
    for (int64_t i = 0; i < count && !stop(models * 8); i++) {
        *total += weight[i];
        for (int64_t m = 0; m < models; m++) {
            const double *score = scores + (i * models + m) * width;
            residual[m] = __builtin_fma(weight[i], score[0] * score[0], residual[m]);
            explained[m] = __builtin_fma(weight[i], score[1], explained[m]);
        }
    }
}

/// The same sums of groups of rows, `start` (groups + 1), each with models of its own: `mean` (groups, d), and of model m the
/// components from `first[m]` to `first[m + 1]` of (N, d).
GROUPLEARN_ENTRY void measure_projections(const float *x_single, const double *x_double, int64_t d, const double *weight,
                                          const int64_t *start, int64_t groups, const double *mean, const double *components,
                                          const int64_t *first, int64_t models, double *total, double *residual, double *explained) {
    Arithmetic arithmetic;
    for (int64_t g = 0; g < groups; g++) {
        total[g] = 0;
        for (int64_t i = start[g]; i < start[g + 1]; i++) total[g] += weight[i];
        for (int64_t m = g * models; m < (g + 1) * models; m++) {
            Projector projector(mean + g * d, components + first[m] * d, first[m + 1] - first[m], d);
            residual[m] = explained[m] = 0;
            for (int64_t from = start[g]; from < start[g + 1]; from += Projector::ROWS) {
                int64_t here = start[g + 1] - from < Projector::ROWS ? start[g + 1] - from : Projector::ROWS;
                if (!projector.project({x_single, x_double}, from, here)) return;
                for (int64_t i = 0; i < here; i++) {
                    double left = projector.residual(i);
                    residual[m] = __builtin_fma(weight[from + i], left * left, residual[m]);
                    explained[m] = __builtin_fma(weight[from + i], projector.square(i), explained[m]);
                }
            }
        }
    }
}

} // namespace grouplearn::projections
