// A pass of one model with one output over a block whose rows have one entry each, 1, as one-hot columns have it.
//
// It does what ``pass`` does, in the same order, with nothing left to ask of a row: rows are gone through some tiles at a time,
// first all that is evaluated, then all that is added to columns, so that each of both waits for memory as often as it can at once.
#pragma once
#include "linear/coordinate_descent/rows.hpp"
#include <type_traits>

namespace grouplearn::coordinate_descent {

/// Two numbers side by side, wherever two of an array lie.
using Pair = double __attribute__((vector_size(16), aligned(8), may_alias));

/// Rows whose derivatives are kept before they are added to columns, and how far ahead memory is asked for.
constexpr int64_t RUN = 8 * TILE;

/// What moves rows before they are evaluated: by their columns, by one number, or not at all.
struct MovedByCodes {
    const int32_t *column;
    const double *step;

    D by(int64_t row) const { return gathered(step, column + row); }
    void expect(int64_t row) const {
        for (int i = 0; i < TILE; i++)
            if (int64_t of = column[row + i]; of >= 0) __builtin_prefetch(step + of);
    }
};
struct MovedByOne {
    double step;

    D by(int64_t) const { return all(step); }
    void expect(int64_t) const {}
};
struct NotMoved {
    void expect(int64_t) const {}
};

template <class Kind, class Moved>
void pass_of_codes(const Rows &rows, const Moved &moved, const int32_t *column, const double *radius, double *sums) {
    alignas(64) double slope[RUN], bend[RUN];
    int64_t padded = rows.padded();
    Looks looks;
    for (int64_t first = 0; first < padded && !looks.stop(32 * RUN / TILE); first += RUN) {
        int64_t last = padded - first < RUN ? padded : first + RUN;
        for (int64_t row = first; row < last; row += TILE) {
            if (row + RUN < padded) {
                moved.expect(row + RUN);
                for (int i = 0; i < TILE; i++)
                    if (int64_t of = column[row + RUN + i]; of >= 0) {
                        __builtin_prefetch(sums + 2 * of, 1);
                        if (radius) __builtin_prefetch(radius + of);
                    }
            }
            D score = load(rows.predictions + row), of_row, bends;
            if constexpr (!std::is_same_v<Moved, NotMoved>) {
                score = score + moved.by(row);
                store(rows.predictions + row, score);
            }
            D reach = radius ? gathered(radius, column + row) : zero<D>(), weight = load(rows.weight + row);
            Kind::within(score, load(rows.label + row), reach, of_row, bends);
            store(slope + (row - first), weight * of_row), store(bend + (row - first), weight * bends);
        }
        for (int64_t row = first; row < last; row++)
            if (int64_t of = column[row]; of >= 0) {
                Pair *to = (Pair *)(sums + 2 * of);
                *to += Pair{slope[row - first], bend[row - first]};
            }
    }
}

/// ``pass`` of such a block, where it is one and what has moved is another or the intercept; false where it is not.
template <class Kind>
bool pass_one(const Rows &rows, const Block *before, const double *step, const Block &now, const double *radius, double *sums) {
    if (!before) pass_of_codes<Kind>(rows, NotMoved{}, now.column, radius, sums);
    else if (before->one_column() && !before->value) pass_of_codes<Kind>(rows, MovedByOne{*step}, now.column, radius, sums);
    else if (!before->start && !before->value) pass_of_codes<Kind>(rows, MovedByCodes{before->column, step}, now.column, radius, sums);
    else return false;
    return true;
}

inline bool pass_codes(const Shape &shape, const Rows &rows, const Block *before, const double *step, const Block *now,
                       const double *radius, double *sums) {
    if (shape.lanes != 1 || shape.column() != 1 || !now || now->start || !now->column || now->value) return false;
    return losses::with(shape.loss, [&](auto kind) {
        using Kind = decltype(kind);
        if constexpr (Kind::by_coordinates && !Kind::of_all_scores) return pass_one<Kind>(rows, before, step, *now, radius, sums);
        else return false;
    });
}

} // namespace grouplearn::coordinate_descent
