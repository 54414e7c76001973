// Predictions made anew from the weights, at the end of an epoch or where a worker has none.
#pragma once
#include "linear/coordinate_descent/blocks.hpp"

namespace grouplearn::coordinate_descent {

/// The predictions of rows in cells, of models that are not all `done`, at weights (columns + 1) whose last is the intercept: that
/// first, then block after block. Of wide blocks each goes through all rows, so that its weights stay in the cache; narrow ones go
/// through some rows together, so that these do.
class FreshPredictions {
  public:
    FreshPredictions(const Group &group, const Rows *cells, int64_t n_cells, const Block *blocks, const double *weights)
        : group(group), shape(group.shape), cells(cells), n_cells(n_cells), blocks(blocks), weights(weights) {}

    void make(const double *done) const {
        for (int64_t g = 0; g < shape.groups; g++) {
            if (done && all_done(shape, g, done)) continue;
            for (int64_t k = 0; k < shape.outputs; k++) shape.lanes == 1 ? make<1>(shape.at(g, k)) : make<8>(shape.at(g, k));
        }
    }

  private:
    const Group &group;
    const Shape &shape;
    const Rows *cells;
    int64_t n_cells;
    const Block *blocks;
    const double *weights;

    /// The block after those that are made together with this one.
    int64_t after(int64_t block) const {
        int64_t last = block + 1;
        while (last < group.n_blocks && (group.first[last + 1] - group.first[block]) * shape.column() <= TOGETHER) last++;
        return last;
    }

    template <int vectors> void make(int64_t at) const {
        Looks looks;
        const double *level = weights + group.first[group.n_blocks] * shape.column() + at;
        for (int64_t c = 0; c < n_cells; c++)
            score_level<vectors>(level, cells[c].count, cells[c].predictions + at * cells[c].padded());
        for (int64_t b = 0, last; b < group.n_blocks && !stopped(); b = last) {
            last = after(b);
            for (int64_t c = 0; c < n_cells; c++) some<vectors>(cells[c], blocks + c * group.n_blocks, b, last, at, looks);
        }
    }

    template <int vectors> void some(const Rows &rows, const Block *own, int64_t b, int64_t last, int64_t at, Looks &looks) const {
        constexpr int64_t together = TOGETHER / vectors;
        for (int64_t begin = 0; begin < rows.count; begin += together) {
            int64_t end = rows.count - begin < together ? rows.count : begin + together;
            double *scores = rows.predictions + at * rows.padded() + begin * vectors;
            for (int64_t each = b; each < last; each++) {
                const double *of_block = weights + group.first[each] * shape.column() + at;
                score_block<vectors>(own[each], of_block, shape.column(), begin, end, scores, looks);
            }
        }
    }
};

} // namespace grouplearn::coordinate_descent
