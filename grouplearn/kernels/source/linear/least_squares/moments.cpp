// The moments of groups of rows, and those of all rows but a fold's.
//
// Columns are in the lanes, and every sum over rows is that of runs of 128 rows, each added up in order.
#include "lanes/entry.hpp"
#include "rows/features.hpp"
#include "linear/least_squares/moments.hpp"
#include <vector>

namespace grouplearn {
namespace {

constexpr int64_t RUN = 128;

/// The rows that are summed: every one from `first` on, or those whose numbers are given.
struct Chosen {
    const int64_t *numbers;
    int64_t first, count;
    int64_t operator[](int64_t i) const { return numbers ? numbers[i] : first + i; }
};

/// Rows and what there is to sum over them: x (n, d), targets (n, t), weight (n).
struct Table {
    Features x;
    const double *targets, *weight;
    int64_t d, t;
};

/// A run of rows in lanes: `rows` (RUN, width), `targets` (t, RUN) and `weight` (RUN), zeros in the lanes
/// beyond what is there.
struct Run {
    int64_t width;
    Numbers rows, targets, weight;
    /// The rows in double precision, here or where they lie if they are and fill lanes.
    const double *given = nullptr;
    Run(int64_t d, int64_t t) : width(in_lanes(d)), rows(RUN * width), targets(t * RUN), weight(RUN) {}
};

int64_t fetch(Run &run, const Table &table, const Chosen &chosen, int64_t from) {
    int64_t count = chosen.count - from < RUN ? chosen.count - from : RUN;
    bool copied = chosen.numbers || run.width != table.d || table.x.single;
    run.given = copied ? run.rows : table.x.wide + (chosen.first + from) * table.d;
    for (int64_t i = 0; i < count; i++) {
        int64_t row = chosen[from + i];
        run.weight[i] = table.weight[row];
        if (copied) table.x.read(row * table.d, table.d, run.rows + i * run.width);
        for (int64_t k = 0; k < table.t; k++) run.targets[k * RUN + i] = table.targets[row * table.t + k];
    }
    for (int64_t i = count; i < in_lanes(count); i++) {
        run.weight[i] = 0;
        for (int64_t k = 0; k < table.t; k++) run.targets[k * RUN + i] = 0;
    }
    return count;
}

/// Adds Σ factorᵢ·rowᵢ of a run, for `blocks` blocks of eight columns from one on, to `sums`.
template <int blocks>
void add_rows(double *sums, const double *factor, const double *rows, int64_t width, int64_t count) {
    D part[blocks];
    for (int b = 0; b < blocks; b++) part[b] = zero<D>();
    for (int64_t i = 0; i < count; i++) {
        D f = all(factor[i]);
        for (int b = 0; b < blocks; b++) part[b] = fma(f, load(rows + i * width + 8 * b), part[b]);
    }
    for (int b = 0; b < blocks; b++) store(sums + 8 * b, load(sums + 8 * b) + part[b]);
}

void add_all_rows(double *sums, const double *factor, const double *rows, int64_t width, int64_t count) {
    int64_t column = 0;
    for (; column + 32 <= width; column += 32) add_rows<4>(sums + column, factor, rows + column, width, count);
    for (; column < width; column += 8) add_rows<1>(sums + column, factor, rows + column, width, count);
}

/// Adds to `gram` (width, width) the products of eight columns from `i` on with eight from `j` on.
void add_products(double *gram, const double *rows, int64_t width, int64_t count, int64_t i, int64_t j) {
    D part[8];
    for (D &each : part) each = zero<D>();
    for (int64_t r = 0; r < count; r++) {
        const double *row = rows + r * width;
        D right = load(row + j);
        for (int k = 0; k < 8; k++) part[k] = fma(all(row[i + k]), right, part[k]);
    }
    for (int k = 0; k < 8; k++) {
        double *place = gram + (i + k) * width + j;
        store(place, load(place) + part[k]);
    }
}

/// Makes every row of the run √w(x − x̄), and the same of the targets.
void centre(Run &run, const double *mean, const double *target_mean, int64_t t, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        double root = __builtin_sqrt(run.weight[i]);
        D factor = all(root);
        for (int64_t column = 0; column < run.width; column += 8) {
            int64_t place = i * run.width + column;
            store(run.rows + place, (load(run.given + place) - load(mean + column)) * factor);
        }
        for (int64_t k = 0; k < t; k++) run.targets[k * RUN + i] = (run.targets[k * RUN + i] - target_mean[k]) * root;
        run.weight[i] = root;
    }
}

/// What is summed for one set of rows at a time, in lanes.
struct Sums {
    int64_t d, t, width;
    Run run;
    Numbers mean, target_mean, cross, target_gram, gram;
    Looks looks;
    Sums(int64_t d, int64_t t, bool with_gram)
        : d(d), t(t), width(in_lanes(d)), run(d, t), mean(width), target_mean(t), cross(t * width), target_gram(t * t),
          gram(width * (with_gram ? width : 1)) {}

