// The numbers of rows that Arrow holds column by column (its C data interface), and rows put in order of their groups.
#pragma once
#include "lanes/entry.hpp"

namespace grouplearn {

/// Arrow's C data interface: https://arrow.apache.org/docs/format/CDataInterface.html
struct ArrowArray {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    ArrowArray **children;
    ArrowArray *dictionary;
    void (*release)(ArrowArray *);
    void *private_data;
};

/// What a column's numbers are; columns.py has the same order. A decimal is a whole number over a power of ten.
enum Kind : int32_t { INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, FLOAT, DOUBLE, BOOLEAN, DECIMAL };

inline bool bit(const void *bits, int64_t place) { return ((const uint8_t *)bits)[place >> 3] >> (place & 7) & 1; }

/// As DuckDB casts: a whole number beyond 2⁵³ is taken apart, so that its fraction is not lost.
inline double decimal(int64_t value, int64_t power) {
    constexpr int64_t exact = int64_t(1) << 53;
    if (power == 1 || (value <= exact && value >= -exact)) return (double)value / (double)power;
    return (double)(value / power) + (double)(value % power) / (double)power;
}

/// Writes rows [first, last) of a column to ``out(row)``; what is NULL is NaN.
template <class Value, class Out>
inline void each_number(const ArrowArray &column, int64_t shift, int64_t first, int64_t last, Out out, Value value) {
    const void *valid = column.buffers[0];
    for (int64_t row = first; row < last; row++) *out(row) = value(shift + row);
    if (valid && column.null_count)
        for (int64_t row = first; row < last; row++)
            if (!bit(valid, shift + row)) *out(row) = (double)NAN;
}

template <class Out>
inline void numbers(const ArrowArray &column, Kind kind, int64_t power, int64_t shift, int64_t first, int64_t last, Out out) {
    const void *content = column.buffers[1];
    auto plain = [&](auto *values) {
        each_number(column, shift, first, last, out, [=](int64_t place) { return (double)values[place]; });
    };
    switch (kind) {
    case INT8: return plain((const int8_t *)content);
    case INT16: return plain((const int16_t *)content);
    case INT32: return plain((const int32_t *)content);
    case INT64: return plain((const int64_t *)content);
    case UINT8: return plain((const uint8_t *)content);
    case UINT16: return plain((const uint16_t *)content);
    case UINT32: return plain((const uint32_t *)content);
    case UINT64: return plain((const uint64_t *)content);
    case FLOAT: return plain((const float *)content);
    case DOUBLE: return plain((const double *)content);
    case BOOLEAN:
        return each_number(column, shift, first, last, out,
                           [=](int64_t place) { return bit(content, place) ? 1.0 : 0.0; });
    case DECIMAL: // 128 bits, of which the lower 64 hold 18 digits
        return each_number(column, shift, first, last, out,
                           [=](int64_t place) { return decimal(((const int64_t *)content)[2 * place], power); });
    }
}

/// Puts the rows that have a group (0 to n_groups - 1) into ``order`` by it, those of one group as they come, and returns
/// how many they are. ``spare`` is as long as ``order``.
inline int64_t by_group(const int32_t *group, int64_t n_rows, int64_t n_groups, int64_t *order, int64_t *spare) {
    int64_t kept = 0;
    for (int64_t row = 0; row < n_rows; row++)
        if (group[row] >= 0) order[kept++] = row;
    for (int shift = 0; shift < 32 && (n_groups - 1) >> shift; shift += 8) {
        int64_t start[257] = {};
        for (int64_t i = 0; i < kept; i++) start[(group[order[i]] >> shift & 255) + 1]++;
        for (int digit = 0; digit < 256; digit++) start[digit + 1] += start[digit];
        for (int64_t i = 0; i < kept; i++) spare[start[group[order[i]] >> shift & 255]++] = order[i];
        memcpy(order, spare, kept * sizeof *order);
    }
    return kept;
}

} // namespace grouplearn
