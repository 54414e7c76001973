// Rows of a group in lanes, for k-means: measured from a point among them and scaled into [-1, 1].
//
// Far from zero a difference of two numbers keeps its digits where a product of them loses them, so distances are sums of squared
// differences; and centroids are kept relative to that point, so that they have more digits than they are written with.
#pragma once
#include "rows/features.hpp"
#include "algebra/matrices.hpp"

namespace grouplearn::clustering {

/// A row x is measured as (x − origin)·scale, where scale is a power of two.
struct Frame {
    const double *origin;
    double scale;
};

/// Some rows of x (n, d) and their weights (n), from `first` on.
struct Rows {
    Features x;
    const double *weight;
    int64_t d, first, count;
};

/// Rows as a pass reads them: by eights in `lanes`, (width, 8) each, and by rows in `products`: (w·x, w, 1), filled up to whole
/// lanes. A row without weight is all zeros, like those that fill up the last eight.
class Laid {
  public:
    const int64_t d, width, length;
    int64_t count = 0;
    Numbers lanes, products, weight;

    Laid(int64_t d, int64_t rows)
        : d(d), width(in_lanes(d)), length(in_lanes(d + 2)), lanes(in_lanes(rows) * in_lanes(d), false),
          products(in_lanes(rows) * in_lanes(d + 2), false), weight(in_lanes(rows)) {}

    /// Numbers of memory that a row takes.
    static int64_t numbers(int64_t d) { return in_lanes(d) + in_lanes(d + 2) + 1; }

    void lay(const Rows &rows, const Frame &frame) {
        count = rows.count;
        Looks looks;
        for (int64_t i = 0; i < count && !looks.stop(d); i += 8) lay_eight(rows, frame, i);
    }

    double *eight(int64_t row) { return lanes + row * width; }

  private:
    void lay_eight(const Rows &rows, const Frame &frame, int64_t from) {
        for (int64_t i = from; i < from + 8; i++) {
            double w = i < count ? rows.weight[rows.first + i] : 0, *row = products + i * length;
            weight[i] = w > 0 ? w : 0;
            memset(row, 0, (size_t)length * sizeof(double));
            if (!(w > 0)) continue;
            rows.x.read((rows.first + i) * d, d, row);
            for (int64_t j = 0; j < d; j++) row[j] = (row[j] - frame.origin[j]) * frame.scale;
        }
        for (int64_t j = 0; j < width; j += 8) {
            D block[8];
            for (int i = 0; i < 8; i++) block[i] = load(products + (from + i) * length + j);
            grouplearn::turn(block);
            // Columns after the last are of what is not measured, and nobody reads them.
            for (int i = 0; i < 8; i++) store(eight(from) + (j + i) * 8, block[i]);
        }
        for (int64_t i = from; i < from + 8; i++) {
            double *row = products + i * length;
            if (!(weight[i] > 0)) continue;
            D factor = all((double)weight[i]);
            for (int64_t j = 0; j < length; j += 8) store(row + j, load(row + j) * factor);
            row[d] = weight[i];
            row[d + 1] = 1;
        }
    }
};

/// How many eights of rows stand beside each other in registers: it decides speed, not bits.
#if defined(GROUPLEARN_AVX512)
constexpr int abreast = 2;
#else
constexpr int abreast = 1;
#endif

/// Squared distances of `eights` of rows to `count` points, whose columns lie side by side: (d, count).
template <int eights, int count>
inline void squared_distances(const double *lanes, int64_t apart, int64_t d, const double *points, D (&sum)[eights][count]) {
    for (int e = 0; e < eights; e++)
        for (int c = 0; c < count; c++) sum[e][c] = zero<D>();
    for (int64_t j = 0; j < d; j++) {
        D x[eights];
        for (int e = 0; e < eights; e++) x[e] = load(lanes + e * apart + j * 8);
        for (int c = 0; c < count; c++) {
            D point = all(points[j * count + c]);
            for (int e = 0; e < eights; e++) {
                D apart_by = x[e] - point;
                sum[e][c] = fma(apart_by, apart_by, sum[e][c]);
            }
        }
    }
}

/// Lay `k` points (k, d) as `squared_distances` reads them, four side by side and the rest.
inline void lay_points(const double *points, int64_t k, int64_t d, double *to) {
    for (int64_t c = 0; c < k; c += 4) {
        int64_t count = k - c < 4 ? k - c : 4;
        for (int64_t j = 0; j < d; j++)
            for (int64_t q = 0; q < count; q++) to[c * d + j * count + q] = points[(c + q) * d + j];
    }
}

template <int eights, int count>
inline void nearest_of(const double *lanes, int64_t apart, int64_t d, const double *points, int64_t first, D *best, D *number) {
    D sum[eights][count];
    squared_distances<eights, count>(lanes, apart, d, points, sum);
    for (int c = 0; c < count; c++) {
        D own = all((double)(first + c));
        for (int e = 0; e < eights; e++) {
            DMask nearer = sum[e][c] < best[e];
            best[e] = select(nearer, sum[e][c], best[e]);
            number[e] = select(nearer, own, number[e]);
        }
    }
}

/// The nearest of `k` points, the first of those at one distance, and the square of it: infinity where there is none. A point that
/// is no number is never nearest.
template <int eights>
inline void nearest(const double *lanes, int64_t apart, int64_t d, const double *points, int64_t k, D *best, D *number) {
    for (int e = 0; e < eights; e++) best[e] = all((double)INFINITY), number[e] = zero<D>();
    int64_t c = 0;
    for (; c + 4 <= k; c += 4) nearest_of<eights, 4>(lanes, apart, d, points + c * d, c, best, number);
    if (k - c == 3) nearest_of<eights, 3>(lanes, apart, d, points + c * d, c, best, number);
    if (k - c == 2) nearest_of<eights, 2>(lanes, apart, d, points + c * d, c, best, number);
    if (k - c == 1) nearest_of<eights, 1>(lanes, apart, d, points + c * d, c, best, number);
}

} // namespace grouplearn::clustering
