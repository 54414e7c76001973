// Structured coordinate descent (Rendle, Fetterly, Shekita & Su 2016) for generalised linear models with L1 and L2 penalties.
//
// An epoch goes through the feature blocks: sums of the block's columns over all rows, its columns' new values, predictions
// moved along. Each column has a problem of its own: minimise slope·δ + ½·bend·δ² + l1·|w + δ| + ½·l2·(w + δ)² within its radius,
// where `bend` is no less than what the loss bends there. So the objective never rises, and no step is taken back. Of squares in
// a block whose rows have one entry each that is the exact minimum (equations 3 to 5). At an epoch's end predictions are made
// anew from the weights, so that they follow from these alone.
#include "linear/coordinate_descent_rows.hpp"
#include "lanes/entry.hpp"
#include "rows/features.hpp"
#include <algorithm>
#include <vector>

namespace grouplearn::coordinate_descent {
namespace {

/// The radius of a column is no less than this share of what moves its largest row by 1.
constexpr double LEAST_RADIUS = 1.0 / 64;
/// Of an epoch's gain, as a multiple of the tolerance: where more was gained, the ratio of two gains says little of the rest. Where
/// columns say much the same, great gains are followed by ten thousands that are small and hardly change.
constexpr double MOST_GAIN = 0.01;
/// The objective counts as no less than this share of the first one: where it goes to 0, shares of it say nothing.
constexpr double LEAST_OBJECTIVE = 1e-6;
/// A gain that is rounding.
constexpr double NO_GAIN = 1e-15;

/// What is told per model, (groups, lanes).
struct Penalties {
    const double *l1, *l2, *tolerance;
};

/// How far the models of the lanes are, (groups, lanes) each; `done` is 1 where a model stays as it is.
struct Progress {
    double *loss, *start, *gain, *done;
};

struct Group {
    Shape shape;
    int64_t n_blocks, n_cells;
    const int64_t *first;     // (n_blocks + 1): the first column of each block, and the number of columns
    const int64_t *complete;  // (n_blocks): every row has one entry in it, which is 1
    const double *unit;       // (columns + 1): 1/max|x|, 0 for a column of zeros; 1 for the intercept
    bool fit_intercept, keeps_radius;
    Penalties penalties;
};

/// The new weights and radii of some columns, in place, from `sums` (column, group, output, 2, lanes).
void reduce(const Group &group, int64_t columns, const double *sums, const double *unit, bool penalised, const double *done,
            double *weights, double *radius) {
    const Shape &shape = group.shape;
    Looks looks;
    for (int64_t j = 0; j < columns && !looks.stop(4 * shape.column()); j++)
        for (int64_t g = 0; g < shape.groups; g++)
            for (int64_t k = 0; k < shape.outputs; k++) {
                int64_t at = j * shape.column() + shape.at(g, k);
                const double *slope = sums + 2 * at, *bend = slope + shape.lanes;
                for (int64_t lane = 0; lane < shape.lanes; lane++) {
                    int64_t model = g * shape.lanes + lane;
                    double &weight = weights[at + lane];
                    if (done[model] != 0 || unit[j] == 0) continue;
                    double l1 = penalised ? group.penalties.l1[model] : 0, l2 = penalised ? group.penalties.l2[model] : 0;
                    double total = bend[lane] + l2, pull = bend[lane] * weight - slope[lane], step = 0;
                    if (total > 0 && total < INFINITY) {
                        double beyond = pull > l1 ? pull - l1 : pull < -l1 ? pull + l1 : pull == pull ? 0 : pull;
                        step = l1 > 0 ? beyond / total - weight : -(slope[lane] + l2 * weight) / total;
                    } else if (slope[lane] != slope[lane] || total != total) {
                        step = NAN;
                    }
                    if (group.keeps_radius) {
                        double &most = radius[at + lane];
                        step = step > most ? most : step < -most ? -most : step;
                        double next = most < INFINITY ? 0.5 * most : 0, twice = 2 * __builtin_fabs(step);
                        next = twice > next ? twice : next;
                        most = next > LEAST_RADIUS * unit[j] ? next : LEAST_RADIUS * unit[j];
                    }
                    // A weight that goes to 0 is 0.
                    weight = step == -weight ? 0 : weight + step;
                }
            }
}

/// The c that minimises Σ l1·|v − c| + ½·l2·(v − c)² over sorted `values`.
double centre(const std::vector<double> &values, double l1, double l2) {
    int64_t n = (int64_t)values.size(), below = 0, zeros = 0;
    double total = 0;
    for (double v : values) total += v, below += v < 0, zeros += v == 0;
    if (l1 == 0) return total / (double)n;
    // At 0 already: no weight that is 0 is given up for rounding.
    if (__builtin_fabs(l1 * (double)(n - zeros - 2 * below) + l2 * total) <= l1 * (double)zeros) return 0;
    for (int64_t i = 0; i <= n; i++) { // i values are below c
        double low = i ? values[i - 1] : -INFINITY, high = i < n ? values[i] : INFINITY;
        double slope = l1 * (double)(n - 2 * i) + l2 * total; // less l2·n·c: above 0 where c is to be greater
        double c = l2 > 0 ? slope / (l2 * (double)n) : slope > 0 ? INFINITY : low;
        if (c <= low) return low;
        if (c <= high && c < INFINITY) return c;
    }
    return 0;
}

/// Moves weights that may all change by one number, which changes no prediction, to where they cost least; returns that number.
double settle(std::vector<double *> &weights, std::vector<double> &values, double l1, double l2) {
    values.clear();
    for (const double *weight : weights) {
        if (!(__builtin_fabs(*weight) < INFINITY)) return 0;
        values.push_back(*weight);
    }
    if (values.empty()) return 0;
    if (l1 > 0) std::sort(values.begin(), values.end());
    double c = centre(values, l1, l2);
    if (c == 0) return 0;
    for (double *weight : weights) *weight -= c;
    return c;
}

/// What costs less and changes no prediction: the weights of all classes of a softmax at a column by the same number; those of a
/// block in which every row has one entry, 1, and the intercept the other way.
void shift(const Group &group, double *weights, const double *done) {
    const Shape &shape = group.shape;
    int64_t apart = shape.column(), columns = group.first[group.n_blocks];
    std::vector<double *> moving;
    std::vector<double> values;
    for (int64_t model = 0; model < shape.groups * shape.lanes; model++) {
        if (done[model] != 0) continue;
        double l1 = group.penalties.l1[model], l2 = group.penalties.l2[model];
        int64_t g = model / shape.lanes, lane = model % shape.lanes;
        for (int64_t j = 0; j < columns && shape.loss == Loss::softmax; j++) {
            if (stop(shape.outputs)) return;
            moving.clear();
            for (int64_t k = 0; k < shape.outputs; k++) moving.push_back(weights + j * apart + shape.at(g, k) + lane);
            settle(moving, values, l1, l2);
        }
        for (int64_t b = 0; b < group.n_blocks && group.fit_intercept; b++) {
            if (!group.complete[b]) continue;
            for (int64_t k = 0; k < shape.outputs; k++) {
                int64_t at = shape.at(g, k) + lane;
                if (stop(group.first[b + 1] - group.first[b])) return;
                moving.clear();
                for (int64_t j = group.first[b]; j < group.first[b + 1]; j++)
                    if (group.unit[j] > 0) moving.push_back(weights + j * apart + at);
                weights[columns * apart + at] += settle(moving, values, l1, l2);
            }
        }
    }
}

/// What an epoch has come to, from the `sums` of ``measure``; then the intercept's step, for models that go on.
void close(const Group &group, const double *sums, double *weights, double *radius, const Progress &progress) {
    const Shape &shape = group.shape;
    int64_t apart = shape.column(), columns = group.first[group.n_blocks];
    for (int64_t g = 0; g < shape.groups; g++)
        for (int64_t lane = 0; lane < shape.lanes; lane++) {
            int64_t model = g * shape.lanes + lane;
            if (progress.done[model] != 0 || stop(columns * shape.outputs / 4)) continue;
            double l1 = group.penalties.l1[model], l2 = group.penalties.l2[model], objective = 0;
            for (int64_t k = 0; k < shape.outputs; k++) {
                double sizes = 0, squares = 0;
                for (int64_t j = 0; j < columns; j++) {
                    double weight = weights[j * apart + shape.at(g, k) + lane];
                    sizes += __builtin_fabs(weight), squares += weight * weight;
                }
                objective += sums[3 * shape.at(g, k) + lane] + l1 * sizes + 0.5 * l2 * squares;
            }
            double before = progress.loss[model], gain = before - objective;
            // Below 0 where little was to come after the last epoch already. That is asked twice: where columns say much the same,
            // an epoch of great gains is followed by thousands of small ones, and the first of these says that they end.
            bool again = progress.gain[model] < 0;
            double last = __builtin_fabs(progress.gain[model]);
            bool first = progress.start[model] != progress.start[model];
            if (first) progress.start[model] = objective;
            progress.loss[model] = objective, progress.gain[model] = first ? INFINITY : __builtin_fabs(gain);
            if (first || !(__builtin_fabs(objective) < INFINITY)) continue;
            double scale = LEAST_OBJECTIVE * progress.start[model];
            scale = objective > scale ? objective : scale;
            double enough = group.penalties.tolerance[model] * scale, share = gain / last;
            share = share < 0.9999 ? share : 0.9999; // the gains to come, were each this share of the one before
            bool little = last < INFINITY && gain <= MOST_GAIN * enough && gain * share <= enough * (1 - share);
            if (little) progress.gain[model] = -progress.gain[model];
            progress.done[model] = gain <= NO_GAIN * scale || (little && again) ? 1 : 0;
        }
    if (!group.fit_intercept) return;
    std::vector<double> of_intercept((size_t)(2 * apart));
    for (int64_t at = 0; at < apart; at += shape.lanes)
        memcpy(&of_intercept[2 * at], sums + 3 * at + shape.lanes, (size_t)(2 * shape.lanes) * sizeof(double));
    double *own = radius ? radius + columns * apart : nullptr;
    reduce(group, 1, of_intercept.data(), group.unit + columns, false, progress.done, weights + columns * apart, own);
}

bool all_done(const Shape &shape, int64_t group, const double *done) {
    for (int64_t lane = 0; lane < shape.lanes; lane++)
        if (done[group * shape.lanes + lane] == 0) return false;
    return true;
}

/// Sums of cells in order, merged as ``train/block_sums.py`` does: complete subtrees of pairs, then these from the left.
class Cells {
  public:
    explicit Cells(int64_t length) : length(length) {}

