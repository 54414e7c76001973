// Rows cut by feature block, and what a pass over them does: predictions moved along, sums of first and second derivatives.
//
// Models are the lanes: predictions are (rows, 8) with one model per lane, or, of a single model, rows are the lanes. Both do the
// same operations in the same order for every model, so that the bits are the same. Eight rows are a tile. What belongs to a
// column of a block is (column, lane group, output, lanes): an entry of a row touches one place.
#pragma once
#include "lanes/elementary.hpp"
#include "lanes/looks.hpp"
#include "algebra/matrices.hpp"
#include "losses/losses.hpp"
#include <algorithm>

namespace grouplearn::coordinate_descent {

constexpr int TILE = 8;

using losses::Loss;

/// So many rows, and those that fill the last tile.
inline int64_t in_tiles(int64_t rows) { return (rows + TILE - 1) / TILE * TILE; }

/// The entries of rows in one block: `start` (n + 1) says where a row's are, or each row has one; `column` which each is of, or
/// all are of column 0, -1 for none; `value`, or all are 1. What has one number a row is padded to whole tiles.
struct Block {
    const int64_t *start;
    const int32_t *column;
    const double *value;

    bool one_column() const { return !column; }
};

/// A block whose form is known where it is compiled.
template <bool with_starts, bool with_columns, bool with_values> struct Cut : Block {
    static constexpr bool scaled = with_starts && with_values;
    /// Rows have one entry at most, of which the value is 1.
    static constexpr bool codes = !with_starts && with_columns && !with_values;

    explicit Cut(const Block &block) : Block(block) {}

    template <class Work> void entries(int64_t row, Work work) const {
        int64_t first = with_starts ? start[row] : row, last = with_starts ? start[row + 1] : row + 1;
        for (int64_t at = first; at < last; at++) {
            int64_t of = with_columns ? column[at] : 0;
            if (!with_columns || with_starts || of >= 0) work(of, with_values ? value[at] : 1.0);
        }
    }
};

template <class Work> inline void as_cut(const Block &block, Work work) {
    if (!block.column) return block.value ? work(Cut<false, false, true>(block)) : work(Cut<false, false, false>(block));
    if (!block.start) return block.value ? work(Cut<false, true, true>(block)) : work(Cut<false, true, false>(block));
    block.value ? work(Cut<true, true, true>(block)) : work(Cut<true, true, false>(block));
}

/// `outputs` scores of each of `configs` models, `lanes` of them side by side (8, or 1 where there is but one) in `groups`.
struct Shape {
    Loss loss;
    int64_t outputs, groups, lanes;

    int64_t column() const { return groups * outputs * lanes; }
    int64_t at(int64_t group, int64_t output) const { return (group * outputs + output) * lanes; }
};

struct Rows {
    int64_t count;
    const double *label, *weight;
    double *predictions;

    int64_t padded() const { return in_tiles(count); }
};

/// A tile of one lane group: for each output so many vectors of 8 numbers, of 8 rows or of one.
struct Tile {
    Numbers score, reach, slope, bend, loss;

