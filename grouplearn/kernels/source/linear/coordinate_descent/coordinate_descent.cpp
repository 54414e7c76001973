// Structured coordinate descent (Rendle, Fetterly, Shekita & Su 2016) for generalised linear models with L1 and L2 penalties.
//
// An epoch goes through the feature blocks: sums of the block's columns over all rows, its columns' new values, predictions
// moved along. Each column has a problem of its own: minimise slope·δ + ½·bend·δ² + l1·|w + δ| + ½·l2·(w + δ)² within its radius,
// where `bend` is no less than what the loss bends there. So the objective never rises, and no step is taken back. Of squares in
// a block whose rows have one entry each that is the exact minimum (equations 3 to 5). At an epoch's end predictions are made
// anew from the weights, so that they follow from these alone.
#include "linear/coordinate_descent/codes.hpp"
#include "linear/coordinate_descent/ends.hpp"
#include "linear/coordinate_descent/predictions.hpp"
#include "lanes/entry.hpp"
#include "rows/features.hpp"

namespace grouplearn::coordinate_descent {
namespace {

/// Sums of cells, merged as ``train/block_sums.py`` does, whoever adds them and when: complete subtrees of pairs, then these from the
/// left. Their memory, `most` numbers each, is kept from round to round.
class Cells {
  public:
    explicit Cells(int64_t most) : most(most) {}

    /// Forget what was added; so many cells of so many numbers are to come.
    void begin(int64_t cells, int64_t numbers) {
        length = numbers;
        for (auto &level : waiting) {
            for (double *each : level)
                if (each) spare.push_back(each);
            level.clear();
        }
        size_t levels = 1;
        while (cells >> levels) levels++;
        waiting.resize(levels);
        for (size_t level = 0; level < levels; level++) waiting[level].resize((size_t)(cells >> level) + 1);
    }
    double *next() {
        double *numbers = nullptr;
        pthread_mutex_lock(&mutex);
        if (!spare.empty()) numbers = spare.back(), spare.pop_back();
        pthread_mutex_unlock(&mutex);
        if (!numbers) numbers = new double[(size_t)most];
        memset(numbers, 0, (size_t)length * sizeof(double));
        return numbers;
    }
    void add(int64_t cell, double *sums) {
        for (size_t level = 0; double *twin = twin_of(level, cell, sums); level++, cell /= 2) {
            bool right = cell % 2;
            for (int64_t i = 0; i < length; i++) sums[i] = right ? twin[i] + sums[i] : sums[i] + twin[i];
            free_later(twin);
        }
    }
    /// All of them; valid until the next is begun.
    double *total() {
        double *all = nullptr;
        for (size_t level = waiting.size(); level-- > 0;)
            for (double *&each : waiting[level]) {
                if (!each) continue;
                if (all) {
                    for (int64_t i = 0; i < length; i++) all[i] += each[i];
                    spare.push_back(each);
                } else all = each;
                each = nullptr;
            }
        spare.push_back(all);
        return all;
    }
    ~Cells() {
        begin(0, 0);
        for (double *each : spare) delete[] each;
    }
    Cells(const Cells &) = delete;
    Cells &operator=(const Cells &) = delete;

  private:
    int64_t most, length = 0;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    std::vector<std::vector<double *>> waiting; // by level and number, for their twins
    std::vector<double *> spare;

