// What the rows of groups are like, column by column: counts, moments, quantiles of numbers, the most frequent categories.
#include "lanes/entry.hpp"
#include "lanes/looks.hpp"
#include "algebra/matrices.hpp"
#include "rows/features.hpp"
#include <algorithm>
#include <cmath>
#include <vector>

namespace grouplearn::profiles {
namespace {

/// Rows that are gone through together, and sums of them that are kept apart.
constexpr int64_t TILE = 512, WIDE = 8;

/// The rows of groups: group g has the runs [first[g], first[g + 1]) of `runs` (R, 2), each from a row to before another.
struct Groups {
    const int64_t *runs, *first;

    int64_t rows(int64_t group) const {
        int64_t count = 0;
        for (int64_t r = first[group]; r < first[group + 1]; r++) count += runs[2 * r + 1] - runs[2 * r];
        return count;
    }
    /// Calls each(from, to, number) for tiles of a group's rows, of which the first has that number; false where it was told to
    /// stop.
    template <class Each> bool each_tile(int64_t group, int64_t work, Looks &looks, const Each &each) const {
        int64_t number = 0;
        for (int64_t r = first[group]; r < first[group + 1]; r++)
            for (int64_t from = runs[2 * r], end = runs[2 * r + 1]; from < end; from += TILE) {
                int64_t to = std::min(from + TILE, end);
                if (looks.stop((to - from) * work)) return false;
                each(from, to, number);
                number += to - from;
            }
        return true;
    }
};

/// Rows of a group by which quantiles are chosen, a power of two.
constexpr int64_t SAMPLE = 256;

/// Sorts eight columns of `count` numbers, a power of two, side by side (Batcher's merge exchange).
void sort_columns(double *columns, int64_t count) {
    for (int64_t p = 1; p < count; p *= 2)
        for (int64_t k = p; k; k /= 2)
            for (int64_t j = k % p; j + k < count; j += 2 * k)
                for (int64_t i = j; i < j + k && i + k < count; i++) {
                    if (i / (2 * p) != (i + k) / (2 * p)) continue;
                    double *one = columns + i * WIDE, *other = one + k * WIDE;
                    D a = load(one), b = load(other);
                    store(one, smaller(a, b));
                    store(other, larger(a, b));
                }
}

/// The numbers of one column of a group: sums of differences from the first, a sample, its quantiles, and counts up to each.
struct Column {
    int64_t present = 0, sampled = 0;
    double start = 0, low[WIDE], high[WIDE], sum[WIDE], squares[WIDE];
    std::vector<double> ends;
    std::vector<int64_t> counts;

