// What each item adds to the score of a forest: Shapley values in which a split on an unknown number goes both ways, in shares of
// the training rows (TreeSHAP: Lundberg et al. 2020).
//
// A leaf of value v adds v·∏ o over the features of its path: o is 1 where the row goes along the path, and z, the share of rows
// that do, where the feature is unknown. The Shapley value of feature i is v·(o_i − z_i)·∫₀¹ ∏_{j≠i} (t·o_j + (1 − t)·z_j) dt, the
// integral of a polynomial: n points of Gauss and Legendre have it exactly for paths of 2n features. Each lane is a point. Going
// down, the product is carried along; going up, the sum over the leaves below is divided by the feature's own factor (linear in
// the number of leaves: Yu et al. 2022). A feature that is split on again on a path has one factor, of the product of its shares.
#include "algebra/matrices.hpp"
#include "lanes/entry.hpp"
#include "lanes/looks.hpp"
#include <algorithm>
#include <vector>

namespace grouplearn {
namespace {

/// Rows that descend a tree before the next tree: the factors of its edges are made once for them.
constexpr int64_t ROWS = 128;
constexpr int CATEGORICAL = 1, DEFAULT_LEFT = 2, ZERO_IS_MISSING = 1, NAN_IS_MISSING = 2;
/// LightGBM takes numbers up to this size for 0.
constexpr double ZERO = (double)1e-35f, LEAST = 1e-100;

/// The splits and leaves of all trees: contributions.py has the same. A child >= 0 is a split of the tree, another one leaf ~child.
struct Forest {
    const int64_t *first_splits, *first_leaves;
    const int32_t *outputs, *sizes, *feature, *decision, *left, *right;
    const double *threshold, *split_rows, *value, *leaf_rows;
    const int64_t *set_starts; // of each split, and of the end: words of its set of categories
    const uint32_t *sets;
};

struct Split {
    int32_t feature, decision, child[2];
    double threshold;
    const uint32_t *set;
    int64_t words;

    bool goes_left(double x) const {
        if (decision & CATEGORICAL) {
            if (!(x >= 0 && x < (double)(32 * words))) return false;
            auto category = (int64_t)x;
            return set[category / 32] >> (category % 32) & 1;
        }
        int missing = decision >> 2 & 3;
        if (x != x && missing != NAN_IS_MISSING) x = 0;
        bool is_missing = missing == NAN_IS_MISSING ? x != x : missing == ZERO_IS_MISSING && x <= ZERO && -x <= ZERO;
        return is_missing ? decision & DEFAULT_LEFT : x <= threshold;
    }
};

/// An edge from a split to its child, 2·split + side.
struct Edge {
    int32_t above; // the last edge before it on the path whose split asks for the same feature, or -1
    double share;  // of the rows of the split that go along it
    double whole;  // the product of the shares of all edges of the path that ask for this feature
};

/// One tree, and for each edge its factors at `size` points.
class Tree {
  public:
    Tree(const Forest &forest, int64_t number, const double *points, const double *weights)
        : size(forest.sizes[number]), count(forest.first_splits[number + 1] - forest.first_splits[number]),
          value(forest.value + forest.first_leaves[number]), splits(count), edges(2 * count), on(2 * count),
          yes(2 * count * size, false), no(2 * count * size, false), gains(2 * count * size, false), loss(size, false),
          products(count * size, false), sums(2 * count * size, false) {
        const double *rows = forest.split_rows + forest.first_splits[number];
        const double *leaf_rows = forest.leaf_rows + forest.first_leaves[number];
        std::vector<int32_t> into(count, -1);
        for (int64_t s = 0; s < count; s++) {
            int64_t at = forest.first_splits[number] + s;
            splits[s] = {forest.feature[at], forest.decision[at], {forest.left[at], forest.right[at]}, forest.threshold[at],
                         forest.sets + forest.set_starts[at], forest.set_starts[at + 1] - forest.set_starts[at]};
            for (int32_t side = 0; side < 2; side++) {
                int32_t child = splits[s].child[side], before = into[s];
                if (child >= 0) into[child] = (int32_t)(2 * s + side);
                while (before >= 0 && splits[before / 2].feature != splits[s].feature) before = into[before / 2];
                double of = child >= 0 ? rows[child] : leaf_rows[~child];
                double share = rows[s] > 0 ? of / rows[s] : 0.5, whole = before < 0 ? share : share * edges[before].whole;
                edges[2 * s + side] = {before, share, std::max(whole, LEAST)};
                find_factors(2 * s + side, points, weights);
            }
        }
        for (int64_t q = 0; q < size; q++) loss[q] = -weights[q] / (1 - points[q]);
    }