    double *next() {
        if (spare.empty()) return new double[(size_t)length]();
        double *numbers = spare.back();
        spare.pop_back();
        memset(numbers, 0, (size_t)length * sizeof(double));
        return numbers;
    }
    void add(double *sums) {
        int level = 0;
        while (!tree.empty() && tree.back().level == level) merge(sums), level++;
        tree.push_back({sums, level});
    }
    /// All of them; valid until the next is added.
    double *total() {
        while (tree.size() > 1) {
            double *left = tree[0].sums, *right = tree[1].sums;
            for (int64_t i = 0; i < length; i++) left[i] += right[i];
            spare.push_back(right), tree.erase(tree.begin() + 1);
        }
        double *all = tree[0].sums;
        spare.push_back(all), tree.clear();
        return all;
    }
    ~Cells() {
        for (double *each : spare) delete[] each;
        for (const Subtree &each : tree) delete[] each.sums;
    }

  private:
    struct Subtree {
        double *sums;
        int level;
    };
    int64_t length;
    std::vector<Subtree> tree;
    std::vector<double *> spare;

    /// The left neighbour plus these, in place of these.
    void merge(double *sums) {
        double *left = tree.back().sums;
        tree.pop_back();
        for (int64_t i = 0; i < length; i++) sums[i] = left[i] + sums[i];
        spare.push_back(left);
    }
};

void pass_groups(const Shape &shape, const Rows &rows, const double *done, const Block *before, const double *step,
                 const Block *now, const double *radius, const double *unit, double *sums, Tile &tile) {
    for (int64_t g = 0; g < shape.groups; g++) {
        if (done && all_done(shape, g, done)) continue;
        if (shape.lanes == 1) pass<1>(shape, rows, g, before, step, now, radius, unit, sums, tile);
        else pass<8>(shape, rows, g, before, step, now, radius, unit, sums, tile);
    }
}

void measure_groups(const Group &group, const Rows &rows, const Block *blocks, const double *weights, const double *radius,
                    const double *done, double *sums, Tile &tile) {
    const Shape &shape = group.shape;
    for (int64_t g = 0; g < shape.groups; g++) {
        if (done && all_done(shape, g, done)) continue;
        if (shape.lanes == 1) measure<1>(shape, rows, g, blocks, group.first, group.n_blocks, weights, radius, sums, tile);
        else measure<8>(shape, rows, g, blocks, group.first, group.n_blocks, weights, radius, sums, tile);
    }
}

constexpr Block INTERCEPT{nullptr, nullptr, nullptr};

/// Whole epochs of a group whose rows are all here; see ``descend`` in the kernels' Python.
class Descent {
  public:
    Descent(const Group &group, const Rows *cells, const Block *blocks, double *weights, double *before, double *radius,
            Progress progress)
        : group(group), shape(group.shape), cells(cells), blocks(blocks), weights(weights), before(before), radius(radius),
          progress(progress), tile(group.shape.outputs) {}

