// Online facility location (Meyerson 2001; for k-means as Shindler, Wong & Meyerson 2011): rows come one after the other, and each
// opens a facility with a chance that grows with its distance to the nearest, or else joins that.
//
// Where facilities get too many, the cost of opening one rises, and their points come again, as rows of their weight. The points of a
// facility are two, of half its weight each: x̄ ± s·u, where x̄ is the mean of its rows, u the direction from there to one of them, and
// s²·Σw their inertia. So they have the mean and the inertia of the rows; and as a row is drawn by its share of the inertia, their
// expected second moments in every direction are those of the rows, too.
#include "clusters/pilot.hpp"
#include "lanes/entry.hpp"

namespace grouplearn::clustering {
namespace {

/// Weighted points, and how many rows each stands for.
struct Points {
    Numbers values, weight, rows;
    int64_t count = 0;
    Points(int64_t d, int64_t most) : values(most * d, false), weight(most, false), rows(most, false) {}
    Rows as_rows(int64_t d) { return {{nullptr, values}, weight, d, 0, count}; }
};

class Facilities {
  public:
    Facilities(int64_t d, int64_t most, double cost, uint64_t key)
        : d(d), most(most), cost(cost), key(key), anchors(most * d), points(most * d), sums(most * d), drawn(most * d), weight(most),
          rows(most), inertia(most), some(d, AT_A_TIME), square(AT_A_TIME), row(d) {}

    void serve(const Rows &given, const Frame &frame, const double *stands_for) {
        int64_t from = 0;
        while ((from = serve_from(from, given, frame, stands_for)) < given.count && !stopped()) settle();
    }

    /// The points of all facilities, as rows are measured in ``frame``.
    void give(const Frame &frame, Points &to) {
        centre();
        Numbers side(d);
        for (int64_t f = 0; f < count; f++) {
            double square = 0;
            for (int64_t j = 0; j < d; j++) {
                side[j] = drawn[f * d + j] - anchors[f * d + j];
                square = __builtin_fma(side[j], side[j], square);
            }
            int64_t sides = inertia[f] > 0 && square > 0 ? 2 : 1;
            double length = sides > 1 ? std::sqrt(inertia[f] / weight[f] / square) : 0;
            for (int64_t each = 0; each < sides; each++, length = -length, to.count++) {
                for (int64_t j = 0; j < d; j++)
                    to.values[to.count * d + j] = frame.origin[j] + __builtin_fma(length, side[j], anchors[f * d + j]) / frame.scale;
                to.weight[to.count] = weight[f] / (double)sides;
                to.rows[to.count] = rows[f] / (double)sides;
            }
        }
    }
    double cost_now() const { return cost; }

  private:
    static constexpr int64_t AT_A_TIME = 128;
    static constexpr double DEARER = 1.4;
    int64_t d, most, count = 0;
    double cost;
    uint64_t key, served = 0;
    // Rows are measured from anchors (count, d): sums are Σ w·(x − anchor), inertia is Σ w·‖x − anchor‖². One row is drawn by its share.
    Numbers anchors, points, sums, drawn, weight, rows, inertia;
    Laid some;
    Numbers square, row;
    int32_t which[AT_A_TIME];

    /// Serve rows from one on; return the first for which there is no room.
    int64_t serve_from(int64_t from, const Rows &given, const Frame &frame, const double *stands_for) {
        while (from < given.count) {
            int64_t here = std::min(AT_A_TIME, given.count - from), known = count;
            if (stop(here * (known * d / 4 + 4))) return from;
            some.lay({given.x, given.weight, d, given.first + from, here}, frame);
            lay_points(anchors, known, d, points);
            find_nearest(some, points, known, which, square);
            int64_t end = from + here;
            for (int64_t i = 0; from < end; i++, from++)
                if (some.weight[i] > 0 && !serve_one(i, known, stands_for ? stands_for[from] : 1)) return from;
        }
        return from;
    }