    /// The sums to be merged with these; NULL where these wait for them.
    double *twin_of(size_t level, int64_t number, double *sums) {
        pthread_mutex_lock(&mutex);
        double *&place = waiting[level][(size_t)(number ^ 1)], *twin = place;
        place = nullptr;
        if (!twin) waiting[level][(size_t)number] = sums;
        pthread_mutex_unlock(&mutex);
        return twin;
    }
    void free_later(double *sums) {
        pthread_mutex_lock(&mutex);
        spare.push_back(sums);
        pthread_mutex_unlock(&mutex);
    }
};

void pass_groups(const Shape &shape, const Rows &rows, const double *done, const Block *before, const double *step,
                 const Block *now, const double *radius, const double *unit, double *sums, Tile &tile) {
    for (int64_t g = 0; g < shape.groups; g++) {
        if (done && all_done(shape, g, done)) continue;
        if (pass_codes(shape, rows, before, step, now, radius, sums)) continue;
        if (shape.lanes == 1) pass<1>(shape, rows, g, before, step, now, radius, unit, sums, tile);
        else pass<8>(shape, rows, g, before, step, now, radius, unit, sums, tile);
    }
}

/// See ``measure``; with a `leap` at all its points.
void measure_groups(const Group &group, const Rows &rows, const Block *blocks, const double *leap, const double *radius,
                    const double *done, double *sums, Tile &tile) {
    const Shape &shape = group.shape;
    Line line{leap, POINTS, leap ? N_POINTS : 1};
    for (int64_t g = 0; g < shape.groups; g++) {
        if (done && all_done(shape, g, done)) continue;
        if (shape.lanes == 1) measure<1>(shape, rows, g, blocks, group.first, group.n_blocks, line, radius, sums, tile);
        else measure<8>(shape, rows, g, blocks, group.first, group.n_blocks, line, radius, sums, tile);
    }
}

constexpr Block INTERCEPT{nullptr, nullptr, nullptr};

/// Whole epochs of a group whose rows are all here; see ``descend`` in the kernels' Python.
class Descent {
  public:
    /// `path` (MOVES, columns + 1, groups, outputs, lanes) has the weights after each epoch since the last leap; `number` is that
    /// of the epoch to come, 0 for the end of the start.
    Descent(const Group &group, const Rows *cells, const Block *blocks, double *weights, double *before, double *radius,
            double *path, int64_t number, Progress progress, Order order, int64_t threads)
        : group(group), shape(group.shape), cells(cells), blocks(blocks), weights(weights), before(before), radius(radius),
          path(path), number(number), progress(progress), order(order), together(std::min(threads, group.n_cells)),
          sums(most_sums()) {
        for (int64_t thread = 0; thread < together.threads(); thread++) tiles.emplace_back(new Tile(shape.outputs));
    }

    void epoch() {
        int64_t apart = shape.column(), level = group.first[group.n_blocks] * apart;
        std::vector<double> step((size_t)apart), gained((size_t)group.models());
        for (int64_t i = 0; i < apart; i++) step[i] = weights[level + i] - before[level + i];
        int64_t moved = -1; // the block that has moved last, by `step`; -1 for the intercept
        for (int64_t round = 0; round < group.n_blocks; round++) {
            int64_t b = order.block[round], first = group.first[b] * apart;
            double *total = summed(2 * group.width(b) * apart, [&](int64_t cell, double *of_cell, Tile &tile) {
                const Block *own = blocks + cell * group.n_blocks, *last = moved < 0 ? &INTERCEPT : own + moved;
                pass_groups(shape, cells[cell], progress.done, last, step.data(), own + b, radius ? radius + first : nullptr,
                            group.unit + group.first[b], of_cell, tile);
            });
            if (!total) return;
            step.resize((size_t)(group.width(b) * apart));
            solve(group, b, total, weights + first, weights + level, radius ? radius + first : nullptr, progress, step.data(),
                  gained.data(), together);
            if (order.chooses()) order.after(round, *std::max_element(gained.begin(), gained.end()));
            moved = b;
        }
        shift(group, weights, progress.done);
        finish();
    }

    void finish() {
        int64_t kept = kept_before(number), size = (group.first[group.n_blocks] + 1) * shape.column();
        bool leap = leaps(group, number);
        if (leap) ahead.resize((size_t)size), find_leap(group, path, weights, progress.done, ahead.data());
        double *sums = measured(weights, leap ? ahead.data() : nullptr);
        if (!sums) return;
        close(group, sums, weights, before, radius, leap ? ahead.data() : nullptr, progress, order);
        if (leap && !measured(before, nullptr)) return; // predictions where models have leapt
        if (group.leaps && number >= FIRST) memcpy(path + (leap ? 0 : kept) * size, before, (size_t)size * sizeof(double));
        number++;
    }