    void epoch() {
        int64_t apart = shape.column(), columns = group.first[group.n_blocks], last = columns;
        const Block *moved = nullptr; // the block that has moved last; its first column is `last`
        std::vector<double> step((size_t)apart);
        for (int64_t i = 0; i < apart; i++) step[i] = weights[columns * apart + i] - before[columns * apart + i];
        for (int64_t b = 0; b < group.n_blocks; b++) {
            int64_t first = group.first[b], width = group.first[b + 1] - first;
            Cells sums(2 * width * apart);
            for (int64_t c = 0; c < group.n_cells && !stopped(); c++) {
                double *of_cell = sums.next();
                moved = b ? blocks + c * group.n_blocks + b - 1 : &INTERCEPT;
                const double *reach = radius ? radius + first * apart : nullptr;
                const Block *now = blocks + c * group.n_blocks + b;
                pass_groups(shape, cells[c], progress.done, moved, step.data(), now, reach, group.unit + first, of_cell, tile);
                sums.add(of_cell);
            }
            if (stopped()) return;
            reduce(group, width, sums.total(), group.unit + first, true, progress.done, weights + first * apart,
                   radius ? radius + first * apart : nullptr);
            step.resize((size_t)(width * apart));
            last = first * apart;
            for (int64_t i = 0; i < width * apart; i++) step[i] = weights[last + i] - before[last + i];
        }
        shift(group, weights, progress.done);
        finish();
    }

