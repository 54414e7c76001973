// Lloyd's algorithm (1982) for many models of one group in one pass over its rows: what a pass sums, and the step after it.
#pragma once
#include "clusters/clustering_rows.hpp"
#include <algorithm>

namespace grouplearn::clustering {

/// Models that train together; kernels/clusters/clustering.py has the same fields. A model is one start of a config, those of a config
/// stand together. Centroids of all models are in one array (centroids, d), those of model m from `first[m]` on.
struct Plan {
    int64_t d, models, configs, chains, limit; // `limit`: the most passes
    const int64_t *first;                      // (models + 1)
    const int64_t *chain;                      // (models): the chain of seeds whose first ones a model takes
    const double *tolerance;                   // (models)
    const int64_t *start;                      // (configs + 1): the models of a config
    const uint64_t *chain_seed;                // (chains), as all that follow
    const int64_t *chain_restart, *chain_trials, *chain_length;

    int64_t k(int64_t model) const { return first[model + 1] - first[model]; }
    int64_t centroids() const { return first[models]; }
    int64_t most() const {
        int64_t largest = 0;
        for (int64_t m = 0; m < models; m++) largest = k(m) > largest ? k(m) : largest;
        return largest;
    }
};

/// The farthest row of a model: squared distance to its centroid, number in the group, cluster, weight, and the row.
enum Far { SQUARE, ROW, CLUSTER, WEIGHT, VALUES };

/// What a pass sums, all models in one: per centroid (Σw·x, Σw, rows) of its rows, per model Σ w·square and the farthest row
/// (models, VALUES + d), and Σ w·‖x‖².
struct Sums {
    double *clusters, *inertia, *far, *spread;

    static int64_t size(const Plan &plan) {
        return plan.centroids() * (plan.d + 2) + plan.models * (1 + VALUES + plan.d) + 1;
    }
    static Sums in(double *room, const Plan &plan) {
        double *inertia = room + plan.centroids() * (plan.d + 2), *far = inertia + plan.models;
        return {room, inertia, far, far + plan.models * (VALUES + plan.d)};
    }
};

/// Adds the sums of later rows; of rows at one distance the first stays the farthest.
inline void merge(const Sums &to, const Sums &later, const Plan &plan) {
    for (int64_t i = 0; i < plan.centroids() * (plan.d + 2); i++) to.clusters[i] += later.clusters[i];
    int64_t size = VALUES + plan.d;
    for (int64_t m = 0; m < plan.models; m++) {
        to.inertia[m] += later.inertia[m];
        if (later.far[m * size + SQUARE] > to.far[m * size + SQUARE])
            memcpy(to.far + m * size, later.far + m * size, (size_t)size * sizeof(double));
    }
    *to.spread += *later.spread;
}

/// Whether a model still trains.
enum Phase : int64_t { MOVING, LAST_LOOK, CONVERGED, ENDED, FAILED };
inline bool trains(int64_t phase) { return phase == MOVING || phase == LAST_LOOK; }

/// Models in training. `clusters` (centroids, 2) are weight and rows, `inertia` (models) the weighted sum of squares, both of the
/// pass before; `passes` and `phase` (models).
struct State {
    double *centroids, *clusters, *inertia;
    int64_t *passes, *phase;
};

/// A pass over a block of rows. Sums over rows run from the first to the last; inertia does so in eight lanes.
class Pass {
  public:
    Pass(const Plan &plan, const State &state)
        : plan(plan), state(state), length(in_lanes(plan.d + 2)), points(plan.centroids() * plan.d),
          sums(plan.centroids() * length), far(plan.models * (VALUES + plan.d)), inertia(plan.models * 8) {}

    /// Begin a block.
    void begin() {
        memset(sums, 0, plan.centroids() * length * sizeof(double));
        memset(far, 0, plan.models * (VALUES + plan.d) * sizeof(double));
        memset(inertia, 0, plan.models * 8 * sizeof(double));
        spread = zero<D>();
        for (int64_t m = 0; m < plan.models; m++)
            lay_points(state.centroids + plan.first[m] * plan.d, plan.k(m), plan.d, points + plan.first[m] * plan.d);
    }

