// Scores of forests, eight rows of a group at a time. Down a small tree no row walks: all its questions are asked of all
// eight, each answer "no" takes the leaves of the other side away, and the first leaf that is left is the row's
// (QuickScorer: Lucchese et al. 2015). Down others the rows walk side by side, so that one's wait is another's work.
#include "rows/rows.hpp"
#include "trees/sums.hpp"

namespace grouplearn {
namespace {

constexpr int ROWS = Lanes<D>::count;

/// A question. Children are nodes of the same tree, or ~leaf. ``yes``: x <= bound, or low <= x <= high in a range.
struct Node {
    union {
        double bound;
        struct {
            float low, high;
        };
    };
    uint32_t slot; // and IN_RANGE, MISSING_IS_YES
    int16_t yes, no;
};
static_assert(sizeof(Node) == 16, "trees.py writes them");
constexpr uint32_t IN_RANGE = 1u << 31, MISSING_IS_YES = 1u << 30, SLOT = MISSING_IS_YES - 1;
/// Of a tree: some nodes are IN_RANGE; it has at most 64 leaves, which are in order, those of "yes" first.
constexpr uint8_t ASKS_RANGES = 1, IN_ORDER = 2;

struct Trees {
    const Node *nodes;
    const uint64_t *others; // of each node, all leaves but those of "yes", where its tree is IN_ORDER
    const double *leaves;
    const int64_t *first_nodes, *first_leaves; // (n_trees + 1,)
    const int32_t *outputs;                    // of each tree
    const uint8_t *kinds;
};

/// Rows that are scored together. Those after the last one are its copies.
struct Rows {
    const double *x[ROWS];
    int count;
    bool missing;
    const double *turned; // (width, ROWS): the numbers of all rows, slot by slot
    double *sums;         // (n_outputs, 2, ROWS): ``Sum`` of each output of all rows
};

template <bool ranges, bool missing> inline int32_t next(const Node &node, const double *x) {
    double value = x[node.slot & SLOT];
    bool yes = value <= node.bound;
    if (ranges) {
        bool within = (double)node.low <= value && value <= (double)node.high;
        yes = node.slot & IN_RANGE ? within : yes;
    }
    if (missing) yes |= value != value && (node.slot & MISSING_IS_YES);
    return yes ? node.yes : node.no;
}

template <bool ranges, bool missing> inline void walk(const Node *nodes, const Rows &rows, int32_t *leaves) {
    int32_t at[ROWS] = {}, inside;
    do {
        inside = 0;
        for (int row = 0; row < ROWS; row++) {
            int32_t node = at[row], stays = node >> 31;
            int32_t found = next<ranges, missing>(nodes[node & ~stays], rows.x[row]);
            at[row] = (found & ~stays) | (node & stays);
            inside |= ~at[row];
        }
    } while (inside < 0);
    for (int row = 0; row < ROWS; row++) leaves[row] = ~at[row];
}

template <bool ranges, bool missing>
inline void ask_all(const Node *nodes, const uint64_t *others, int64_t n_nodes, const Rows &rows, int32_t *leaves) {
    Bits left = every_bit();
    for (int64_t at = 0; at < n_nodes; at++) {
        const Node &node = nodes[at];
        D value = load(rows.turned + (node.slot & SLOT) * ROWS);
        DMask yes = value <= all(node.bound);
        if (ranges && node.slot & IN_RANGE) yes = all((double)node.low) <= value & value <= all((double)node.high);
        if (missing && node.slot & MISSING_IS_YES) yes = yes | !(value <= value);
        left = kept(left, !yes, others[at]);
    }
    uint64_t bits[ROWS];
    store(bits, left);
    for (int row = 0; row < ROWS; row++) leaves[row] = __builtin_ctzll(bits[row]);
}

template <bool missing> void add_trees(const Trees &trees, int64_t first, int64_t last, const Rows &rows) {
    Looks looks;
    for (int64_t tree = first; tree < last; tree++) {
        int64_t start = trees.first_nodes[tree], n_nodes = trees.first_nodes[tree + 1] - start;
        if (looks.stop(n_nodes < 64 ? n_nodes : 256)) return;
        const Node *nodes = trees.nodes + start;
        const uint64_t *others = trees.others + start;
        int32_t leaves[ROWS] = {};
        uint8_t kind = rows.count > 2 ? trees.kinds[tree] : trees.kinds[tree] & ~IN_ORDER;
        if (n_nodes) {
            if (kind == (ASKS_RANGES | IN_ORDER)) ask_all<true, missing>(nodes, others, n_nodes, rows, leaves);
            if (kind == IN_ORDER) ask_all<false, missing>(nodes, others, n_nodes, rows, leaves);
            if (kind == ASKS_RANGES) walk<true, missing>(nodes, rows, leaves);
            if (kind == 0) walk<false, missing>(nodes, rows, leaves);
        }
        const double *values = trees.leaves + trees.first_leaves[tree];
        double reached[ROWS], *own = rows.sums + trees.outputs[tree] * 2 * ROWS;
        for (int row = 0; row < ROWS; row++) reached[row] = values[leaves[row]];
        Sum<D> sum{load(own), load(own + ROWS)};
        sum.add(load(reached));
        store(own, sum.high), store(own + ROWS, sum.low);
    }
}

/// Writes what is read of the rows slot by slot into ``turned`` and says whether something is missing.
bool turn(const double *const *x, int64_t width, double *turned) {
    DMask missing = zero<D>() < zero<D>();
    for (int64_t slot = 0; slot < width; slot++) {
        for (int row = 0; row < ROWS; row++) turned[slot * ROWS + row] = x[row][slot];
        D values = load(turned + slot * ROWS);
        missing = missing | !(values <= values);
    }
    return any(missing);
}

} // namespace
} // namespace grouplearn

