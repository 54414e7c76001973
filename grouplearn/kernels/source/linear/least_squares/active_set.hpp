// The elastic net of the columns of a factor: minimise ½‖y − Xv‖² + Σ λⱼ|vⱼ|, to its end in finitely many steps.
//
// An active set of columns with signs, from none on (Osborne, Presnell & Turlach 2000; Lee, Battle, Raina & Ng 2007): the least
// point of the set solves its equations; a weight that turns on the way there leaves the set where it is zero; at the least
// point the column that violates its penalty the most enters. A column that follows from the set takes the place of one of it,
// as in the simplex method. QR of the set goes along (Björck 1996, chapter 3), not its Gram matrix, whose condition is the square:
// one row that outweighs all others leaves nothing of them there. The residual at a least point is told by Q alone, without the
// weights, whose products with such a row would cost its digits.
#pragma once
#include "algebra/semidefinite.hpp"
#include "linear/least_squares/lost_digits.hpp"
#include <vector>

namespace grouplearn {
namespace {

/// Up to which columns are kept beside a Gram matrix.
constexpr int64_t MOST_ACTIVE = 1024;

/// ½‖y − Xw‖² of a factor (d + 1, d + 1) of [X y].
double loss_of_factor(const double *factor, int64_t d, const double *weights) {
    double total = 0;
    for (int64_t i = 0; i <= d; i++) {
        double left = factor[i * (d + 1) + d] - dot_of(factor + i * (d + 1), weights, d);
        total = __builtin_fma(left, left, total);
    }
    return 0.5 * total;
}

class ActiveSet {
  public:
    /// Columns of a factor (d + 1, d + 1) of [X y] times `inverse`, 0 for those that stay out; the penalties l1 and l2 are on
    /// weights `inverse`·v, that of l2 as d more rows. What is left of a column beside others is none up to a length of `rounding`.
    ActiveSet(const double *factor, int64_t d, const double *inverse, double l1, double l2, double rounding)
        : d(d), length(in_lanes(l2 > 0 ? 2 * d + 1 : d + 1)), rounding(rounding), columns(d * length), label(length),
          residual(length), basis((d + 1) * length), triangle((d + 1) * (d + 1)), penalty(d), point(d), sign(d), wanted(d + 1),
          pull(d + 1), along(d + 1), shares(d + 1), held(d), inside(d) {
        int64_t p = d + 1;
        for (int64_t i = 0; i < p; i++) {
            for (int64_t j = 0; j < d; j++) columns[j * length + i] = factor[i * p + j] * inverse[j];
            label[i] = factor[i * p + d];
        }
        for (int64_t j = 0; j < d; j++) {
            if (l2 > 0) columns[j * length + p + j] = __builtin_sqrt(l2) * inverse[j];
            penalty[j] = l1 * inverse[j];
            if (!(inverse[j] > 0)) inside[j] = 1; // as if it were there already
        }
    }

    /// Returns whether no column violates its penalty by more than `tolerance` of it, or rounding of the label; false too where
    /// `steps` were not enough.
    bool solve(double tolerance, int64_t steps) {
        bool entered = false;
        for (int64_t step = 0; step < steps; step++) {
            if (stop((size() * 6 + d) * length / 8 + size() * size() / 4)) return false;
            find_least();
            int64_t leaving;
            double share = way_to_least(leaving);
            for (int64_t a = 0; a < size(); a++) point[set[a]] += share * (wanted[a] - point[set[a]]);
            if (share > 0 && (leaving >= 0 || entered)) std::fill(held.begin(), held.end(), 0);
            entered = false;
            if (leaving >= 0) {
                if (share == 0) held[set[leaving]] = 1; // by rounding alone it seemed to violate its penalty
                leave(leaving);
                continue;
            }
            for (int64_t a = 0; a < size(); a++) point[set[a]] = wanted[a];
            bool settled;
            int64_t entering = most_violating(tolerance, settled);
            if (entering < 0) return settled;
            if (!enter(entering)) return false;
            entered = true;
        }
        return false;
    }

    double solution(int64_t j) const { return point.start()[j]; }

  private:
    int64_t d, length;
    double rounding;
    Numbers columns, label, residual;
    /// Of the columns of the set: Q (as rows of `length`), R (d + 1, d + 1) and the label in Q.
    Numbers basis, triangle;
    Numbers penalty, point, sign, wanted, pull, along, shares;
    std::vector<int64_t> set;
    /// Columns that do not enter until something has moved, and those that are in the set.
    std::vector<uint8_t> held, inside;

    int64_t size() const { return (int64_t)set.size(); }
    double &of_triangle(int64_t i, int64_t j) { return triangle[i * (d + 1) + j]; }
    double *column(int64_t j) { return columns + j * length; }
    double *direction(int64_t a) { return basis + a * length; }

    /// R⁻¹x in place of the first of x.
    void solve_triangle(double *x) {
        for (int64_t a = size() - 1; a >= 0; a--)
            x[a] = (x[a] - dot_of(&of_triangle(a, a + 1), x + a + 1, size() - a - 1)) / of_triangle(a, a);
    }