    double add_means(const Table &table, const Chosen &chosen) {
        double total = 0;
        memset(mean, 0, width * sizeof(double));
        memset(target_mean, 0, t * sizeof(double));
        for (int64_t from = 0; from < chosen.count; from += RUN) {
            int64_t count = fetch(run, table, chosen, from);
            Numbers &weight = run.weight;
            D part = zero<D>();
            for (int64_t i = 0; i < count; i += 8) part += load(weight + i);
            total += sum(part);
            add_all_rows(mean, weight, run.given, width, count);
            if (looks.stop(count * width / 4)) return total;
            for (int64_t k = 0; k < t; k++) target_mean[k] += dot(weight, run.targets + k * RUN, in_lanes(count));
        }
        for (int64_t j = 0; j < width; j++) mean[j] /= total;
        for (int64_t k = 0; k < t; k++) target_mean[k] /= total;
        return total;
    }

    void add_second(const Table &table, const Chosen &chosen, bool with_gram) {
        memset(cross, 0, t * width * sizeof(double));
        memset(target_gram, 0, t * t * sizeof(double));
        memset(gram, 0, width * (with_gram ? width : 1) * sizeof(double));
        for (int64_t from = 0; from < chosen.count; from += RUN) {
            // A single run is here already.
            int64_t count = chosen.count > RUN ? fetch(run, table, chosen, from) : chosen.count;
            centre(run, mean, target_mean, t, count);
            if (looks.stop(count * width / 4)) return;
            for (int64_t k = 0; k < t; k++) {
                double *target = run.targets + k * RUN;
                if (looks.stop(count * (width + k) / 8)) return;
                add_all_rows(cross + k * width, target, run.rows, width, count);
                for (int64_t l = 0; l <= k; l++) target_gram[k * t + l] += dot(target, run.targets + l * RUN, in_lanes(count));
            }
            if (with_gram)
                for (int64_t j = 0; j < width; j += 8) {
                    if (looks.stop(count * (j + 8))) return;
                    for (int64_t i = 0; i <= j; i += 8) add_products(gram, run.rows, width, count, i, j);
                }
            else
                for (int64_t j = 0; j < width; j += 8) {
                    D part = zero<D>();
                    for (int64_t i = 0; i < count; i++) {
                        D x = load(run.rows + i * width + j);
                        part = fma(x, x, part);
                    }
                    store(gram + j, load(gram + j) + part);
                }
        }
    }

    void write(const Moments &to, double total) {
        *to.total = total;
        memcpy(to.mean, mean, d * sizeof(double));
        memcpy(to.target_mean, target_mean, t * sizeof(double));
        for (int64_t j = 0; j < d; j++) {
            to.square[j] = to.gram ? gram[j * width + j] : gram[j];
            for (int64_t k = 0; k < t; k++) to.cross[j * t + k] = cross[k * width + j];
        }
        for (int64_t j = 0; j < d && to.gram; j += 8)
            for (int64_t i = 0; i <= j; i += 8) write_block(to.gram, i, j);
        for (int64_t k = 0; k < t; k++)
            for (int64_t l = 0; l <= k; l++) to.target_gram[k * t + l] = to.target_gram[l * t + k] = target_gram[k * t + l];
    }

    /// Eight rows from `i` on and eight columns from `j` on, none of which is before `i`, and their transpose.
    void write_block(double *to, int64_t i, int64_t j) {
        if (j + 8 > d) {
            for (int64_t k = i; k < i + 8 && k < d; k++)
                for (int64_t l = j; l < d; l++) to[k * d + l] = to[l * d + k] = gram[k * width + l];
            return;
        }
        D block[8];
        for (int k = 0; k < 8; k++) store(to + (i + k) * d + j, block[k] = load(gram + (i + k) * width + j));
        turn(block);
        for (int k = 0; k < 8; k++) store(to + (j + k) * d + i, block[k]);
    }

    void of(const Table &table, const Chosen &chosen, const Moments &to) {
        if (!chosen.count) { // all zero
            memset(mean, 0, width * sizeof(double));
            memset(target_mean, 0, t * sizeof(double));
            add_second(table, chosen, to.gram != nullptr);
            return write(to, 0);
        }
        double total = add_means(table, chosen);
        if (stopped()) return;
        add_second(table, chosen, to.gram != nullptr);
        if (stop(d * width / 4)) return;
        write(to, total);
    }
};

} // namespace
} // namespace grouplearn

