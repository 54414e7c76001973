// How rows lie to finished centroids: the nearest, its distance and that to the second nearest, and what these sum to.
#include "clusters/clustering_rows.hpp"
#include "lanes/entry.hpp"
#include <cmath>
#include <vector>

namespace grouplearn::clustering {
namespace {

/// The distance of a row to a point, whatever their scale.
double careful_distance(const double *row, const double *point, int64_t d) {
    double largest = 0, square = 0;
    for (int64_t j = 0; j < d; j++) {
        double by = __builtin_fabs(row[j] - point[j]);
        if (by > largest || by != by) largest = by; // what is no number stays so
    }
    if (!(largest > 0)) return largest;
    for (int64_t j = 0; j < d; j++) {
        double by = (row[j] - point[j]) / largest;
        square = __builtin_fma(by, by, square);
    }
    return largest * __builtin_sqrt(square);
}

/// Of a row: the nearest centroid, numbered from 0, its distance, and that to the second nearest, infinite where there is none;
/// -1 and NaN where no distance is a number.
struct Score {
    double cluster = -1, nearest = (double)NAN, second = (double)INFINITY;
};

/// Of points at one distance the first is nearest; one that is no number never is.
template <int eights, int count>
inline void two_nearest_of(const double *lanes, int64_t apart, int64_t d, const double *points, int64_t first, D *best, D *second,
                           D *number) {
    D sum[eights][count];
    squared_distances<eights, count>(lanes, apart, d, points, sum);
    for (int c = 0; c < count; c++) {
        D own = all((double)(first + c));
        for (int e = 0; e < eights; e++) {
            DMask nearer = sum[e][c] < best[e];
            second[e] = select(nearer, best[e], select(sum[e][c] < second[e], sum[e][c], second[e]));
            best[e] = select(nearer, sum[e][c], best[e]);
            number[e] = select(nearer, own, number[e]);
        }
    }
}

template <int eights>
inline void two_nearest(const double *lanes, int64_t apart, int64_t d, const double *points, int64_t k, D *best, D *second, D *number) {
    for (int e = 0; e < eights; e++) best[e] = second[e] = all((double)INFINITY), number[e] = zero<D>();
    int64_t c = 0;
    for (; c + 4 <= k; c += 4) two_nearest_of<eights, 4>(lanes, apart, d, points + c * d, c, best, second, number);
    if (k - c == 3) two_nearest_of<eights, 3>(lanes, apart, d, points + c * d, c, best, second, number);
    if (k - c == 2) two_nearest_of<eights, 2>(lanes, apart, d, points + c * d, c, best, second, number);
    if (k - c == 1) two_nearest_of<eights, 1>(lanes, apart, d, points + c * d, c, best, second, number);
}

/// Rows against the centroids of several models, those of model m from `first[m]` to `first[m + 1]` of (N, d).
class Scorer {
  public:
    static constexpr int64_t ROWS = 128; // at a time

    Scorer(const double *centroids, const int64_t *first, int64_t models, int64_t d)
        : centroids(centroids), first(first), models(models), d(d), points((first[models] - first[0]) * d), origin(d), row(d), ones(ROWS),
          laid(d, ROWS) {
        for (int64_t m = 0; m < models; m++)
            lay_points(centroids + first[m] * d, first[m + 1] - first[m], d, points + (first[m] - first[0]) * d);
        for (int64_t i = 0; i < ROWS; i++) ones[i] = 1;
    }

    /// Scores (count, models) of the rows from `from` on, ROWS at most; false where it was told to stop.
    bool score(const Features &x, int64_t from, int64_t count, Score *to) {
        if (stop(count * (first[models] - first[0]) * d / 4 + count * (d + 8 * models))) return false;
        Features some{x.single ? x.single + from * d : nullptr, x.single ? nullptr : x.wide + from * d};
        laid.lay({some, ones, d, 0, count}, {origin, 1});
        for (int64_t m = 0; m < models; m++) {
            int64_t i = 0;
            for (; i + abreast * 8 <= in_lanes(count); i += abreast * 8) score_some<abreast>(some, i, count, m, to);
            for (; i < count; i += 8) score_some<1>(some, i, count, m, to);
        }
        return true;
    }

  private:
    const double *centroids;
    const int64_t *first;
    int64_t models, d;
    Numbers points, origin, row, ones;
    Laid laid;

    template <int eights> void score_some(const Features &x, int64_t from, int64_t count, int64_t m, Score *to) {
        D best[eights], next[eights], which[eights];
        const int64_t k = first[m + 1] - first[m];
        two_nearest<eights>(laid.eight(from), laid.width * 8, d, points + (first[m] - first[0]) * d, k, best, next, which);
        for (int e = 0; e < eights; e++) {
            double square[8], second[8], number[8];
            store(square, best[e]);
            store(second, next[e]);
            store(number, which[e]);
            for (int64_t i = 0, row = from + e * 8; i < 8 && row < count; i++, row++) {
                // Squares that a double does not hold, and rows that are no numbers, are looked at one by one.
                bool plain = square[i] > 1e-290 && square[i] < 1e290 && (second[i] < 1e290 || k < 2);
                to[row * models + m] =
                    plain ? Score{number[i], __builtin_sqrt(square[i]), __builtin_sqrt(second[i])} : careful(x, row, m);
            }
        }
    }