  private:
    const Group &group;
    Shape shape;
    const Rows *cells;
    const Block *blocks;
    double *weights, *before, *radius, *path;
    int64_t number;
    Progress progress;
    Order order;
    Together together;
    std::vector<std::unique_ptr<Tile>> tiles; // one for each thread
    std::vector<double> ahead;
    Cells sums;

    /// The most numbers that are summed in a round or at the end of an epoch.
    int64_t most_sums() const {
        int64_t widest = 3 * N_POINTS;
        for (int64_t b = 0; b < group.n_blocks; b++) widest = std::max(widest, 2 * group.width(b));
        return widest * shape.column();
    }

    /// The sums over all cells of so many numbers, to which ``work(cell, sums, tile)`` adds those of one; they are there until the
    /// next. NULL where that was stopped.
    template <class Work> double *summed(int64_t numbers, const Work &work) {
        sums.begin(group.n_cells, numbers);
        together.each(group.n_cells, [&](int64_t thread, int64_t cell) {
            double *of_cell = sums.next();
            work(cell, of_cell, *tiles[(size_t)thread]);
            sums.add(cell, of_cell);
        });
        return stopped() ? nullptr : sums.total();
    }

    /// Predictions made anew, and the sums of ``measure``, NULL where that was stopped.
    double *measured(const double *at, const double *leap) {
        int64_t shares = together.threads();
        together.each(shares, [&](int64_t, int64_t share) {
            int64_t begin = share * group.n_cells / shares, end = (share + 1) * group.n_cells / shares;
            FreshPredictions(group, cells + begin, end - begin, blocks + begin * group.n_blocks, at).make(progress.done);
        });
        const double *own = radius ? radius + group.first[group.n_blocks] * shape.column() : nullptr;
        return summed(3 * shape.column() * (leap ? N_POINTS : 1), [&](int64_t cell, double *of_cell, Tile &tile) {
            measure_groups(group, cells[cell], blocks + cell * group.n_blocks, leap, own, progress.done, of_cell, tile);
        });
    }
};

/// A group from numbers and places, in the order of ``Group`` in the kernels' Python.
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
    return {numbers, numbers + models, numbers + 2 * models, numbers + 3 * models, numbers + 4 * models};
}

/// What rows say of a column.
struct Found {
    double total, low, high, count;
};

/// In which run of columns each of a row's columns is, which ascend; run i begins at column `first[i]`.
struct Runs {
    const int64_t *first;
    int64_t run = 0;