    /// Of the set with its signs: R⁻ᵀλ to `pull`, the least point to `wanted`.
    void find_least() {
        for (int64_t a = 0; a < size(); a++) pull[a] = penalty[set[a]] * sign[set[a]];
        for (int64_t a = 0; a < size(); a++) {
            double found = pull[a] = pull[a] / of_triangle(a, a);
            for (int64_t b = a + 1; b < size(); b++) pull[b] = __builtin_fma(-found, of_triangle(a, b), pull[b]);
        }
        for (int64_t a = 0; a < size(); a++) wanted[a] = along[a] - pull[a];
        solve_triangle(wanted);
    }

    /// The share of the way to `wanted` until the first weight turns, at most 1, and the place of that weight, or -1.
    double way_to_least(int64_t &leaving) {
        double share = 1;
        leaving = -1;
        for (int64_t a = 0; a < size(); a++) {
            int64_t j = set[a];
            if (wanted[a] * sign[j] > 0) continue;
            double at = point[j] == 0 ? 0 : point[j] / (point[j] - wanted[a]);
            if (leaving < 0 || at < share) share = at, leaving = a;
        }
        return share;
    }

    /// At the least point of the set, the column to enter, or -1, and whether those that are held violate nothing but rounding.
    int64_t most_violating(double tolerance, bool &settled) {
        memcpy(residual, label, length * sizeof(double));
        for (int64_t a = 0; a < size(); a++) add_multiple(residual, pull[a] - along[a], direction(a), length);
        double unsure = 4 * EPSILON * (__builtin_sqrt(dot(label, label, length)) + __builtin_sqrt(dot_of(pull, pull, size())));
        double most = 0;
        int64_t found = -1;
        settled = true;
        for (int64_t j = 0; j < d; j++) {
            if (inside[j]) continue;
            double slope = dot(column(j), residual, length);
            double violation = __builtin_fabs(slope) - penalty[j] * (1 + tolerance) - unsure;
            if (!(violation <= 0) && held[j]) settled = violation <= 8 * unsure && settled;
            if (held[j] || !(violation > most)) continue;
            most = violation, found = j;
            sign[j] = slope > 0 ? 1 : -1;
        }
        return found;
    }

    /// What column j has beyond the set to the next direction, and its shares in those there are; the length of what is left.
    double project(int64_t j) {
        double *left = direction(size());
        memcpy(left, column(j), length * sizeof(double));
        for (int64_t a = 0; a < size(); a++) shares[a] = 0;
        for (int again = 0; again < 2; again++) // what rounding leaves goes the second time
            for (int64_t a = 0; a < size(); a++) {
                double share = dot(left, direction(a), length);
                add_multiple(left, -share, direction(a), length);
                shares[a] += share;
            }
        return __builtin_sqrt(dot(left, left, length));
    }

    /// Column j into the set, at zero or in the place of one from which it follows; false where rounding leaves it no place.
    bool enter(int64_t j) {
        double left = project(j);
        if (!(left > rounding)) {
            // The way along which nothing is predicted otherwise, and the penalties fall.
            solve_triangle(shares);
            double way = INFINITY;
            int64_t leaving = -1;
            for (int64_t a = 0; a < size(); a++) {
                double change = -sign[j] * shares[a];
                if (!(change * sign[set[a]] < 0)) continue;
                double at = point[set[a]] / -change;
                if (at < way) way = at, leaving = a;
            }
            if (leaving < 0) return false;
            for (int64_t a = 0; a < size(); a++) point[set[a]] -= way * sign[j] * shares[a];
            point[j] = way * sign[j];
            leave(leaving);
            left = project(j);
            if (!(left > rounding)) return false;
        }
        double *own = direction(size()), unit = 1 / left;
        for (int64_t i = 0; i < length; i++) own[i] *= unit;
        for (int64_t a = 0; a < size(); a++) of_triangle(a, size()) = shares[a];
        of_triangle(size(), size()) = left;
        along[size()] = dot(own, label, length);
        set.push_back(j);
        inside[j] = 1;
        return true;
    }

    /// The column of the set at a place out of it, at zero; rotations make a triangle of what R is without it.
    void leave(int64_t place) {
        int64_t j = set[place], last = size() - 1;
        point[j] = 0, inside[j] = 0;
        set.erase(set.begin() + place);
        for (int64_t a = 0; a <= last; a++)
            for (int64_t b = place; b < last; b++) of_triangle(a, b) = b < a - 1 ? 0 : of_triangle(a, b + 1);
        for (int64_t a = place; a < last; a++) {
            double upper = of_triangle(a, a), lower = of_triangle(a + 1, a);
            double radius = __builtin_sqrt(upper * upper + lower * lower), c = upper / radius, s = lower / radius;
            auto rotate = [&](double &one, double &other) {
                double kept = one;
                one = __builtin_fma(s, other, c * kept);
                other = __builtin_fma(c, other, -(s * kept));
            };
            for (int64_t b = a; b < last; b++) rotate(of_triangle(a, b), of_triangle(a + 1, b));
            rotate(along[a], along[a + 1]);
            double *one = direction(a), *other = direction(a + 1);
            for (int64_t i = 0; i < length; i += 8) {
                D kept = load(one + i), next = load(other + i);
                store(one + i, fma(all(s), next, kept * all(c)));
                store(other + i, fma(all(c), next, kept * all(-s)));
            }
        }
    }
};

} // namespace
} // namespace grouplearn
