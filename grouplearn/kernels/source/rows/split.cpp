// Which rows are held out: the order of a draw in each group.
#include "lanes/memory.hpp"
#include "rows/sorting.hpp"

namespace grouplearn {
namespace {

/// The output of the SplitMix64 generator (Steele, Lea and Flood 2014) after so many steps from a seed.
inline uint64_t drawn(uint64_t seed, uint64_t steps) {
    uint64_t value = seed + steps * 0x9E3779B97F4A7C15u;
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9u;
    value = (value ^ value >> 27) * 0x94D049BB133111EBu;
    return value ^ value >> 31;
}

/// Calls ``use(rows, count, spare)`` with rows sorted by ``values``, at most about ``together`` at a time. False: no memory, or
/// stopped.
template <class Use>
bool in_order(const uint64_t *values, int64_t n_rows, int64_t together, Scratch<Keyed> &rows, Scratch<Keyed> &spare, Use use) {
    int bits = 0;
    while (n_rows > together && n_rows >> bits > together / 2) bits++;
    for (uint64_t part = 0; part < (uint64_t)1 << bits; part++) {
        auto is_here = [=](uint64_t value) { return !bits || value >> (64 - bits) == part; };
        int64_t count = n_rows, at = 0;
        if (bits) {
            count = 0;
            for (int64_t row = 0; row < n_rows; row++) count += is_here(values[row]);
            if (stop(n_rows)) return false;
        }
        if (!rows.reserve(count) || !spare.reserve(count)) return false;
        for (int64_t row = 0; row < n_rows; row++)
            if (is_here(values[row])) rows[at++] = {values[row], row};
        if (stop(count)) return false;
        sort(rows, count, spare, 64 - bits);
        if (stopped()) return false;
        use((Keyed *)rows, count, (Keyed *)spare);
    }
    return true;
}

} // namespace
} // namespace grouplearn

using namespace grouplearn;

/// Marks the rows of each group, from ``start`` (n_groups + 1,) on, in the order of a draw: the first ``value`` (n_groups,) of
/// a group, or, with ``folds``, each with its place plus ``value``, modulo folds. Rows of one rounded hash count 0, 1, 2, ...
/// by their exact hash, and each takes that step of a generator that the hash seeds; rows without a label come last. The draw
/// is left where the exact hash was. 2 without memory.
GROUPLEARN_ENTRY int draw_split(const int64_t *start, int64_t n_groups, const uint64_t *rounded, uint64_t *exact,
                                const uint8_t *labelled, const int64_t *value, int64_t folds, int64_t together,
                                int16_t *split) {
    Scratch<Keyed> rows, spare;
    for (int64_t group = 0; group < n_groups; group++) {
        int64_t first = start[group], n_rows = start[group + 1] - first, before = 0;
        bool done = in_order(rounded + first, n_rows, together, rows, spare, [&](Keyed *own, int64_t count, Keyed *free) {
            Looks looks;
            for (int64_t low = 0, high; low < count && !looks.stop(16); low = high) {
                uint64_t seed = own[low].key;
                for (high = low + 1; high < count && own[high].key == seed; high++) {}
                for (int64_t i = low; high - low > 1 && i < high; i++) own[i].key = exact[first + own[i].row];
                sort(own + low, high - low, free);
                for (int64_t i = low; i < high; i++) {
                    int64_t row = first + own[i].row;
                    exact[row] = labelled[row] ? drawn(seed, (uint64_t)(i - low) + 1) : ~(uint64_t)0;
                }
            }
        });
        done = done && in_order(exact + first, n_rows, together, rows, spare, [&](Keyed *own, int64_t count, Keyed *) {
            for (int64_t i = 0; i < count; i++) {
                int64_t rank = before + i;
                split[first + own[i].row] =
                    folds ? (int16_t)((rank + value[group]) % folds) : (int16_t)(rank < value[group]);
            }
            before += count;
        });
        if (!done) return stopped() ? 1 : 2;
    }
    return 0;
}
