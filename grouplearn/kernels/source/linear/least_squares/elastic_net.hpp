// The elastic net of one Gram matrix: minimise ½ v'Bv − r'v + Σ λⱼ|vⱼ| by coordinate descent and solves of faces.
//
// A round passes over the coordinates (covariance updates: Friedman, Hastie & Tibshirani 2010) and solves the face that it
// lands on, the points with the same signs, exactly; where a sign would flip, it goes to the lowest point on the way there
// instead. The lowest point is kept, so the objective never rises. It starts at zero whatever else is to be solved, so that a
// solution does not depend on what stands beside it.
#pragma once
#include "algebra/matrices.hpp"
#include <vector>

namespace grouplearn {

class ElasticNet {
  public:
    ElasticNet(int64_t d, int64_t width)
        : d(d), width(width), slope(width), product(width), point(width), face(width), lowest(width), direction(width),
          terms(width), rounding(width), bound(width), triangle(width * width), right(width),
          descending(width), place(d) {}

    /// `matrix` (d, width) in lanes and r are scaled to a unit diagonal; B has `ridge` (width) more on its diagonal. The solution
    /// goes to `v` (width). Returns whether every entry of the subgradient ends within `tolerance` of its penalty, or rounding
    /// keeps it from falling (`kept_by_rounding`); false where `rounds` were not enough.
    bool solve(const double *matrix, const double *r, const double *ridge, const double *penalty, double tolerance,
               int64_t rounds, double *v) {
        this->matrix = matrix, this->r = r, this->ridge = ridge, this->penalty = penalty;
        kept_by_rounding = false;
        memset(v, 0, width * sizeof(double));
        for (int64_t j = 0; j < width; j++) slope[j] = -r[j];
        for (int64_t round = 0; round < rounds; round++) {
            if (looks.stop((2 * PASSES + 8) * d * width / 8)) return false;
            if (optimal(v, tolerance)) return true;
            weigh_rounding(v);
            memcpy(point, v, width * sizeof(double));
            memcpy(product, slope, width * sizeof(double));
            for (int pass = 0; pass < PASSES; pass++) descend(point);
            double least = rise(v, point);
            const double *best = least < 0 ? (const double *)point : nullptr;
            times(point, product);
            for (int64_t j = 0; j < width; j++) product[j] -= r[j];
            to_face(point);
            for (double *other : {(double *)face, (double *)lowest}) {
                double found = rise(v, other);
                if (found < least && found < 0) least = found, best = other;
            }
            if (!best) return kept_by_rounding = true;
            memcpy(v, best, width * sizeof(double));
            times(v, slope);
            for (int64_t j = 0; j < width; j++) slope[j] -= r[j];
        }
        return optimal(v, tolerance);
    }

    bool kept_by_rounding = false;

  private:
    static constexpr int PASSES = 4;
    int64_t d, width;
    const double *matrix = nullptr, *r = nullptr, *ridge = nullptr, *penalty = nullptr;
    /// The gradient at the point of the round; `product` the same at the point on the way.
    Numbers slope, product, point, face, lowest, direction, terms, rounding, bound, triangle, right, descending;
    /// The free coordinates.
    std::vector<int64_t> place;
    Looks looks;

    static double sign(double x) { return x > 0 ? 1.0 : x < 0 ? -1.0 : 0.0; }

    bool optimal(const double *v, double tolerance) {
        for (int64_t j = 0; j < d; j++) {
            double size = __builtin_fabs(slope[j]), most = penalty[j];
            double violation = v[j] == 0 ? (size > most ? size - most : 0) : __builtin_fabs(slope[j] + most * sign(v[j]));
            if (!(violation <= tolerance * most)) return false;
        }
        return true;
    }

    /// Bv.
    void times(const double *v, double *out) {
        for (int64_t j = 0; j < width; j++) out[j] = ridge[j] * v[j];
        for (int64_t j = 0; j < d; j++)
            if (v[j] != 0) add_multiple(out, v[j], matrix + j * width, width);
    }

    /// What rounding may have done to the gradient: a few units in the last place of its terms.
    void weigh_rounding(const double *v) {
        for (int64_t j = 0; j < width; j++) terms[j] = ridge[j] * __builtin_fabs(v[j]) + __builtin_fabs(r[j]) + penalty[j];
        for (int64_t j = 0; j < d; j++) {
            double factor = __builtin_fabs(v[j]);
            const double *row = matrix + j * width;
            if (factor != 0)
                for (int64_t i = 0; i < width; i += 8) store(terms + i, fma(all(factor), size(load(row + i)), load(terms + i)));
        }
        for (int64_t j = 0; j < width; j++) rounding[j] = 8.881784197001252e-16 * terms[j];
    }

    /// Sets each coordinate in turn to the best for it; `product` is the gradient and stays so.
    void descend(double *v) {
        for (int64_t j = 0; j < d; j++) {
            double diagonal = matrix[j * width + j] + ridge[j];
            double unpenalised = v[j] * diagonal - product[j], size = __builtin_fabs(unpenalised) - penalty[j];
            double next = size > 0 ? (unpenalised > 0 ? size : -size) / diagonal : 0;
            double change = next - v[j];
            if (change == 0) continue;
            add_multiple(product, change, matrix + j * width, width);
            product[j] += ridge[j] * change;
            v[j] = next;
        }
    }