using namespace grouplearn;

/// Scores (n_rows, n_outputs) of rows x (n_rows, width): ``base`` (n_groups, n_outputs) and the leaves of the trees
/// [first_trees[group], first_trees[group + 1]), in whatever order. NaN: no group. Room: order and spare (n_rows,), turned
/// (width, 8), sums (n_outputs, 2, 8).
GROUPLEARN_ENTRY void score_trees(const double *x, int64_t n_rows, int64_t width, const int32_t *group, int64_t n_groups,
                                  int64_t n_outputs, const void *nodes, const uint64_t *others, const double *leaves,
                                  const int64_t *first_nodes, const int64_t *first_leaves, const int32_t *outputs,
                                  const uint8_t *kinds, const int64_t *first_trees, const double *base, int64_t *order,
                                  int64_t *spare, double *turned, double *sums, double *out) {
    Arithmetic arithmetic;
    Trees trees{(const Node *)nodes, others, leaves, first_nodes, first_leaves, outputs, kinds};
    for (int64_t at = 0; at < n_rows * n_outputs; at++) out[at] = (double)NAN;
    int64_t kept = by_group(group, n_rows, n_groups, order, spare);
    Rows rows;
    Looks looks;
    for (int64_t start = 0; start < kept; start += rows.count) {
        int64_t n_trees = first_trees[group[order[start]] + 1] - first_trees[group[order[start]]];
        if (looks.stop(2 * width + 16 * n_trees)) return;
        int32_t own = group[order[start]];
        rows.count = 0;
        for (int row = 0; row < ROWS; row++) {
            bool fits = rows.count == row && start + row < kept && group[order[start + row]] == own;
            int64_t number = order[fits ? start + row : start];
            rows.x[row] = x + number * width;
            rows.count += fits;
        }
        for (int64_t k = 0; k < n_outputs; k++)
            store(sums + k * 2 * ROWS, all(base[own * n_outputs + k])), store(sums + k * 2 * ROWS + ROWS, zero<D>());
        rows.missing = turn(rows.x, width, turned);
        rows.turned = turned, rows.sums = sums;
        if (rows.missing)
            add_trees<true>(trees, first_trees[own], first_trees[own + 1], rows);
        else
            add_trees<false>(trees, first_trees[own], first_trees[own + 1], rows);
        for (int64_t k = 0; k < n_outputs; k++) {
            double whole[ROWS];
            store(whole, Sum<D>{load(sums + k * 2 * ROWS), load(sums + k * 2 * ROWS + ROWS)}.whole());
            for (int row = 0; row < rows.count; row++) out[order[start + row] * n_outputs + k] = whole[row];
        }
    }
}