    /// False where there is no room for the facility that the row opens.
    bool serve_one(int64_t i, int64_t known, double stands_for) {
        for (int64_t j = 0; j < d; j++) row[j] = some.eight(i / 8 * 8)[j * 8 + i % 8];
        double least = square[i], own = some.weight[i];
        int64_t nearest = which[i];
        for (int64_t f = known; f < count; f++) {
            double apart = distance(anchors + f * d);
            if (apart < least) least = apart, nearest = f;
        }
        if (!count || uniform_at(key, served) * cost < own * least) {
            if (count == most) return false;
            nearest = count++;
            memcpy(anchors + nearest * d, row, (size_t)d * sizeof(double));
            clear(nearest);
            least = 0;
        }
        join(nearest, own, stands_for, own * least);
        served++;
        return true;
    }

    void join(int64_t f, double own, double stands_for, double share) {
        for (int64_t j = 0; j < d; j++) sums[f * d + j] = __builtin_fma(own, row[j] - anchors[f * d + j], sums[f * d + j]);
        weight[f] += own;
        rows[f] += stands_for;
        inertia[f] += share;
        if (uniform_at(~key, served) * inertia[f] < share) memcpy(drawn + f * d, row, (size_t)d * sizeof(double));
    }

    double distance(const double *anchor) {
        double sum = 0;
        for (int64_t j = 0; j < d; j++) sum = __builtin_fma(row[j] - anchor[j], row[j] - anchor[j], sum);
        return sum;
    }

    void clear(int64_t f) {
        memset(sums + f * d, 0, (size_t)d * sizeof(double));
        weight[f] = rows[f] = inertia[f] = 0;
    }

    /// Move every facility to the mean of its rows.
    void centre() {
        for (int64_t f = 0; f < count; f++) {
            double moved = 0;
            for (int64_t j = 0; j < d; j++) {
                double by = sums[f * d + j] / weight[f];
                anchors[f * d + j] += by;
                moved = __builtin_fma(by, by, moved);
                sums[f * d + j] = 0;
            }
            inertia[f] = std::max(0.0, inertia[f] - weight[f] * moved);
        }
    }

    /// Serve the points of facilities at higher costs, until there is room for all.
    void settle() {
        Numbers zeros(d);
        Frame frame{zeros, 1};
        Points own(d, 2 * count);
        give(frame, own);
        do {
            cost *= DEARER;
            count = 0;
        } while (serve_from(0, own.as_rows(d), frame, own.rows) < own.count && !stopped());
    }
};

} // namespace

/// At most `most` points, two or more, for the rows of x (count, d), which stand for `stands_for` rows each, and whose numbers with weight lie
/// between `low` and `high` (d): `values` (d each), `to_weight` and `to_rows`; returns how many. `cost` is the least cost of opening
/// a facility, and then what it has come to; 0: by k-means++ with `centres` centres. Random numbers are those of (seed, first, last).
GROUPLEARN_ENTRY int64_t open_facilities(const float *x_single, const double *x_double, int64_t d, const double *weight,
                                         const double *stands_for, int64_t count, const double *low,
                                         const double *high, int64_t centres, int64_t most, uint64_t seed, uint64_t first, uint64_t last,
                                         double *cost, double *values, double *to_weight, double *to_rows) {
    Arithmetic arithmetic;
    uint64_t key = stream(FACILITIES, seed, first, last);
    Rows rows{{x_single, x_double}, weight, d, 0, count};
    Pilot pilot(rows, low, high, centres, key);
    if (stopped() || !(pilot.frame.scale > 0)) return 0;
    double scale = pilot.frame.scale * pilot.frame.scale, total = 0;
    for (int64_t i = 0; i < count; i++) total += weight[i] > 0 ? weight[i] : 0;
    int64_t room = std::max((int64_t)1, most / 2);
    double least = std::max(pilot.mean_square, 0x1p-60) * total / (double)(2 * room);
    Facilities facilities(d, room, *cost > 0 ? *cost * scale : least, mixed(key + 1));
    facilities.serve(rows, pilot.frame, stands_for);
    *cost = facilities.cost_now() / scale;
    if (stopped()) return 0;
    Points found(d, 2 * room);
    facilities.give(pilot.frame, found);
    memcpy(values, found.values, (size_t)(found.count * d) * sizeof(double));
    memcpy(to_weight, found.weight, (size_t)found.count * sizeof(double));
    memcpy(to_rows, found.rows, (size_t)found.count * sizeof(double));
    return found.count;
}

} // namespace grouplearn::clustering