    /// Adds what each item adds to the score of row x, in lanes of `added` (items, 8).
    void add(const double *x, const int32_t *item, double *added) {
        for (int64_t q = 0; q < size; q++) products[q] = 1;
        for (int64_t s = 0; s < count; s++) descend(s, splits[s].goes_left(x[splits[s].feature]) ? 0 : 1);
        for (int64_t s = count - 1; s >= 0; s--) {
            double *own = added + item[splits[s].feature] * 8;
            D total = load(own);
            for (int side = 0; side < 2; side++) total = gained(s, side, total);
            store(own, total);
        }
    }

    int64_t work() const { return 6 * count * size / 8; }

  private:
    void find_factors(int64_t edge, const double *points, const double *weights) {
        const Edge &own = edges[edge];
        for (int64_t q = 0; q < size; q++) {
            double t = points[q], before = 1;
            if (own.above >= 0) before = t + (1 - t) * edges[own.above].whole;
            double with = t + (1 - t) * own.whole, without = (1 - t) * own.whole;
            yes[edge * size + q] = with / before, no[edge * size + q] = without / before;
            gains[edge * size + q] = weights[q] * (1 - own.whole) / with;
        }
    }
    void descend(int64_t s, int side) {
        for (int k = 0; k < 2; k++) {
            int64_t edge = 2 * s + k;
            const Edge &own = edges[edge];
            bool before = own.above < 0 || on[own.above];
            on[edge] = before && k == side;
            int32_t child = splits[s].child[k];
            double *to = child >= 0 ? products + child * size : sums + edge * size;
            const double *factor = (k == side ? yes : no) + edge * size;
            D share = all(own.share), leaf = all(child >= 0 ? 1.0 : value[~child]);
            for (int64_t q = 0; q < size; q += 8) {
                D product = load(products + s * size + q) * (before ? load(factor + q) : share);
                store(to + q, child >= 0 ? product : product * leaf);
            }
        }
    }
    D gained(int64_t s, int side, D total) {
        int64_t edge = 2 * s + side;
        int32_t child = splits[s].child[side], above = edges[edge].above;
        const double *own = on[edge] ? gains + edge * size : (double *)loss;
        const double *before = above < 0 ? nullptr : on[above] ? gains + above * size : (double *)loss;
        for (int64_t q = 0; q < size; q += 8) {
            double *below = sums + edge * size + q;
            if (child >= 0) store(below, load(sums + 2 * child * size + q) + load(sums + (2 * child + 1) * size + q));
            D leaves = load(below);
            total = fma(leaves, load(own + q), total);
            if (before) total = fnma(leaves, load(before + q), total);
        }
        return total;
    }

    int64_t size, count;
    const double *value;
    std::vector<Split> splits;
    std::vector<Edge> edges;
    std::vector<char> on; // whether the row goes along all edges of the path that ask for the feature
    Numbers yes, no, gains, loss, products, sums;
};

} // namespace
} // namespace grouplearn

using namespace grouplearn;

/// Adds to out (n_rows, n_items) what each item adds to the score `chosen` (n_rows,) of rows x (n_rows, width), where `item`
/// (width,) is that of each column. A tree has 8, 16, 32 or 64 points, which begin at that place less 8 of points and weights.
GROUPLEARN_ENTRY void explain_trees(const double *x, int64_t n_rows, int64_t width, const int32_t *chosen, const int32_t *item,
                                    int64_t n_items, int64_t n_trees, const int64_t *first_splits, const int64_t *first_leaves,
                                    const int32_t *outputs, const int32_t *sizes, const int32_t *feature,
                                    const int32_t *decision, const int32_t *left, const int32_t *right, const double *threshold,
                                    const double *split_rows, const double *value, const double *leaf_rows,
                                    const int64_t *set_starts, const uint32_t *sets, const double *points,
                                    const double *weights, double *out) {
    Arithmetic arithmetic;
    Looks looks;
    Forest forest{first_splits, first_leaves, outputs, sizes, feature, decision, left, right,
                  threshold, split_rows, value, leaf_rows, set_starts, sets};
    Numbers added(ROWS * n_items * 8, false);
    for (int64_t first = 0; first < n_rows; first += ROWS) {
        int64_t count = std::min(ROWS, n_rows - first);
        std::fill_n((double *)added, count * n_items * 8, 0.0);
        for (int64_t number = 0; number < n_trees; number++) {
            if (first_splits[number] == first_splits[number + 1]) continue;
            Tree tree(forest, number, points + sizes[number] - 8, weights + sizes[number] - 8);
            for (int64_t row = 0; row < count; row++) {
                if (looks.stop(tree.work())) return;
                if (chosen[first + row] != outputs[number]) continue;
                tree.add(x + (first + row) * width, item, added + row * n_items * 8);
            }
        }
        for (int64_t at = 0; at < count * n_items; at++) out[first * n_items + at] += sum(load(added + at * 8));
    }
}
