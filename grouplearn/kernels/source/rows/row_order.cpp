// Where rows belong that come in any order: by group, and in a group by a hash.
#include "lanes/memory.hpp"
#include "rows/sorting.hpp"

using namespace grouplearn;

/// Puts rows, numbered from ``first``, into the places of their groups: ``next`` is the next free one of each group.
GROUPLEARN_ENTRY void rows_by_group(const int32_t *group, const uint64_t *hash, int64_t n_rows, int64_t first, int64_t *next,
                                    Keyed *out) {
    in_pieces(n_rows, 4, [=](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; row++) out[next[group[row]]++] = {hash[row], first + row};
    });
}

/// Sorts the rows of each group, from ``start`` (n_groups + 1,) on, by their hashes. ``place`` is where each row has come to,
/// ``tied`` tells by place which rows have the hash of the row before in their group. 2 without memory.
GROUPLEARN_ENTRY int sort_groups(Keyed *rows, const int64_t *start, int64_t n_groups, int64_t *place, uint8_t *tied) {
    Scratch<Keyed> spare;
    for (int64_t group = 0; group < n_groups; group++) {
        Keyed *own = rows + start[group];
        int64_t count = start[group + 1] - start[group];
        if (!spare.reserve(count)) return 2;
        sort(own, count, spare);
        bool whole = in_pieces(count, 4, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; i++) {
                place[own[i].row] = start[group] + i;
                tied[start[group] + i] = i && own[i].key == own[i - 1].key;
            }
        });
        if (!whole) return 1;
    }
    return 0;
}
