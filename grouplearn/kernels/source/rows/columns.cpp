// Rows read where Arrow has them, column by column, and written where they belong in a matrix.
#include "lanes/lanes.hpp"
#include "rows/rows.hpp"

namespace grouplearn {
namespace {

/// Rows of a column that are written before those of the next one: their lines of the matrix stay in the cache.
constexpr int64_t ROWS_AT_A_TIME = 64;

inline void put(double *to, D numbers) { store(to, numbers); }
/// Numbers that single precision holds.
inline void put(float *to, D numbers) {
    float both[Lanes<F>::count];
    store(both, narrow(numbers, numbers));
    memcpy(to, both, Lanes<D>::count * sizeof(float));
}

/// Columns of the rows from ``first`` to before ``last`` become numbers side by side at ``line(row)``.
template <class Line> void turn(const double (&columns)[Lanes<D>::count][ROWS_AT_A_TIME], int64_t first, int64_t last, Line line) {
    constexpr int count = Lanes<D>::count;
    for (int64_t row = first; row < last; row += count) {
        D lines[count];
        for (int i = 0; i < count; i++) lines[i] = load(columns[i] + row - first);
        turn(lines);
        for (int i = 0; i < count && row + i < last; i++) put(line(row + i), lines[i]);
    }
}

/// Columns ``fields`` of a struct array: see ``read_numbers``.
struct Fields {
    const int32_t *number, *kinds;
    const int64_t *powers;
    const int32_t *places;
    int64_t count;
};

template <class Number>
void read(const ArrowArray &rows, int64_t n_rows, const Fields &fields, const int64_t *to, Number *out, int64_t width) {
    constexpr int beside = Lanes<D>::count;
    Looks looks;
    for (int64_t first = 0; first < n_rows && !looks.stop(ROWS_AT_A_TIME * fields.count); first += ROWS_AT_A_TIME) {
        int64_t last = first + ROWS_AT_A_TIME < n_rows ? first + ROWS_AT_A_TIME : n_rows;
        auto read = [&](int64_t at, auto place) {
            const ArrowArray &column = *rows.children[fields.number[at]];
            numbers(column, (Kind)fields.kinds[at], fields.powers[at], rows.offset + column.offset, first, last, place);
        };
        for (int64_t at = 0; at < fields.count;) {
            auto line = [to, width, start = out + fields.places[at]](int64_t row) { return start + (to ? to[row] : row) * width; };
            bool together = at + beside <= fields.count;
            for (int i = 1; together && i < beside; i++) together = fields.places[at + i] == fields.places[at] + i;
            if (!together) {
                read(at++, line);
                continue;
            }
            alignas(64) double columns[beside][ROWS_AT_A_TIME];
            for (int i = 0; i < beside; i++) read(at++, [first, own = columns[i]](int64_t row) { return own + row - first; });
            turn(columns, first, last, line);
        }
    }
}

} // namespace
} // namespace grouplearn

using namespace grouplearn;

/// Columns ``fields`` of a struct array into columns ``places`` of rows ``to`` (n_rows,), or of as many first rows, of
/// ``out`` (n, width), which is one of the two; then lets go of the array. What does not fit single precision must not be
/// read as such. Eight columns that lie side by side in ``out`` are written together.
GROUPLEARN_ENTRY void read_numbers(ArrowArray *rows, int64_t n_rows, const int32_t *fields, const int32_t *kinds,
                                   const int64_t *powers, const int32_t *places, int64_t n_fields, const int64_t *to,
                                   float *out_single, double *out_double, int64_t width) {
    Arithmetic arithmetic;
    Fields those = {fields, kinds, powers, places, n_fields};
    if (out_single) read(*rows, n_rows, those, to, out_single, width);
    else read(*rows, n_rows, those, to, out_double, width);
    rows->release(rows);
}
