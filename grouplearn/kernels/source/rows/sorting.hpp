// Rows sorted by a whole number.
#pragma once
#include "lanes/entry.hpp"

namespace grouplearn {

struct Keyed {
    uint64_t key;
    int64_t row;
};

/// Sorts rows whose keys differ in the lowest ``bits`` alone, those of one key as they come. ``spare`` is as long as ``rows``.
inline void sort(Keyed *rows, int64_t count, Keyed *spare, int bits = 64) {
    constexpr int64_t FEW = 24;
    if (count <= FEW) {
        for (int64_t i = 1; i < count; i++) {
            Keyed row = rows[i];
            int64_t place = i;
            for (; place && rows[place - 1].key > row.key; place--) rows[place] = rows[place - 1];
            rows[place] = row;
        }
        return;
    }
    if (!bits) return;
    // So many digits as leave few rows of each where keys are hashes, and no more than the processor writes side by side.
    int digits = 2;
    while (digits < 8 && count >> digits > 8) digits++;
    if (digits > bits) digits = bits;
    int shift = bits - digits;
    uint64_t mask = ((uint64_t)1 << digits) - 1;
    int64_t start[257] = {};
    bool whole = in_pieces(count, 1, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; i++) start[(rows[i].key >> shift & mask) + 1]++;
    });
    for (uint64_t digit = 0; digit < mask; digit++) start[digit + 1] += start[digit];
    whole = whole && in_pieces(count, 4, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; i++) spare[start[rows[i].key >> shift & mask]++] = rows[i];
    });
    whole = whole && in_pieces(count, 2, [&](int64_t first, int64_t last) {
        memcpy((void *)(rows + first), spare + first, (last - first) * sizeof *rows);
    });
    if (!whole) return; // rows are rows still, though perhaps some of them twice
    for (uint64_t digit = 0; digit <= mask; digit++) {
        int64_t first = digit ? start[digit - 1] : 0; // each start has become the next one's
        sort(rows + first, start[digit] - first, spare, shift);
    }
}

} // namespace grouplearn