    explicit Tile(int64_t outputs)
        : score(outputs * 64), reach(outputs * 64), slope(outputs * 64), bend(outputs * 64), loss(outputs * 64) {}
};

template <class Kind, int vectors>
inline void evaluate_each(const Shape &shape, const double *label, const double *weight, bool with_loss, Tile &tile) {
    for (int64_t k = 0; k < shape.outputs; k++)
        for (int v = 0; v < vectors; v++) {
            int64_t at = k * 64 + v * 8;
            D y = vectors == 8 ? all(label[v]) : load(label), w = vectors == 8 ? all(weight[v]) : load(weight), slope, bend;
            // Of several outputs each is of one class, against the rest.
            if (shape.outputs > 1) y = select(size(y - all((double)k)) < all(0.5), all(1.0), zero<D>());
            D score = load(tile.score + at);
            Kind::within(score, y, load(tile.reach + at), slope, bend);
            store(tile.slope + at, w * slope), store(tile.bend + at, w * bend);
            if (with_loss) store(tile.loss + at, w * Kind::value(score, y));
        }
}

template <class Kind, int vectors>
inline void evaluate_together(const Shape &shape, const double *label, const double *weight, bool with_loss, Tile &tile) {
    for (int v = 0; v < vectors; v++) {
        D y = vectors == 8 ? all(label[v]) : load(label), w = vectors == 8 ? all(weight[v]) : load(weight);
        double *loss = with_loss ? tile.loss + v * 8 : nullptr;
        Kind::within(shape.outputs, 64, y, w, tile.score + v * 8, tile.reach + v * 8, tile.slope + v * 8, tile.bend + v * 8, loss);
    }
}

template <int vectors>
inline void evaluate(const Shape &shape, const double *label, const double *weight, bool with_loss, Tile &tile) {
    losses::with(shape.loss, [&](auto kind) {
        using Kind = decltype(kind);
        if constexpr (Kind::by_coordinates && Kind::of_all_scores) evaluate_together<Kind, vectors>(shape, label, weight, with_loss, tile);
        else if constexpr (Kind::by_coordinates) evaluate_each<Kind, vectors>(shape, label, weight, with_loss, tile);
    });
}

/// The scores of a tile's rows, moved by what each entry adds: value · step. `step` is that of column 0 for these lanes.
template <int vectors, class Cut>
inline void move(const Cut &block, int64_t row, int count, const double *step, int64_t apart, double *score) {
    if (block.one_column() && vectors == 1) {
        D by = all(*step);
        return store(score, block.value ? fma(load(block.value + row), by, load(score)) : load(score) + by);
    }
    if constexpr (Cut::codes && vectors == 1)
        if (apart == 1) return store(score, load(score) + gathered(step, block.column + row));
    for (int i = 0; i < count; i++)
        block.entries(row + i, [&](int64_t column, double value) {
            const double *by = step + column * apart;
            if (vectors == 8) store(score + i * 8, fma(all(value), load(by), load(score + i * 8)));
            else score[i] = __builtin_fma(value, *by, score[i]);
        });
}

/// Eight sums over rows, of which each is of every eighth row, as one: halves first.
template <int vectors> inline void sum_of_rows(const double *parts, double *to) {
    if (vectors == 1) {
        *to = sum(load(parts));
        return;
    }
    D a[8];
    for (int i = 0; i < 8; i++) a[i] = load(parts + i * 8);
    for (int width = 4; width; width /= 2)
        for (int i = 0; i < width; i++) a[i] += a[i + width];
    store(to, a[0]);
}

/// Σ|x|·unit of each row's entries, and how far its scores may move: that times the largest radius of its columns as a multiple
/// of their units (as far as can be, where there are none). Only among values of several columns does the unit matter.
template <int vectors, class Cut>
inline void reach_of_rows(const Cut &block, int64_t row, int count, const double *radius, int64_t apart, const double *unit,
                          const Shape &shape, double *extent, Tile &tile) {
    if constexpr (Cut::codes && vectors == 1)
        if (apart == 1) {
            if (radius) store(tile.reach, gathered(radius, block.column + row));
            return;
        }
    for (int i = 0; i < TILE; i++) extent[i] = 0;
    for (int i = 0; i < count; i++)
        block.entries(row + i, [&](int64_t column, double value) {
            extent[i] += Cut::scaled ? __builtin_fabs(value) * unit[column] : __builtin_fabs(value);
        });
    if (!radius) return; // squares bend the same wherever they are
    for (int64_t k = 0; k < shape.outputs; k++) {
        double *reach = tile.reach + k * 64;
        for (int v = 0; v < vectors; v++) store(reach + v * 8, zero<D>());
        const double *mine = radius + k * shape.lanes;
        for (int i = 0; i < count; i++)
            block.entries(row + i, [&](int64_t column, double) {
                const double *of = mine + column * apart;
                if (vectors == 8) {
                    D most = Cut::scaled ? load(of) / all(unit[column]) : load(of);
                    store(reach + i * 8, larger(most, load(reach + i * 8)));
                } else {
                    double most = Cut::scaled ? *of / unit[column] : *of;
                    reach[i] = most > reach[i] ? most : reach[i];
                }
            });
        for (int i = 0; i < TILE; i++)
            if (vectors == 8) store(reach + i * 8, load(reach + i * 8) * all(extent[i]));
            else reach[i] *= extent[i];
    }
}

template <int vectors, class Cut>
inline void add_entries(const Cut &block, int64_t row, int count, const double *extent, const double *unit, const Shape &shape,
                        int64_t group, Tile &tile, double *sums, double *parts) {
    int64_t lanes = shape.lanes, apart = 2 * shape.column();
    for (int64_t k = 0; k < shape.outputs; k++) {
        const double *slope = tile.slope + k * 64, *bend = tile.bend + k * 64;
        if constexpr (Cut::codes && vectors == 1) {
            for (int i = 0; i < count; i++) {
                int64_t column = block.column[row + i];
                if (column < 0) continue;
                double *first = sums + column * apart + 2 * shape.at(group, k);
                first[0] += slope[i], first[1] += bend[i];
            }
            continue;
        }
        if (block.one_column()) {
            double *first = parts + k * 128, *second = first + 64;
            for (int v = 0; v < vectors; v++) {
                const double *at = block.value + row;
                D x = vectors == 8 ? all(at[v]) : load(at);
                store(first + v * 8, fma(x, load(slope + v * 8), load(first + v * 8)));
                store(second + v * 8, fma(x * x, load(bend + v * 8), load(second + v * 8)));
            }
            continue;
        }
        for (int i = 0; i < count; i++)
            block.entries(row + i, [&](int64_t column, double value) {
                double *first = sums + column * apart + 2 * shape.at(group, k), *second = first + lanes;
                double square = __builtin_fabs(value) * extent[i];
                if (Cut::scaled) square /= unit[column];
                if (vectors == 8) {
                    store(first, fma(all(value), load(slope + i * 8), load(first)));
                    store(second, fma(all(square), load(bend + i * 8), load(second)));
                } else {
                    *first = __builtin_fma(value, slope[i], *first);
                    *second = __builtin_fma(square, bend[i], *second);
                }
            });
    }
}

/// Asks for what rows a few tiles ahead touch of their columns, of blocks whose rows have one entry of 1.
inline void expect(const Block &block, int64_t row, int64_t padded, const double *of_columns, int64_t apart) {
    constexpr int64_t ahead = 8 * TILE;
    if (block.start || !block.column || row + ahead >= padded) return;
    for (int i = 0; i < TILE; i++)
        if (int64_t column = block.column[row + ahead + i]; column >= 0) __builtin_prefetch(of_columns + column * apart);
}

/// Where the models of a lane group have moved by `step` along the entries of `before`, and the sums of `now`, if any, there:
/// per column and output Σ w·loss'·x and Σ w·bend·|x|·(Σ|x|·unit)/unit. The last is, summed over columns, the most that the
/// columns of a block bend together (De Pierro 1995), and x² where a row has one entry. `unit` is of the columns of `now`;
/// `sums` (column, group, output, 2, lanes) is added to.
template <int vectors>
void pass(const Shape &shape, const Rows &rows, int64_t group, const Block *before, const double *step, const Block *now,
          const double *radius, const double *unit, double *sums, Tile &tile) {
    int64_t apart = shape.column(), padded = rows.padded();
    Numbers parts(now && now->one_column() ? shape.outputs * 128 : 0);
    Looks looks;
    for (int64_t row = 0; row < rows.count && !looks.stop(shape.outputs * 32 * vectors); row += TILE) {
        int count = (int)(rows.count - row < TILE ? rows.count - row : TILE);
        if (vectors == 1) {
            if (before) expect(*before, row, padded, step + shape.at(group, 0), apart);
            if (now && radius) expect(*now, row, padded, radius + shape.at(group, 0), apart);
            if (now) expect(*now, row, padded, sums + 2 * shape.at(group, 0), 2 * apart);
        }
        for (int64_t k = 0; k < shape.outputs; k++) {
            double *place = rows.predictions + (shape.at(group, k) * padded + row * shape.lanes);
            double *score = tile.score + k * 64;
            memcpy(score, place, sizeof(double) * 8 * vectors);
            if (!before) continue;
            as_cut(*before, [&](const auto &cut) { move<vectors>(cut, row, count, step + shape.at(group, k), apart, score); });
            memcpy(place, score, sizeof(double) * 8 * vectors);
        }
        if (!now) continue;
        double extent[TILE];
        const double *mine = radius ? radius + shape.at(group, 0) : nullptr;
        as_cut(*now, [&](const auto &cut) { reach_of_rows<vectors>(cut, row, count, mine, apart, unit, shape, extent, tile); });
        evaluate<vectors>(shape, rows.label + row, rows.weight + row, false, tile);
        as_cut(*now, [&](const auto &cut) {
            add_entries<vectors>(cut, row, count, extent, unit, shape, group, tile, sums, parts);
        });
    }
    if (!now || !now->one_column()) return;
    for (int64_t k = 0; k < shape.outputs; k++)
        for (int which = 0; which < 2; which++)
            sum_of_rows<vectors>(parts + k * 128 + which * 64, sums + 2 * shape.at(group, k) + which * shape.lanes);
}

/// A line of weights: by which `direction` each point after the first is further, if any, and by how much.
struct Line {
    const double *direction, *points;
    int64_t n_points;
};

/// Scores that are made block after block, and so many weights at least, where there are as many: what stays in the cache.
constexpr int64_t TOGETHER = 16384;

/// What the columns of a block add to the scores (rows, lanes) of adjoining rows, at the weights of a lane group.
template <int vectors>
inline void score_block(const Block &block, const double *weights, int64_t apart, int64_t begin, int64_t end, double *scores,
                        Looks &looks) {
    as_cut(block, [&](const auto &cut) {
        for (int64_t row = begin; row < end && !looks.stop(vectors); row += TILE) {
            int count = (int)(end - row < TILE ? end - row : TILE);
            if (vectors == 1) expect(block, row, in_tiles(end), weights, apart);
            move<vectors>(cut, row, count, weights, apart, scores + (row - begin) * vectors);
        }
    });
}

/// Scores (rows, lanes) of so many rows that are all the intercept of a lane group; 0 of those that fill the last tile, which nothing else
/// adds to: e to an intercept that columns far from 0 take back is infinite, and no weight of 0 makes it 0.
template <int vectors> inline void score_level(const double *level, int64_t rows, double *scores) {
    for (double *to = scores; to < scores + in_tiles(rows) * vectors; to += 8) store(to, vectors == 8 ? load(level) : all(*level));
    std::fill(scores + rows * vectors, scores + in_tiles(rows) * vectors, 0.0);
}

/// The sums at each point of a line, of which the first is where predictions are (points, group, output, 3, lanes): of losses, and of
/// first and second derivatives by the intercept within `radius` of it, if any.
template <int vectors>
void measure(const Shape &shape, const Rows &rows, int64_t group, const Block *blocks, const int64_t *first, int64_t n_blocks,
             const Line &line, const double *radius, double *sums, Tile &tile) {
    constexpr int64_t together = TOGETHER / vectors;
    int64_t apart = shape.column(), padded = rows.padded(), each = shape.outputs * 192, n_points = line.n_points;
    int64_t some = rows.count < together ? padded * vectors : together * vectors;
    Numbers parts(n_points * each), ahead(line.direction ? shape.outputs * some : 0), here(line.direction ? shape.outputs * 64 : 0);
    for (int64_t k = 0; k < shape.outputs; k++)
        for (int v = 0; v < vectors; v++) {
            int64_t at = shape.at(group, k);
            D reach = !radius ? all((double)INFINITY) : vectors == 8 ? load(radius + at) : all(radius[at]);
            store(tile.reach + k * 64 + v * 8, reach);
        }
    Looks looks;
    for (int64_t begin = 0; begin < rows.count && !looks.stop(1); begin += together) {
        int64_t end = rows.count - begin < together ? rows.count : begin + together;
        for (int64_t k = 0; k < shape.outputs; k++) {
            int64_t at = shape.at(group, k);
            double *scores = ahead + k * some;
            if (line.direction) score_level<vectors>(line.direction + first[n_blocks] * apart + at, end - begin, scores);
            for (int64_t b = 0; b < n_blocks && line.direction; b++)
                score_block<vectors>(blocks[b], line.direction + first[b] * apart + at, apart, begin, end, scores, looks);
        }
        for (int64_t row = begin; row < end && !looks.stop(shape.outputs * 40 * n_points * vectors); row += TILE) {
            for (int64_t k = 0; k < shape.outputs; k++) {
                const double *scores = rows.predictions + (shape.at(group, k) * padded + row * shape.lanes);
                memcpy(tile.score + k * 64, scores, sizeof(double) * 8 * vectors);
                if (line.direction) memcpy(here + k * 64, scores, sizeof(double) * 8 * vectors);
            }
            for (int64_t point = 0; point < n_points; point++) {
                for (int64_t k = 0; k < shape.outputs && point; k++)
                    for (int v = 0; v < vectors; v++) {
                        int64_t at = k * 64 + v * 8;
                        D further = load(ahead + k * some + (row - begin) * vectors + v * 8);
                        store(tile.score + at, fma(all(line.points[point]), further, load(here + at)));
                    }
                evaluate<vectors>(shape, rows.label + row, rows.weight + row, true, tile);
                for (int64_t k = 0; k < shape.outputs; k++)
                    for (int v = 0; v < vectors; v++) {
                        const double *of[3] = {tile.loss, tile.slope, tile.bend};
                        for (int which = 0; which < 3; which++) {
                            double *part = parts + point * each + k * 192 + which * 64 + v * 8;
                            store(part, load(part) + load(of[which] + k * 64 + v * 8));
                        }
                    }
            }
        }
    }
    for (int64_t point = 0; point < n_points; point++)
        for (int64_t k = 0; k < shape.outputs; k++)
            for (int which = 0; which < 3; which++)
                sum_of_rows<vectors>(parts + point * each + k * 192 + which * 64,
                                     sums + 3 * (point * apart + shape.at(group, k)) + which * shape.lanes);
}

} // namespace grouplearn::coordinate_descent