    void finish() {
        int64_t apart = shape.column();
        Cells sums(3 * apart);
        const double *own = radius ? radius + group.first[group.n_blocks] * apart : nullptr;
        for (int64_t c = 0; c < group.n_cells && !stopped(); c++) {
            double *of_cell = sums.next();
            measure_groups(group, cells[c], blocks + c * group.n_blocks, weights, own, progress.done, of_cell, tile);
            sums.add(of_cell);
        }
        if (stopped()) return;
        memcpy(before, weights, (size_t)((group.first[group.n_blocks] + 1) * apart) * sizeof(double));
        close(group, sums.total(), weights, radius, progress);
    }

  private:
    const Group &group;
    Shape shape;
    const Rows *cells;
    const Block *blocks;
    double *weights, *before, *radius;
    Progress progress;
    Tile tile;
};

/// A group from numbers and places, in the order of ``_Plan`` in the kernels' Python.
Group group_of(const int64_t *n, const void *const *at) {
    Shape shape{(Loss)n[0], n[1], n[2], n[3]};
    Penalties penalties{(const double *)at[3], (const double *)at[4], (const double *)at[5]};
    const int64_t *first = (const int64_t *)at[0], *complete = (const int64_t *)at[1];
    return {shape, n[4], n[5], first, complete, (const double *)at[2], n[6] != 0, n[7] != 0, penalties};
}

Rows rows_of(int64_t count, const void *const *at) {
    return {count, (const double *)at[0], (const double *)at[1], (double *)(uintptr_t)at[2]};
}

Progress progress_of(double *numbers, const Shape &shape) {
    int64_t models = shape.groups * shape.lanes;
    return {numbers, numbers + models, numbers + 2 * models, numbers + 3 * models};
}

/// The entries of a row, dense or CSR.
struct Matrix {
    Features x;
    const int32_t *indices;
    const int64_t *indptr;
    int64_t columns;

