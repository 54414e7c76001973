// Which models of few rows are left to `few_rows.cpp`, where Newton's method over columns does not end.
#pragma once
#include "linear/generalised_linear/rows.hpp"

namespace grouplearn::generalised_linear {

/// Rows a column, and the operations of a step.
constexpr int64_t few_a_column = 4, most_of_a_step = (int64_t)1 << 29;
/// The passes after which Newton's method is left: of whole groups; epoch by epoch, where nobody sees that a step was none, with a matrix of
/// columns, and without, where passes take less time than steps by a matrix of rows.
constexpr int64_t passes_of_few = 50, epochs_of_few = 20, epochs_of_few_and_wide = 150;

/// Whether so many rows are few, for a loss of one score without a kink.
inline bool are_few(Loss loss, int64_t outputs, int64_t rows, int64_t columns) {
    return outputs == 1 && !losses::of_all_scores(loss) && !has_kink(loss) && rows > 0 && rows <= few_a_column * columns &&
           rows * columns <= most_of_a_step / rows;
}

} // namespace grouplearn::generalised_linear
