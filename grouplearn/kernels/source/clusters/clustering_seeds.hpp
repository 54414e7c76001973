// Where k-means begins: a sample of a group's rows, where they are measured from, and greedy k-means++ (Arthur & Vassilvitskii
// 2007, sections 3 and 7).
#pragma once
#include "clusters/clustering_rows.hpp"
#include "lanes/random.hpp"
#include <algorithm>
#include <vector>

namespace grouplearn::clustering {

/// A row and what it has drawn; a double holds the draw.
struct Drawn {
    uint64_t draw;
    int64_t row;
    bool operator<(const Drawn &other) const { return draw != other.draw ? draw < other.draw : row < other.row; }
};

/// Of rows with weight the `most` that draw least, in their order. The draw of a row is a function of (seed, its number in the
/// group), so that of samples of two parts the least draws are the sample of both.
inline std::vector<Drawn> sample(const double *weight, int64_t count, int64_t first, uint64_t seed, int64_t most) {
    uint64_t key = stream(SAMPLE, seed, 0, 0);
    std::vector<Drawn> drawn;
    drawn.reserve(count);
    Looks looks;
    for (int64_t i = 0; i < count && !looks.stop(1); i++)
        if (weight[i] > 0) drawn.push_back({mixed(key ^ (uint64_t)(first + i)) >> 11, i});
    if ((int64_t)drawn.size() <= most) return drawn;
    std::nth_element(drawn.begin(), drawn.begin() + most, drawn.end());
    drawn.resize(most);
    std::sort(drawn.begin(), drawn.end(), [](const Drawn &one, const Drawn &other) { return one.row < other.row; });
    return drawn;
}

/// The least and the largest number of each column among rows with weight, and how many there are.
inline int64_t survey(const Rows &rows, double *__restrict low, double *__restrict high) {
    for (int64_t j = 0; j < rows.d; j++) low[j] = (double)INFINITY, high[j] = -(double)INFINITY;
    int64_t counted = 0;
    Numbers row(rows.d);
    double *x = row;
    Looks looks;
    for (int64_t i = rows.first; i < rows.first + rows.count && !looks.stop(rows.d / 4 + 1); i++) {
        if (!(rows.weight[i] > 0)) continue;
        counted++;
        rows.x.read(i * rows.d, rows.d, x);
        for (int64_t j = 0; j < rows.d; j++) {
            low[j] = x[j] < low[j] ? x[j] : low[j];
            high[j] = x[j] > high[j] ? x[j] : high[j];
        }
    }
    return counted;
}

/// Measures rows from the median, column by column, of some rows of the sample (count, d): it is among most rows, however far a
/// few are away. Returns the scale that brings the rest into [-1, 1], or 0 where their distance is no number.
inline double frame(const double *sample, int64_t count, int64_t d, const double *low, const double *high, double *origin) {
    constexpr int64_t some = 31;
    double column[some], largest = 0;
    int64_t taken = count < some ? count : some;
    for (int64_t j = 0; j < d; j++) {
        for (int64_t i = 0; i < taken; i++) column[i] = sample[i * count / taken * d + j];
        std::nth_element(column, column + taken / 2, column + taken);
        origin[j] = column[taken / 2];
        largest = std::max(largest, std::max(high[j] - origin[j], origin[j] - low[j]));
    }
    if (!std::isfinite(largest)) return 0;
    if (!(largest > 0)) return 1;
    int power;
    frexp(largest, &power);
    return ldexp(1.0, -std::max(power, -1000));
}

/// Draws chains of seeds from a sample that is laid out.
class Seeding {
  public:
    explicit Seeding(Laid &laid) : laid(laid), count(laid.count), room(in_lanes(laid.count)), running(room) {}

    /// `k` seeds (k, d): the first is a row drawn by weight. Each next is, of `trials` rows drawn by weight times squared distance
    /// to the nearest seed, that after which the weighted sum of these is least. Where no row is left that is not a seed, seeds are
    /// NaN.
    void draw(uint64_t key, int64_t k, int64_t trials, double *seeds) {
        Numbers nearer((trials + 1) * room, false); // each trial's squared distances, and those that are known, first
        double *known = nearer;
        for (int64_t i = 0; i < room; i++) known[i] = (double)INFINITY;
        add_up(nullptr);
        for (int64_t c = 0; c < k * laid.d; c++) seeds[c] = (double)NAN;
        std::vector<double *> tried(trials);
        for (int64_t t = 0; t < trials; t++) tried[t] = nearer + (t + 1) * room;
        for (int64_t c = 0; c < k && potential > 0 && !stopped(); c++) {
            int64_t attempts = c ? trials : 1, best = 0, chosen = 0;
            double least = (double)INFINITY;
            for (int64_t t = 0; t < attempts; t++) {
                int64_t row = row_at((double)(mixed(key + (uint64_t)(c * 64 + t)) >> 11) * 0x1p-53 * potential);
                copy(row, seeds + c * laid.d);
                double sum = approach(seeds + c * laid.d, known, tried[t]);
                if (t == 0 || sum < least) best = t, chosen = row, least = sum;
            }
            copy(chosen, seeds + c * laid.d);
            std::swap(known, tried[best]);
            add_up(known);
        }
    }

    /// The weighted sum of the squared distances to the nearest of the seeds that were drawn last.
    double left() const { return potential; }

  private:
    Laid &laid;
    int64_t count, room;
    Numbers running; // Σ weight·square from the first row to each
    double potential = 0;

    void add_up(const double *square) {
        potential = 0;
        for (int64_t i = 0; i < count; i++) running[i] = potential += square ? laid.weight[i] * square[i] : laid.weight[i];
    }

    /// The first row up to which more than `share` has come; rounding may leave none: then the last that adds something.
    int64_t row_at(double share) {
        int64_t row = std::upper_bound((double *)running, running + count, share) - running;
        while (row == count || (row && running[row] == running[row - 1])) row--;
        return row;
    }

    void copy(int64_t row, double *to) {
        for (int64_t j = 0; j < laid.d; j++) to[j] = laid.eight(row / 8 * 8)[j * 8 + row % 8];
    }

    /// Squared distances to the nearest seed, `point` included, and their weighted sum.
    double approach(const double *point, const double *known, double *to) {
        D total = zero<D>();
        if (stop(room / 8 * (2 * laid.d + 4))) return 0;
        auto some = [&](auto eights, int64_t i) {
            D square[eights][1];
            squared_distances<eights, 1>(laid.eight(i), laid.width * 8, laid.d, point, square);
            for (int e = 0; e < eights; e++, i += 8) {
                D least = smaller(square[e][0], load(known + i));
                store(to + i, least);
                total = fma(load(laid.weight + i), least, total);
            }
        };
        int64_t i = 0;
        for (; i + 32 <= room; i += 32) some(std::integral_constant<int, 4>(), i);
        for (; i < room; i += 8) some(std::integral_constant<int, 1>(), i);
        return sum(total);
    }
};

} // namespace grouplearn::clustering
