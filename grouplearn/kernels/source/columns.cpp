// Rows read where Arrow has them, column by column, and written where they belong in a matrix.
#include "lanes.hpp"
#include "rows.hpp"

namespace grouplearn {
namespace {

/// Rows of a column that are written before those of the next one: their lines of the matrix stay in the cache.
constexpr int64_t ROWS_AT_A_TIME = 64;

/// Columns of the rows from ``first`` to before ``last`` become numbers side by side at ``line(row)``.
template <class Line> void turn(const double (&columns)[Lanes<D>::count][ROWS_AT_A_TIME], int64_t first, int64_t last, Line line) {
    constexpr int count = Lanes<D>::count;
    for (int64_t row = first; row < last; row += count) {
        D lines[count];
        for (int i = 0; i < count; i++) lines[i] = load(columns[i] + row - first);
        turn(lines);
        for (int i = 0; i < count && row + i < last; i++) store(line(row + i), lines[i]);
    }
}

} // namespace
} // namespace grouplearn

using namespace grouplearn;

/// Columns ``fields`` of a struct array into columns ``places`` of rows ``to`` (n_rows,), or of as many first rows, of
/// ``out`` (n, width); then lets go of the array. Eight columns that lie side by side in ``out`` are written together.
GROUPLEARN_ENTRY void read_numbers(ArrowArray *rows, int64_t n_rows, const int32_t *fields, const int32_t *kinds,
                                   const int64_t *powers, const int32_t *places, int64_t n_fields, const int64_t *to,
                                   double *out, int64_t width) {
    Arithmetic arithmetic;
    constexpr int beside = Lanes<D>::count;
    for (int64_t first = 0; first < n_rows; first += ROWS_AT_A_TIME) {
        int64_t last = first + ROWS_AT_A_TIME < n_rows ? first + ROWS_AT_A_TIME : n_rows;
        auto read = [&](int64_t at, auto place) {
            const ArrowArray &column = *rows->children[fields[at]];
            numbers(column, (Kind)kinds[at], powers[at], rows->offset + column.offset, first, last, place);
        };
        for (int64_t at = 0; at < n_fields;) {
            auto line = [to, width, start = out + places[at]](int64_t row) { return start + (to ? to[row] : row) * width; };
            bool together = at + beside <= n_fields;
            for (int i = 1; together && i < beside; i++) together = places[at + i] == places[at] + i;
            if (!together) {
                read(at++, line);
                continue;
            }
            alignas(64) double columns[beside][ROWS_AT_A_TIME];
            for (int i = 0; i < beside; i++) read(at++, [first, own = columns[i]](int64_t row) { return own + row - first; });
            turn(columns, first, last, line);
        }
    }
    rows->release(rows);
}