    /// Add rows, the first of which has this number in the group.
    void add(Laid &laid, int64_t number) {
        // Rows that are at hand while models take turns, with their sums.
        int64_t some = std::max<int64_t>(16, std::min<int64_t>(ROWS, 2048 / Laid::numbers(plan.d) / 16 * 16));
        for (int64_t from = 0; from < laid.count; from += some) {
            int64_t count = laid.count - from < some ? laid.count - from : some;
            add_spread(laid, from, count);
            for (int64_t m = 0; m < plan.models; m++) {
                if (!trains(state.phase[m])) continue;
                if (stop(count * (plan.k(m) * plan.d / 4 + length / 8 + 4))) return;
                assign(laid, from, count, m, number);
                switch (length) {
                case 8: add_rows<1>(laid, from, count, m); break;
                case 16: add_rows<2>(laid, from, count, m); break;
                case 24: add_rows<3>(laid, from, count, m); break;
                default: add_rows<0>(laid, from, count, m);
                }
            }
        }
    }

    /// Write the sums of the block.
    void write(const Sums &to) const {
        int64_t own = plan.d + 2;
        for (int64_t c = 0; c < plan.centroids(); c++)
            memcpy(to.clusters + c * own, sums.start() + c * length, (size_t)own * sizeof(double));
        for (int64_t m = 0; m < plan.models; m++) to.inertia[m] = sum(load(inertia.start() + m * 8));
        memcpy(to.far, far.start(), (size_t)(plan.models * (VALUES + plan.d)) * sizeof(double));
        *to.spread = sum(spread);
    }

  private:
    static constexpr int64_t ROWS = 128;
    const Plan &plan;
    const State &state;
    const int64_t length;
    Numbers points, sums, far, inertia;
    D spread = zero<D>();
    int32_t cluster[ROWS];

    void add_spread(Laid &laid, int64_t from, int64_t count) {
        for (int64_t i = from; i < from + count; i += 8) {
            D square = zero<D>();
            for (int64_t j = 0; j < plan.d; j++) {
                D x = load(laid.eight(i) + j * 8);
                square = fma(x, x, square);
            }
            spread = fma(load(laid.weight + i), square, spread);
        }
    }

    void assign(Laid &laid, int64_t from, int64_t count, int64_t m, int64_t number) {
        int64_t i = 0;
        for (; i + abreast * 8 <= in_lanes(count); i += abreast * 8) assign_some<abreast>(laid, from + i, cluster + i, m, number);
        for (; i < count; i += 8) assign_some<1>(laid, from + i, cluster + i, m, number);
    }

    template <int eights> void assign_some(Laid &laid, int64_t from, int32_t *to, int64_t m, int64_t number) {
        D best[eights], which[eights];
        nearest<eights>(laid.eight(from), laid.width * 8, plan.d, points + plan.first[m] * plan.d, plan.k(m), best, which);
        double *farthest = far + m * (VALUES + plan.d), *total = inertia + m * 8;
        for (int e = 0; e < eights; e++) {
            D weight = load(laid.weight + from + e * 8);
            best[e] = select(zero<D>() < weight, best[e], zero<D>());
            store(total, fma(weight, best[e], load(total)));
            double lanes[8];
            store(lanes, which[e]);
            for (int i = 0; i < 8; i++) to[e * 8 + i] = (int32_t)lanes[i];
            if (!any(all(farthest[SQUARE]) < best[e])) continue;
            store(lanes, best[e]);
            for (int i = 0; i < 8; i++)
                if (lanes[i] > farthest[SQUARE]) keep(laid, from + e * 8 + i, number, lanes[i], to[e * 8 + i], farthest);
        }
    }

    void keep(Laid &laid, int64_t row, int64_t number, double square, int32_t own, double *farthest) {
        farthest[SQUARE] = square;
        farthest[ROW] = (double)(number + row);
        farthest[CLUSTER] = own;
        farthest[WEIGHT] = laid.weight[row];
        for (int64_t j = 0; j < plan.d; j++) farthest[VALUES + j] = laid.eight(row / 8 * 8)[j * 8 + row % 8];
    }