    int64_t of(int64_t column) {
        while (first[run + 1] <= column) run++;
        return run;
    }
};

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

/// What rows say of items (3, items): the most entries of a row, how many there are, and how many are not 1. Of the columns of items
/// that may be centred, of which `place[i]` is the number of the first (centred, 4): Σ w·x, the least and the greatest x of those not
/// 0, and how many these are. Of the columns of the others, of which -1 - `place[i]` is the number of the first (others): the
/// greatest |x|, or what is no number. Item i begins at column `first[i]`. All go on from what they are: 0 before the first rows but
/// for the least, ∞, and the greatest, -∞.
GROUPLEARN_ENTRY void coordinate_survey(const float *single, const double *wide, const int32_t *indices, const int64_t *indptr,
                                        int64_t n, int64_t d, const double *weight, int64_t n_items, const int64_t *first,
                                        const int64_t *place, Found *of_columns, double *largest, int64_t *of_items) {
    Arithmetic arithmetic;
    Matrix matrix{{single, wide}, indices, indptr, d};
    Looks looks;
    for (int64_t row = 0; row < n; row++) {
        Runs items{first};
        int64_t entries = 0, in_item = 0, last = -1;
        matrix.entries(row, [&](int64_t j, double x) {
            int64_t item = items.of(j), own = place[item];
            in_item = item == last ? in_item + 1 : 1, last = item, entries++;
            if (in_item > of_items[item]) of_items[item] = in_item;
            of_items[n_items + item]++, of_items[2 * n_items + item] += x != 1;
            if (own < 0) {
                double &most = largest[j - first[item] - 1 - own], size = __builtin_fabs(x);
                if (size > most || size != size) most = size;
                return;
            }
            Found &column = of_columns[j - first[item] + own];
            column.total += weight[row] * x, column.count += 1;
            column.low = x < column.low ? x : column.low, column.high = x > column.high ? x : column.high;
        });
        if (looks.stop(indptr ? entries + 1 : d / 2 + 1)) return;
    }
}

/// What the rows of two surveys say of columns.
GROUPLEARN_ENTRY void coordinate_merge(const Found *left, const Found *right, int64_t d, Found *to) {
    Arithmetic arithmetic;
    Looks looks;
    for (int64_t j = 0; j < d && !looks.stop(1); j++) {
        const Found &a = left[j], &b = right[j];
        to[j] = {a.total + b.total, b.low < a.low ? b.low : a.low, b.high > a.high ? b.high : a.high, a.count + b.count};
    }
}

/// How many entries rows have in each block that is ragged; block b begins at column `first[b]`.
GROUPLEARN_ENTRY void coordinate_entries(const float *single, const double *wide, const int32_t *indices, const int64_t *indptr,
                                         int64_t n, int64_t d, const int64_t *first, int64_t *count) {
    Arithmetic arithmetic;
    Matrix matrix{{single, wide}, indices, indptr, d};
    Looks looks;
    for (int64_t row = 0; row < n; row++) {
        Runs blocks{first};
        int64_t entries = 0;
        matrix.entries(row, [&](int64_t j, double) { count[blocks.of(j)]++, entries++; });
        if (looks.stop(indptr ? entries + 1 : d / 2 + 1)) return;
    }
}

/// Rows cut by block, `done` of them before: `to` (blocks, 3) says where `start`, `column` and `value` of all rows of each block
/// lie, the last less `mean` (d).
GROUPLEARN_ENTRY void coordinate_cut(const float *single, const double *wide, const int32_t *indices, const int64_t *indptr,
                                     int64_t n, int64_t d, const int64_t *first, int64_t n_blocks, const double *mean,
                                     int64_t done, void *const *to) {
    Arithmetic arithmetic;
    Matrix matrix{{single, wide}, indices, indptr, d};
    std::vector<int64_t> filled((size_t)n_blocks);
    std::vector<int64_t> ragged, dense;
    for (int64_t b = 0; b < n_blocks; b++) {
        if (int64_t *start = (int64_t *)to[3 * b]) {
            ragged.push_back(b);
            if (!done) start[0] = 0;
            filled[b] = start[done];
        } else if (!to[3 * b + 1] && mean[first[b]] != 0) dense.push_back(b);
    }
    Looks looks;
    for (int64_t row = 0; row < n; row++) {
        for (int64_t b : dense) ((double *)to[3 * b + 2])[done + row] = -mean[first[b]];
        Runs blocks{first};
        int64_t entries = 0;
        matrix.entries(row, [&](int64_t j, double x) {
            int64_t b = blocks.of(j), at = to[3 * b] ? filled[b]++ : done + row;
            if (to[3 * b + 1]) ((int32_t *)to[3 * b + 1])[at] = (int32_t)(j - first[b]);
            if (to[3 * b + 2]) ((double *)to[3 * b + 2])[at] = x - mean[j];
            entries++;
        });
        for (int64_t b : ragged) ((int64_t *)to[3 * b])[done + row + 1] = filled[b];
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

/// The end of an epoch of a cell: predictions made anew, then see ``measure``; with a `leap` at all its points.
GROUPLEARN_ENTRY void coordinate_measure(const int64_t *numbers, const void *const *places, int64_t n, const void *const *rows,
                                         const void *const *blocks, const double *weights, const double *leap,
                                         const double *radius, const double *done, double *sums) {
    Arithmetic arithmetic;
    Group group = group_of(numbers, places);
    Tile tile(group.shape.outputs);
    Rows cell = rows_of(n, rows);
    FreshPredictions(group, &cell, 1, (const Block *)blocks, weights).make(done);
    measure_groups(group, cell, (const Block *)blocks, leap, radius, done, sums, tile);
}

/// What becomes of the block of a round: see ``solve``, and the rounds to come: see ``Order``, whose last two may be none.
GROUPLEARN_ENTRY void coordinate_solve(const int64_t *numbers, const void *const *places, int64_t round, const double *sums,
                                       double *weights, double *level, double *radius, double *progress, double *step,
                                       int64_t *order, double *gain, int64_t *waits) {
    Arithmetic arithmetic;
    Group group = group_of(numbers, places);
    std::vector<double> gained((size_t)group.models());
    Together alone(1);
    solve(group, order[round], sums, weights, level, radius, progress_of(progress, group.shape), step, gained.data(), alone);
    Order rounds{order, gain, waits, group.n_blocks};
    if (rounds.chooses()) rounds.after(round, *std::max_element(gained.begin(), gained.end()));
}

GROUPLEARN_ENTRY void coordinate_shift(const int64_t *numbers, const void *const *places, const double *done, double *weights) {
    Arithmetic arithmetic;
    shift(group_of(numbers, places), weights, done);
}

/// Where models leap to after an epoch, if it ends with a leap: see ``Path``.
GROUPLEARN_ENTRY void coordinate_leap(const int64_t *numbers, const void *const *places, const double *path, const double *weights,
                                      const double *done, double *leap) {
    Arithmetic arithmetic;
    find_leap(group_of(numbers, places), path, weights, done, leap);
}

GROUPLEARN_ENTRY void coordinate_close(const int64_t *numbers, const void *const *places, const double *sums, double *progress,
                                       double *weights, double *before, double *radius, const double *leap, int64_t *order,
                                       double *gain, int64_t *waits) {
    Arithmetic arithmetic;
    Group group = group_of(numbers, places);
    Order rounds{order, gain, waits, group.n_blocks};
    close(group, sums, weights, before, radius, leap, progress_of(progress, group.shape), rounds);
}

/// Epochs until all models are done, `most` at most; returns how many. `count` (cells), `rows` (cells, 3), `blocks` (cells,
/// blocks, 3); `curve` (most, models) has the objective after each, `passes` (models) how many of them a model took. `number` is
/// that of the next epoch, 0 where not even the start has ended; `path` has room for MOVES times the weights. On at most so many
/// `threads`, whose number changes no bit.
GROUPLEARN_ENTRY int64_t coordinate_descend(const int64_t *numbers, const void *const *places, const int64_t *count,
                                            const void *const *rows, const void *const *blocks, int64_t number, int64_t most,
                                            double *weights, double *before, double *radius, double *path, double *progress,
                                            double *curve, int64_t *passes, int64_t *order, double *gain, int64_t *waits,
                                            int64_t threads) {
    Arithmetic arithmetic;
    Group group = group_of(numbers, places);
    std::vector<Rows> cells;
    for (int64_t c = 0; c < group.n_cells; c++) cells.push_back(rows_of(count[c], rows + 3 * c));
    Progress reached = progress_of(progress, group.shape);
    Order rounds{order, gain, waits, group.n_blocks};
    Descent descent(group, cells.data(), (const Block *)blocks, weights, before, radius, path, number, reached, rounds, threads);
    if (!number) descent.finish();
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