    template <class Work> void entries(int64_t row, Work work) const {
        if (!indptr) {
            for (int64_t j = 0; j < columns; j++)
                if (double value = x[row * columns + j]; value != 0) work(j, value);
            return;
        }
        for (int64_t at = indptr[row]; at < indptr[row + 1]; at++)
            if (x[at] != 0) work((int64_t)indices[at], x[at]);
    }
};

} // namespace

/// What rows say of columns (4, d): Σ w·x, the least and the greatest x of those not 0, and how many these are; and of items
/// (3, items): the most entries of a row, how many there are, and how many are not 1. `item` (d) is which each column is of.
GROUPLEARN_ENTRY void coordinate_survey(const float *single, const double *wide, const int32_t *indices, const int64_t *indptr,
                                        int64_t n, int64_t d, const double *weight, int64_t n_items, const int64_t *item,
                                        double *of_columns, int64_t *of_items) {
    Arithmetic arithmetic;
    Matrix matrix{{single, wide}, indices, indptr, d};
    double *total = of_columns, *low = total + d, *high = low + d, *count = high + d;
    std::vector<int64_t> in_row((size_t)n_items), touched;
    for (int64_t j = 0; j < d; j++) total[j] = count[j] = 0, low[j] = INFINITY, high[j] = -INFINITY;
    Looks looks;
    for (int64_t row = 0; row < n; row++) {
        touched.clear();
        int64_t entries = 0;
        matrix.entries(row, [&](int64_t j, double x) {
            total[j] += weight[row] * x, count[j] += 1, entries++;
            low[j] = x < low[j] ? x : low[j], high[j] = x > high[j] ? x : high[j];
            if (!in_row[item[j]]++) touched.push_back(item[j]);
            of_items[n_items + item[j]]++, of_items[2 * n_items + item[j]] += x != 1;
        });
        if (looks.stop(indptr ? entries + 1 : d / 2 + 1)) return;
        for (int64_t i : touched) {
            if (in_row[i] > of_items[i]) of_items[i] = in_row[i];
            in_row[i] = 0;
        }
    }
}

/// How many entries rows have in each block that is ragged; `block` (d) is which each column is of.
GROUPLEARN_ENTRY void coordinate_entries(const float *single, const double *wide, const int32_t *indices, const int64_t *indptr,
                                         int64_t n, int64_t d, const int64_t *block, int64_t *count) {
    Arithmetic arithmetic;
    Matrix matrix{{single, wide}, indices, indptr, d};
    Looks looks;
    for (int64_t row = 0; row < n; row++) {
        int64_t entries = 0;
        matrix.entries(row, [&](int64_t j, double) { count[block[j]]++, entries++; });
        if (looks.stop(indptr ? entries + 1 : d / 2 + 1)) return;
    }
}

/// Rows cut by block: `to` (blocks, 3) says where `start`, `column` and `value` of each block lie, the last less `mean` (d).
GROUPLEARN_ENTRY void coordinate_cut(const float *single, const double *wide, const int32_t *indices, const int64_t *indptr,
                                     int64_t n, int64_t d, const int64_t *block, const int64_t *first, int64_t n_blocks,
                                     const double *mean, void *const *to) {
    Arithmetic arithmetic;
    Matrix matrix{{single, wide}, indices, indptr, d};
    std::vector<int64_t> filled((size_t)n_blocks);
    std::vector<int64_t> ragged, dense;
    for (int64_t b = 0; b < n_blocks; b++) {
        if (to[3 * b]) ragged.push_back(b), ((int64_t *)to[3 * b])[0] = 0;
        else if (!to[3 * b + 1] && mean[first[b]] != 0) dense.push_back(b);
    }
    Looks looks;
    for (int64_t row = 0; row < n; row++) {
        for (int64_t b : dense) ((double *)to[3 * b + 2])[row] = -mean[first[b]];
        int64_t entries = 0;
        matrix.entries(row, [&](int64_t j, double x) {
            int64_t b = block[j], at = to[3 * b] ? filled[b]++ : row;
            if (to[3 * b + 1]) ((int32_t *)to[3 * b + 1])[at] = (int32_t)(j - first[b]);
            if (to[3 * b + 2]) ((double *)to[3 * b + 2])[at] = x - mean[j];
            entries++;
        });
        for (int64_t b : ragged) ((int64_t *)to[3 * b])[row + 1] = filled[b];
        if (looks.stop((int64_t)(ragged.size() + dense.size()) + (indptr ? entries + 1 : d / 2 + 1))) return;
    }
}

/// One round of a cell: see ``pass``. `blocks` (2, 3) are the one that has moved, if any, and that whose sums are wanted, which
/// begins at column `first`; -1 for none.
GROUPLEARN_ENTRY void coordinate_pass(const int64_t *numbers, const void *const *places, int64_t n, const void *const *rows,
                                      const void *const *blocks, int64_t moves, const double *step, int64_t first,
                                      const double *radius, const double *done, double *sums) {
    Arithmetic arithmetic;
    Group group = group_of(numbers, places);
    Tile tile(group.shape.outputs);
    const Block *before = moves ? (const Block *)blocks : nullptr, *now = first < 0 ? nullptr : (const Block *)blocks + 1;
    pass_groups(group.shape, rows_of(n, rows), done, before, step, now, radius, group.unit + (now ? first : 0), sums, tile);
}

/// The end of an epoch of a cell: see ``measure``.
GROUPLEARN_ENTRY void coordinate_measure(const int64_t *numbers, const void *const *places, int64_t n, const void *const *rows,
                                         const void *const *blocks, const double *weights, const double *radius,
                                         const double *done, double *sums) {
    Arithmetic arithmetic;
    Group group = group_of(numbers, places);
    Tile tile(group.shape.outputs);
    measure_groups(group, rows_of(n, rows), (const Block *)blocks, weights, radius, done, sums, tile);
}

GROUPLEARN_ENTRY void coordinate_reduce(const int64_t *numbers, const void *const *places, int64_t columns, const double *sums,
                                        const double *unit, const double *done, double *weights, double *radius) {
    Arithmetic arithmetic;
    reduce(group_of(numbers, places), columns, sums, unit, true, done, weights, radius);
}

GROUPLEARN_ENTRY void coordinate_shift(const int64_t *numbers, const void *const *places, const double *done, double *weights) {
    Arithmetic arithmetic;
    shift(group_of(numbers, places), weights, done);
}

GROUPLEARN_ENTRY void coordinate_close(const int64_t *numbers, const void *const *places, const double *sums, double *progress,
                                       double *weights, double *radius) {
    Arithmetic arithmetic;
    Group group = group_of(numbers, places);
    close(group, sums, weights, radius, progress_of(progress, group.shape));
}

/// Epochs until all models are done, `most` at most; returns how many. `count` (cells), `rows` (cells, 3), `blocks` (cells,
/// blocks, 3); `curve` (most, models) has the objective after each, `passes` (models) how many of them a model took. `begun` is 0
/// where no epoch has ended yet, not even that of the start.
GROUPLEARN_ENTRY int64_t coordinate_descend(const int64_t *numbers, const void *const *places, const int64_t *count,
                                            const void *const *rows, const void *const *blocks, int64_t begun, int64_t most,
                                            double *weights, double *before, double *radius, double *progress, double *curve,
                                            int64_t *passes) {
    Arithmetic arithmetic;
    Group group = group_of(numbers, places);
    std::vector<Rows> cells;
    for (int64_t c = 0; c < group.n_cells; c++) cells.push_back(rows_of(count[c], rows + 3 * c));
    Progress reached = progress_of(progress, group.shape);
    Descent descent(group, cells.data(), (const Block *)blocks, weights, before, radius, reached);
    if (!begun) descent.finish();
    int64_t models = group.shape.groups * group.shape.lanes, epochs = 0;
    for (; epochs < most && !stopped(); epochs++) {
        bool all = true;
        for (int64_t i = 0; i < models; i++) {
            if (!(__builtin_fabs(reached.loss[i]) < INFINITY)) reached.done[i] = 1;
            all &= reached.done[i] != 0;
        }
        if (all) break;
        for (int64_t i = 0; i < models; i++) passes[i] += reached.done[i] == 0;
        descent.epoch();
        memcpy(curve + epochs * models, reached.loss, (size_t)models * sizeof(double));
    }
    return epochs;
}

} // namespace grouplearn::coordinate_descent