    /// Adds `count` values, which may be overwritten up to the next multiple of WIDE.
    void add(double *values, int64_t count) {
        if (!count) return;
        if (!present) {
            start = values[0];
            for (int64_t k = 0; k < WIDE; k++) low[k] = high[k] = start, sum[k] = squares[k] = 0;
        }
        present += count;
        while (count % WIDE) values[count++] = start;
        for (int64_t i = 0; i < count; i += WIDE)
            for (int64_t k = 0; k < WIDE; k++) {
                double value = values[i + k], off = value - start;
                low[k] = value < low[k] ? value : low[k];
                high[k] = value > high[k] ? value : high[k];
                sum[k] += off;
                squares[k] = __builtin_fma(off, off, squares[k]);
            }
    }
    /// Brings the sums together in their first lane.
    void end() {
        for (int64_t apart = WIDE / 2; apart && present; apart /= 2)
            for (int64_t k = 0; k < apart; k++) {
                low[k] = std::min(low[k], low[k + apart]);
                high[k] = std::max(high[k], high[k + apart]);
                sum[k] += sum[k + apart];
                squares[k] += squares[k + apart];
            }
    }
    /// Takes the distinct values at multiples of 1/parts of a sorted sample, WIDE apart; fewer parts of few rows.
    void find_ends(const double *sample, int64_t parts, int64_t least) {
        parts = sampled ? std::min(parts, present / least) : 0;
        ends.clear();
        for (int64_t i = 1; i < parts; i++) {
            double value = sample[((i * sampled + parts - 1) / parts - 1) * WIDE];
            if (ends.empty() || value > ends.back()) ends.push_back(value);
        }
        counts.assign(ends.size(), 0);
    }
    void count(const double *values, int64_t count) {
        for (size_t e = 0; e < ends.size(); e++) {
            double end = ends[e];
            int64_t upto = 0;
            for (int64_t i = 0; i < count; i++) upto += values[i] <= end;
            counts[e] += upto;
        }
    }
};

struct Counted {
    int32_t code;
    int64_t count;
};

} // namespace

/// Of the finite numbers in some columns of rows (n, width), for each group and column: their number, least, greatest, mean and
/// standard deviation (of a sample), all (groups, size); the distinct quantiles at multiples of 1/parts (groups, size, parts − 1),
/// how many there are, and the number of values up to each. Quantiles are those of SAMPLE rows that lie evenly, and parts have
/// `least` rows on average; of one part there are none, and rows are gone through once.
GROUPLEARN_ENTRY void profile_numbers(const float *x_single, const double *x_double, int64_t width, const int64_t *runs,
                                      const int64_t *first, int64_t groups, const int64_t *columns, int64_t size,
                                      int64_t parts, int64_t least, int64_t *present, double *low, double *high, double *mean,
                                      double *deviation, double *quantiles, int64_t *edges, int64_t *upto) {
    Arithmetic arithmetic;
    Looks looks;
    Features x{x_single, x_double};
    Groups rows{runs, first};
    std::vector<Column> each(size);
    Numbers sample(in_lanes(size) * SAMPLE);
    auto sampled = [&](int64_t c) { return sample + c / WIDE * SAMPLE * WIDE + c % WIDE; };
    double values[TILE + WIDE];
    auto read = [&](int64_t from, int64_t to, int64_t column) {
        int64_t count = 0;
        for (int64_t row = from; row < to; row++) {
            double value = values[count] = x[row * width + column];
            count += std::isfinite(value);
        }
        return count;
    };
    for (int64_t g = 0; g < groups; g++) {
        int64_t n = rows.rows(g), taken = parts > 1 ? std::min(n, SAMPLE) : 0, next = 0, filled = 1;
        while (filled < taken) filled *= 2;
        for (Column &column : each) column.present = column.sampled = 0;
        for (int64_t c = 0; c < size; c += WIDE) std::fill_n(sampled(c), filled * WIDE, (double)INFINITY);
        auto add = [&](int64_t from, int64_t to, int64_t number) {
            for (int64_t c = 0; c < size; c++) each[c].add(values, read(from, to, columns[c]));
            for (int64_t at; next < taken && (at = next * n / taken) < number + to - from; next++)
                for (int64_t c = 0; c < size; c++) {
                    double value = x[(from + at - number) * width + columns[c]];
                    if (!std::isfinite(value)) continue;
                    sampled(c)[next * WIDE] = value;
                    each[c].sampled++;
                }
        };
        if (!rows.each_tile(g, size, looks, add)) return;
        for (int64_t c = 0; c < size; c += WIDE) sort_columns(sampled(c), filled);
        for (int64_t c = 0; c < size; c++) each[c].end(), each[c].find_ends(sampled(c), parts, least);
        auto count = [&](int64_t from, int64_t to, int64_t) {
            for (int64_t c = 0; c < size; c++) each[c].count(values, read(from, to, columns[c]));
        };
        if (parts > 1 && !rows.each_tile(g, 2 * size, looks, count)) return;
        for (int64_t c = 0; c < size; c++) {
            const Column &column = each[c];
            int64_t place = g * size + c, known = column.present;
            double average = known ? column.sum[0] / (double)known : 0;
            double square = known ? column.squares[0] - average * column.sum[0] : 0;
            present[place] = known;
            low[place] = known ? column.low[0] : 0;
            high[place] = known ? column.high[0] : 0;
            mean[place] = column.start + average;
            deviation[place] = known > 1 ? __builtin_sqrt((square > 0 ? square : 0) / (double)(known - 1)) : (double)NAN;
            edges[place] = (int64_t)column.ends.size();
            std::copy(column.ends.begin(), column.ends.end(), quantiles + place * (parts - 1));
            std::copy(column.counts.begin(), column.counts.end(), upto + place * (parts - 1));
        }
    }
}

/// Of the codes in a column of rows (n, width), from 0 to before `codes`, for each group: how many are not negative, how many of
/// them are listed, at most `most`, and these one group after the other, the most frequent first, with their counts.
GROUPLEARN_ENTRY void profile_codes(const int32_t *x, int64_t width, int64_t column, const int64_t *runs, const int64_t *first,
                                    int64_t groups, int64_t codes, int64_t most, int64_t *present, int64_t *listed, int32_t *code,
                                    int64_t *count) {
    Arithmetic arithmetic;
    Looks looks;
    Groups rows{runs, first};
    std::vector<int64_t> counts(codes);
    std::vector<int32_t> met;
    std::vector<Counted> found;
    for (int64_t g = 0; g < groups; g++) {
        met.clear();
        found.clear();
        present[g] = 0;
        auto tally = [&](int64_t from, int64_t to, int64_t) {
            for (int64_t row = from; row < to; row++) {
                int32_t value = x[row * width + column];
                if (value < 0) continue;
                present[g]++;
                if (!counts[value]++) met.push_back(value);
            }
        };
        if (!rows.each_tile(g, 4, looks, tally)) return;
        for (int32_t value : met) {
            found.push_back({value, counts[value]});
            counts[value] = 0;
        }
        auto before = [](const Counted &one, const Counted &other) {
            return one.count != other.count ? one.count > other.count : one.code < other.code;
        };
        listed[g] = std::min(most, (int64_t)found.size());
        std::partial_sort(found.begin(), found.begin() + listed[g], found.end(), before);
        for (int64_t i = 0; i < listed[g]; i++) {
            *code++ = found[i].code;
            *count++ = found[i].count;
        }
    }
}

} // namespace grouplearn::profiles
