// What a few rows tell of many before these are summarised: where to measure from, centres among them, and how far rows lie from these.
#pragma once
#include "clusters/clustering_seeds.hpp"

namespace grouplearn::clustering {

/// The number in [0, 1) that a stream has at a place.
inline double uniform_at(uint64_t key, uint64_t place) { return (double)(mixed(key ^ place) >> 11) * 0x1p-53; }

/// k-means++ on some of the rows: `k` centres (k, d), NaN where these have fewer distinct rows, and the mean of the squared distances
/// to the nearest of them. Rows are measured in `frame`, whose scale is 0 where distances overflow.
class Pilot {
  public:
    Pilot(const Rows &rows, const double *low, const double *high, int64_t k, uint64_t key)
        : origin(rows.d), centres(k * rows.d), frame{origin, 0} {
        int64_t count = std::min(SAMPLED, rows.count), d = rows.d;
        Numbers values(count * d, false), weight(count, false);
        double total = 0;
        for (int64_t i = 0; i < count; i++) {
            int64_t row = rows.first + (int64_t)(((double)i + uniform_at(key, 0)) * ((double)rows.count / (double)count));
            rows.x.read(row * d, d, values + i * d);
            total += weight[i] = rows.weight[row] > 0 ? rows.weight[row] : 0;
        }
        frame.scale = clustering::frame(values, count, d, low, high, origin);
        if (!(frame.scale > 0)) return;
        Laid laid(d, count);
        laid.lay({{nullptr, values}, weight, d, 0, count}, frame);
        Seeding seeding(laid);
        seeding.draw(mixed(key), k, 1, centres);
        mean_square = total > 0 ? seeding.left() / total : 0;
    }

    Numbers origin, centres;
    Frame frame;
    double mean_square = 0;

  private:
    static constexpr int64_t SAMPLED = 1024;
};

/// The nearest of `k` points, laid by `lay_points`, of rows that are laid out: its number and the squared distance. There is room for
/// whole lanes of rows.
inline void find_nearest(Laid &laid, const double *points, int64_t k, int32_t *which, double *square) {
    auto some = [&](auto eights, int64_t i) {
        D best[eights], number[eights];
        nearest<eights>(laid.eight(i), laid.width * 8, laid.d, points, k, best, number);
        for (int e = 0; e < eights; e++, i += 8) {
            double lanes[8];
            store(square + i, best[e]);
            store(lanes, number[e]);
            for (int lane = 0; lane < 8; lane++) which[i + lane] = (int32_t)lanes[lane];
        }
    };
    int64_t i = 0;
    for (; i + abreast * 8 <= in_lanes(laid.count); i += abreast * 8) some(std::integral_constant<int, abreast>(), i);
    for (; i < laid.count; i += 8) some(std::integral_constant<int, 1>(), i);
}

} // namespace grouplearn::clustering