    /// By how much `to` lies above `from` at most, where gradients are off by `rounding`; infinite where that is no number. Two
    /// values of the objective have no digits left for a small penalty where one column explains nearly everything.
    double rise(const double *from, const double *to) {
        for (int64_t j = 0; j < width; j++) bound[j] = to[j] - from[j];
        times(bound, terms);
        double smooth = 0, penalties = 0, doubt = 0;
        for (int64_t j = 0; j < d; j++) {
            smooth += (slope[j] + 0.5 * terms[j]) * bound[j];
            penalties += penalty[j] * (__builtin_fabs(to[j]) - __builtin_fabs(from[j]));
            doubt += rounding[j] * __builtin_fabs(bound[j]);
        }
        double total = smooth + penalties + doubt;
        return __builtin_fabs(total) <= 1.7976931348623157e308 ? total : INFINITY;
    }

    /// From v, whose gradient is `product`, to the minimum of its face, with what has flipped set to zero, and to the lowest
    /// point on the way.
    void to_face(const double *v) {
        int64_t free = 0;
        for (int64_t j = 0; j < d; j++)
            if (v[j] != 0 || penalty[j] == 0) place[free++] = j;
        memset(direction, 0, width * sizeof(double));
        for (int64_t i = 0; i < free; i++) {
            int64_t j = place[i];
            right[i] = -product[j] - penalty[j] * sign(v[j]);
        }
        memcpy(descending, right, free * sizeof(double));
        solve_free(free);
        if (stopped()) return;
        double descent = 0;
        for (int64_t i = 0; i < free; i++) {
            direction[place[i]] = right[i];
            descent += descending[i] * right[i];
        }
        times(direction, terms);
        double growth = 0;
        for (int64_t j = 0; j < d; j++) growth += direction[j] * terms[j];
        double length = line_minimum(v, descent, growth);
        for (int64_t j = 0; j < width; j++) {
            double end = v[j] + direction[j];
            bool flips = v[j] * end < 0 && penalty[j] > 0;
            face[j] = flips ? 0 : end;
            lowest[j] = flips && flip_at(v, j) == length ? 0 : v[j] + length * direction[j];
        }
    }

    double flip_at(const double *v, int64_t j) { return v[j] / -direction[j]; }

    /// Where −descent + t·growth + Σ of the jumps at flips before t crosses zero, at most 1.
    double line_minimum(const double *v, double descent, double growth) {
        double begin = 0, jumps = 0;
        for (;;) {
            // The next flip, of several at once all of them.
            double next = 1;
            for (int64_t j = 0; j < d; j++)
                if (penalty[j] > 0 && v[j] * (v[j] + direction[j]) < 0) {
                    double at = flip_at(v, j);
                    if (at > begin && at < next) next = at;
                }
            double root = growth > 0 ? (descent - jumps) / growth : (descent > jumps ? next : begin);
            if (root <= next || next == 1) return root < begin ? begin : root < next ? root : next;
            begin = next;
            for (int64_t j = 0; j < d; j++)
                if (penalty[j] > 0 && v[j] * (v[j] + direction[j]) < 0 && flip_at(v, j) == next)
                    jumps += 2 * penalty[j] * __builtin_fabs(direction[j]);
        }
    }

    /// Solves for `right` in the free coordinates, by Cholesky's factor with rows in lanes; collinear columns do not stop it.
    void solve_free(int64_t free) {
        for (int64_t a = 0; a < free; a++) {
            int64_t own = place[a];
            double *row = triangle + a * width;
            for (int64_t b = a; b < free; b++) row[b] = matrix[own * width + place[b]];
            row[a] += ridge[own];
            row[a] += 1e-13 * row[a];
        }
        for (int64_t a = 0; a < free; a++) {
            double *row = triangle + a * width;
            if (looks.stop((free - a) * (free - a) / 16)) return;
            double pivot = row[a];
            // A direction that is lost in rounding gets nothing.
            double inverse = pivot > 1e-15 ? 1 / __builtin_sqrt(pivot) : 0;
            for (int64_t b = a / 8 * 8; b < free; b += 8) store(row + b, load(row + b) * all(inverse));
            row[a] = inverse;
            for (int64_t b = a + 1; b < free; b++) {
                double *below = triangle + b * width, factor = -row[b];
                for (int64_t c = b / 8 * 8; c < free; c += 8)
                    store(below + c, fma(all(factor), load(row + c), load(below + c)));
            }
            right[a] *= inverse;
            for (int64_t b = a + 1; b < free; b++) right[b] -= row[b] * right[a];
        }
        for (int64_t a = free - 1; a >= 0; a--) {
            const double *row = triangle + a * width;
            double value = right[a];
            for (int64_t b = a + 1; b < free; b++) value -= row[b] * right[b];
            right[a] = value * row[a];
        }
    }
};

} // namespace grouplearn
