// Coresets: a few weighted rows in place of many, on which the inertia of any k centroids is nearly that of all rows.
//
// Rows are drawn by their sensitivity, a bound on their share of the inertia of any centroids (Feldman & Langberg 2011, with the terms
// of Bachem, Lucic & Krause 2017, Practical coreset constructions, algorithm 2), without replacement, and centre by centre.
#include "clusters/pilot.hpp"
#include "lanes/entry.hpp"

namespace grouplearn::clustering {
namespace {

/// Rows around the centres of a pilot.
class Coreset {
  public:
    Coreset(const Rows &rows, Pilot &pilot, int64_t centres)
        : rows(rows), centres(centres), which(in_lanes(rows.count)), mass(in_lanes(rows.count)),
          chosen(rows.count), own(centres) {
        Laid some(rows.d, AT_A_TIME);
        Numbers points(centres * rows.d);
        lay_points(pilot.centres, centres, rows.d, points);
        for (int64_t from = 0; from < rows.count; from += AT_A_TIME) {
            int64_t count = std::min(AT_A_TIME, rows.count - from);
            if (stop(count * (centres * rows.d / 4 + 4))) return;
            some.lay({rows.x, rows.weight, rows.d, rows.first + from, count}, pilot.frame);
            find_nearest(some, points, centres, which.data() + from, mass + from);
        }
        weigh();
    }

    /// Which rows are drawn, at most `most`, and by what their weights are multiplied; returns how many.
    int64_t draw(int64_t most, uint64_t key, int64_t *row, double *factor) {
        double scale = scale_for(most);
        for (int64_t i = 0; i < rows.count; i++) mass[i] *= scale;
        choose(uniform_at(key, 0));
        Numbers shares(centres);
        find_shares(shares);
        int64_t found = 0;
        for (int64_t i = 0; i < rows.count && found < most; i++) {
            if (!chosen[i]) continue;
            row[found] = i;
            factor[found++] = mass[i] >= 1 ? 1 : shares[which[i]] / mass[i];
        }
        return found;
    }

  private:
    static constexpr int64_t AT_A_TIME = 128;
    struct Centre {
        double weight = 0, cost = 0;
    };
    Rows rows;
    int64_t centres;
    std::vector<int32_t> which;
    Numbers mass; // of a row: its squared distance; its weight times its sensitivity; its chance to be drawn
    std::vector<uint8_t> chosen;
    std::vector<Centre> own;

    double weight(int64_t i) const { return rows.weight[rows.first + i] > 0 ? rows.weight[rows.first + i] : 0; }

    /// Sensitivities: a third each for the share of the row in the squared distances, that of a mean row of its centre, and its share
    /// in the rows of its centre.
    void weigh() {
        double cost = 0;
        for (int64_t i = 0; i < rows.count; i++) {
            if (!(weight(i) > 0)) continue;
            own[which[i]].weight += weight(i);
            own[which[i]].cost += weight(i) * mass[i];
            cost += weight(i) * mass[i];
        }
        for (int64_t i = 0; i < rows.count; i++) {
            const Centre &centre = own[which[i]];
            if (!(weight(i) > 0)) {
                mass[i] = 0;
                continue;
            }
            double spread = cost > 0 ? (mass[i] + centre.cost / centre.weight) / cost : 0;
            mass[i] = weight(i) * (spread + 1 / (centre.weight * (double)centres));
        }
    }

    /// The factor by which masses are chances of at most 1 that sum to `most`.
    double scale_for(int64_t most) const {
        const double *masses = mass.start();
        double scale = 0;
        for (int64_t sure = -1;;) {
            int64_t before = sure;
            double rest = 0;
            sure = 0;
            for (int64_t i = 0; i < rows.count; i++) {
                if (scale * masses[i] >= 1) sure++;
                else rest += masses[i];
            }
            if (sure <= before || sure >= most || !(rest > 0)) return scale; // fewer: chances of 1 but for rounding
            scale = (double)(most - sure) / rest;
        }
    }

    /// Choose rows that are sure, and of others one wherever the sum of chances, centre by centre, passes `start` plus a whole number.
    void choose(double start) {
        std::vector<int64_t> order(rows.count), first(centres + 1);
        for (int64_t i = 0; i < rows.count; i++) first[which[i] + 1]++;
        for (int64_t c = 0; c < centres; c++) first[c + 1] += first[c];
        for (int64_t i = 0; i < rows.count; i++) order[first[which[i]]++] = i;
        double sum = 0, next = start;
        for (int64_t i : order) {
            chosen[i] = mass[i] >= 1;
            if (chosen[i]) continue;
            sum += mass[i];
            if (!(sum > next)) continue;
            chosen[i] = 1;
            next += 1;
        }
    }

    /// Per centre, the factor by which its drawn rows, each by its chance, weigh as much as all its rows; where none was drawn, others
    /// make up for it.
    void find_shares(double *shares) const {
        Numbers drawn(centres), wanted(centres);
        for (int64_t i = 0; i < rows.count; i++) {
            double chance = mass.start()[i];
            if (!(chance < 1)) continue;
            wanted[which[i]] += weight(i);
            if (chosen[i]) drawn[which[i]] += weight(i) / chance;
        }
        double all = 0, found = 0;
        for (int64_t c = 0; c < centres; c++) {
            all += wanted[c];
            found += drawn[c] > 0 ? wanted[c] : 0;
        }
        for (int64_t c = 0; c < centres; c++) shares[c] = drawn[c] > 0 ? wanted[c] / drawn[c] * (all / found) : 0;
    }
};

} // namespace

/// A coreset of at most `most` of the rows of x (count, d), whose weighted numbers lie between `low` and `high` (d): which rows, and
/// the factors of their weights; returns how many. Random numbers are those of (seed, first, last).
GROUPLEARN_ENTRY int64_t draw_coreset(const float *x_single, const double *x_double, int64_t d, const double *weight, int64_t count,
                                      const double *low, const double *high, int64_t centres, int64_t most, uint64_t seed,
                                      uint64_t first, uint64_t last, int64_t *row, double *factor) {
    Arithmetic arithmetic;
    uint64_t key = stream(CORESET, seed, first, last);
    Rows rows{{x_single, x_double}, weight, d, 0, count};
    Pilot pilot(rows, low, high, centres, key);
    if (stopped() || !(pilot.frame.scale > 0)) return 0;
    Coreset coreset(rows, pilot, centres);
    return stopped() ? 0 : coreset.draw(most, mixed(key + 1), row, factor);
}

} // namespace grouplearn::clustering