    Score careful(const Features &x, int64_t at, int64_t m) {
        Score found;
        x.read(at * d, d, row);
        for (int64_t c = first[m]; c < first[m + 1]; c++) {
            double apart = careful_distance(row, centroids + c * d, d);
            if (!std::isfinite(apart)) continue;
            if (found.cluster < 0 || apart < found.nearest) {
                if (found.cluster >= 0) found.second = found.nearest;
                found.cluster = (double)(c - first[m]);
                found.nearest = apart;
            } else if (apart < found.second) found.second = apart;
        }
        return found;
    }
};

/// What rows sum to, one after another: per model Σ w, Σ w·a² and Σ w·(1 − a/b) of the distances a to the nearest centroid and b to
/// the second; of a row without a second one 0.
struct ScoreSums {
    double *weight, *square, *width;

    void clear(int64_t models) const {
        *weight = 0;
        for (int64_t m = 0; m < models; m++) square[m] = width[m] = 0;
    }
    void add(const Score *scores, double w, int64_t models) const {
        *weight += w;
        for (int64_t m = 0; m < models; m++) {
            double a = scores[m].nearest, b = scores[m].second;
            square[m] = __builtin_fma(w, a * a, square[m]);
            if (std::isfinite(b) && b > 0) width[m] = __builtin_fma(w, 1 - a / b, width[m]);
        }
    }
};

} // namespace

/// Scores (count, models, 3) of rows: the cluster, numbered from 1, its distance, and that to the second nearest, infinite of one. A
/// row whose squared distance is no double is in no cluster: NaN.
GROUPLEARN_ENTRY void score_clusters(const float *x_single, const double *x_double, int64_t count, int64_t d, const double *centroids,
                                     const int64_t *first, int64_t models, double *scores) {
    Arithmetic arithmetic;
    Scorer scorer(centroids, first, models, d);
    std::vector<Score> some(Scorer::ROWS * models);
    for (int64_t from = 0; from < count; from += Scorer::ROWS) {
        int64_t here = count - from < Scorer::ROWS ? count - from : Scorer::ROWS;
        if (!scorer.score({x_single, x_double}, from, here, some.data())) return;
        for (int64_t i = 0; i < here * models; i++) {
            bool known = some[i].cluster >= 0 && std::isfinite(some[i].nearest * some[i].nearest);
            double *to = scores + (from * models + i) * 3;
            to[0] = known ? some[i].cluster + 1 : (double)NAN;
            to[1] = known ? some[i].nearest : (double)NAN;
            to[2] = known ? some[i].second : (double)NAN;
        }
    }
}

/// The same of runs of rows one after another, run r from start[r] on by the one model that begins at first[model[r]]: (n, 3).
GROUPLEARN_ENTRY void score_clusters_runs(const double *x, int64_t d, const int64_t *start, const int64_t *model, int64_t runs,
                                          const double *centroids, const int64_t *first, double *scores) {
    Looks looks;
    for (int64_t r = 0; r < runs && !looks.stop((start[r + 1] - start[r]) * d * (first[model[r] + 1] - first[model[r]])); r++)
        score_clusters(nullptr, x + start[r] * d, start[r + 1] - start[r], d, centroids, first + model[r], 1, scores + start[r] * 3);
}

/// The sums of rows with such scores (count, models, 3): `weight` of all, `square` and `width` (models).
GROUPLEARN_ENTRY void sum_scores(const double *scores, const double *weight, int64_t count, int64_t models, double *total, double *square,
                                 double *width) {
    Arithmetic arithmetic;
    ScoreSums sums{total, square, width};
    sums.clear(models);
    std::vector<Score> row(models);
    for (int64_t i = 0; i < count && !stop(8 * models); i++) {
        for (int64_t m = 0; m < models; m++) {
            const double *score = scores + (i * models + m) * 3;
            row[m] = {score[0], score[1], score[2]};
        }
        sums.add(row.data(), weight[i], models);
    }
}

/// The same sums of groups of rows, `start` (groups + 1), each scored by models of its own: (groups) and (groups, models).
GROUPLEARN_ENTRY void measure_clusters(const float *x_single, const double *x_double, int64_t d, const double *weight,
                                       const int64_t *start, int64_t groups, const double *centroids, const int64_t *first,
                                       int64_t models, double *total, double *square, double *width) {
    Arithmetic arithmetic;
    std::vector<Score> some(Scorer::ROWS * models);
    for (int64_t g = 0; g < groups; g++) {
        Scorer scorer(centroids, first + g * models, models, d);
        ScoreSums sums{total + g, square + g * models, width + g * models};
        sums.clear(models);
        for (int64_t from = start[g]; from < start[g + 1]; from += Scorer::ROWS) {
            int64_t here = start[g + 1] - from < Scorer::ROWS ? start[g + 1] - from : Scorer::ROWS;
            if (!scorer.score({x_single, x_double}, from, here, some.data())) return;
            for (int64_t i = 0; i < here * models; i++)
                if (!std::isfinite(some[i].nearest * some[i].nearest)) some[i] = {-1, (double)NAN, (double)NAN};
            for (int64_t i = 0; i < here; i++) sums.add(some.data() + i * models, weight[from + i], models);
        }
    }
}

} // namespace grouplearn::clustering