using namespace grouplearn;

/// Moments of groups of rows, `start` (groups + 1): one set per group, or, where `part` (n) says which of `parts` a row is in,
/// one per group and part.
GROUPLEARN_ENTRY void row_moments(const float *x_single, const double *x_double, int64_t d, const double *targets, int64_t t,
                                 const double *weight, const int64_t *start, int64_t groups, const int16_t *part, int64_t parts, double *total,
                                 double *mean, double *target_mean, double *square, double *cross, double *target_gram,
                                 double *gram) {
    Arithmetic arithmetic;
    Table table{{x_single, x_double}, targets, weight, d, t};
    Moments out{total, mean, target_mean, square, cross, target_gram, gram};
    Sums sums(d, t, gram != nullptr);
    std::vector<int64_t> numbers, begin(parts + 1);
    for (int64_t g = 0; g < groups; g++) {
        int64_t first = start[g], count = start[g + 1] - first;
        if (stop(count)) return;
        if (!part) {
            sums.of(table, {nullptr, first, count}, out.at(g, d, t));
        } else {
            for (int64_t &each : begin) each = 0;
            for (int64_t i = 0; i < count; i++) begin[part[first + i] + 1]++;
            for (int64_t p = 0; p < parts; p++) begin[p + 1] += begin[p];
            numbers.resize(count);
            std::vector<int64_t> next(begin);
            for (int64_t i = 0; i < count; i++) numbers[next[part[first + i]]++] = first + i;
            for (int64_t p = 0; p < parts; p++)
                sums.of(table, {numbers.data() + begin[p], 0, begin[p + 1] - begin[p]}, out.at(g * parts + p, d, t));
        }
    }
}

/// The moments of both of each of `count` pairs.
GROUPLEARN_ENTRY void merged_moments(int64_t count, int64_t d, int64_t t, double *const *left, double *const *right,
                                     double *const *out) {
    Arithmetic arithmetic;
    auto of = [](double *const *p) { return Moments{p[0], p[1], p[2], p[3], p[4], p[5], p[6]}; };
    Looks looks;
    for (int64_t i = 0; i < count && !looks.stop(d * d / 2 + d * t + t * t); i++) merge(of(out).at(i, d, t), of(left).at(i, d, t), of(right).at(i, d, t), d, t);
}

/// From moments (groups, folds) with Gram matrices to (groups, folds + 1): all but each fold, then all. The rest of a fold is
/// what is before it merged with what is after it: the sums of all less its own would keep no digits of a column that is far
/// larger in that fold. `out` of what has no rows stays as it is.
GROUPLEARN_ENTRY void moments_without_each(int64_t groups, int64_t folds, int64_t d, int64_t t, double *const *given,
                                           double *const *out) {
    Arithmetic arithmetic;
    auto of = [](double *const *p) { return Moments{p[0], p[1], p[2], p[3], p[4], p[5], p[6]}; };
    int64_t size = Moments::size(d, t);
    Numbers room(2 * folds * size);
    std::vector<Moments> before(folds), after(folds);
    Looks looks;
    for (int64_t g = 0; g < groups; g++) {
        if (looks.stop(3 * folds * (d * d / 2 + d * t + t * t))) return;
        auto fold = [&](int64_t f) { return of(given).at(g * folds + f, d, t); };
        auto rest = [&](int64_t f) { return of(out).at(g * (folds + 1) + f, d, t); };
        if (folds < 3) {
            copy(rest(1), fold(0), d, t); // of one fold all rows, of two the other one's
            if (folds == 2) copy(rest(0), fold(1), d, t), merge(rest(2), fold(0), fold(1), d, t);
            continue;
        }
        // What is before the last fold, after the first one, and before the end is wanted itself.
        for (int64_t f = 0; f < folds; f++) {
            before[f] = f == 0 ? fold(0) : f == folds - 1 ? rest(folds) : Moments::in(room + f * size, d, t, true);
            after[f] = f == folds - 1 ? fold(f) : Moments::in(room + (folds + f) * size, d, t, true);
        }
        before[folds - 2] = rest(folds - 1), after[1] = rest(0);
        for (int64_t f = 1; f < folds; f++) merge(before[f], before[f - 1], fold(f), d, t);
        for (int64_t f = folds - 2; f > 0; f--) merge(after[f], fold(f), after[f + 1], d, t);
        for (int64_t f = 1; f < folds - 1; f++) merge(rest(f), before[f - 1], after[f + 1], d, t);
    }
}