    template <int vectors> void add_rows(Laid &laid, int64_t from, int64_t count, int64_t m) {
        double *own = sums + plan.first[m] * length;
        const double *row = laid.products + from * length;
        for (int64_t i = 0; i < count; i++, row += length) {
            double *to = own + cluster[i] * length;
            if constexpr (vectors > 0)
                for (int v = 0; v < vectors; v++) store(to + 8 * v, load(to + 8 * v) + load(row + 8 * v));
            else
                for (int64_t j = 0; j < length; j += 8) store(to + j, load(to + j) + load(row + j));
        }
    }
};

/// The step of one model after a pass: each centroid to the mean of its rows.
class Step {
  public:
    Step(const Plan &plan, const State &state, const Sums &sums) : plan(plan), state(state), sums(sums) {}

    void take(int64_t m) {
        if (!trains(state.phase[m])) return;
        const int64_t k = plan.k(m), d = plan.d, own = d + 2;
        double *clusters = sums.clusters + plan.first[m] * own, *centroids = state.centroids + plan.first[m] * d;
        state.passes[m]++;
        state.inertia[m] = sums.inertia[m];
        for (int64_t c = 0; c < k; c++) memcpy(state.clusters + (plan.first[m] + c) * 2, clusters + c * own + d, 2 * sizeof(double));
        double variance = mean_variance(clusters, k);
        if (!std::isfinite(state.inertia[m]) || !std::isfinite(variance)) {
            state.phase[m] = FAILED;
            return;
        }
        if (state.phase[m] == LAST_LOOK || state.passes[m] >= plan.limit) {
            state.phase[m] = state.phase[m] == LAST_LOOK ? CONVERGED : ENDED;
            return;
        }
        int64_t filled = fill_empty(m, clusters, k);
        double shift = 0;
        for (int64_t c = 0; c < k; c++) {
            double weight = clusters[c * own + d];
            if (!(weight > 0)) continue; // it stays where it is
            for (int64_t j = 0; j < d; j++) {
                double moved = clusters[c * own + j] / weight, by = moved - centroids[c * d + j];
                centroids[c * d + j] = moved;
                if (c != filled) shift = __builtin_fma(by, by, shift);
            }
        }
        if (filled >= 0) return;
        if (shift == 0) state.phase[m] = CONVERGED;
        else if (shift <= plan.tolerance[m] * variance) state.phase[m] = LAST_LOOK;
    }

  private:
    const Plan &plan;
    const State &state;
    const Sums &sums;

    /// The variance of a feature, on average: squares about where rows are measured from less that of the mean.
    double mean_variance(const double *clusters, int64_t k) const {
        const int64_t d = plan.d, own = d + 2;
        double total = 0, square = 0;
        for (int64_t c = 0; c < k; c++) total += clusters[c * own + d];
        for (int64_t j = 0; j < d; j++) {
            double sum = 0;
            for (int64_t c = 0; c < k; c++) sum += clusters[c * own + j];
            square = __builtin_fma(sum / total, sum / total, square);
        }
        double variance = *sums.spread / total - square;
        return variance < 0 ? 0 : variance / (double)d;
    }

    /// Give the first cluster without rows the farthest row, which leaves its own; the number of it, or -1.
    int64_t fill_empty(int64_t m, double *clusters, int64_t k) const {
        const int64_t d = plan.d, own = d + 2;
        const double *far = sums.far + m * (VALUES + d);
        if (!(far[SQUARE] > 0)) return -1;
        int64_t left = (int64_t)far[CLUSTER], empty = 0;
        while (empty < k && clusters[empty * own + d + 1] > 0) empty++;
        if (empty == k || !(clusters[left * own + d + 1] > 1)) return -1;
        double weight = clusters[left * own + d] - far[WEIGHT];
        if (!(weight > 0)) return -1; // but for rounding there is nothing else in it
        clusters[left * own + d] = weight;
        for (int64_t j = 0; j < d; j++) {
            clusters[left * own + j] = __builtin_fma(-far[WEIGHT], far[VALUES + j], clusters[left * own + j]);
            clusters[empty * own + j] = far[VALUES + j];
        }
        clusters[empty * own + d] = 1;
        return empty;
    }
};

} // namespace grouplearn::clustering
