// Areas under curves: of scores, which are not negative, of rows of one class among others.
//
// Where rows weigh alike it is counted how often a positive one scores above a negative one, and no row carries anything but its
// key. It has the bits of a score, which is not negative, and below them the label. Rows are counted by the upper bits in which
// their keys differ: between two buckets all pairs are decided, and so they are in a bucket of one label. What is left of the
// others is put side by side and counted by the next bits, so that all work is on what fits a core's cache.
#pragma once
#include <cstring>
#include "lanes/memory.hpp"
#include "rows/sorting.hpp"
#include <cstring>

namespace grouplearn {

/// Rows up to which an area of rows that do not weigh alike counts pairs.
constexpr int64_t PAIRS = 256;

inline uint64_t ranking_key(double score, bool positive) {
    uint64_t bits;
    memcpy(&bits, &score, sizeof bits);
    return bits << 1 | positive;
}

/// Wins of positives over negatives, twice: 2 for a pair that is decided so, 1 for one of equal scores.
class Wins {
  public:
    /// ``keys`` (n) are overwritten, and so is ``other`` (n). Room is to be reserved before.
    uint64_t count(uint64_t *keys, uint64_t *other, int64_t n) {
        if (n <= FEW) return of_pairs(keys, n);
        uint64_t low = ~(uint64_t)0, high = 0;
        for (int64_t i = 0; i < n; i++) low = keys[i] < low ? keys[i] : low, high = keys[i] > high ? keys[i] : high;
        low &= ~(uint64_t)1;
        if (low >> 1 == high >> 1) {
            uint64_t positives = 0;
            for (int64_t i = 0; i < n; i++) positives += keys[i] & 1;
            return positives * ((uint64_t)n - positives);
        }
        return n <= MANY ? by_counting(keys, other, n, low, high) : by_parts(keys, other, n, low, high);
    }
    /// wins / (2 · positives · negatives): NaN without either.
    double area(uint64_t *keys, uint64_t *other, int64_t n, uint64_t positives) {
        if (!positives || positives == (uint64_t)n) return (double)NAN;
        return 0.5 * (double)count(keys, other, n) / ((double)positives * (double)((uint64_t)n - positives));
    }
    bool reserve() { return counts.reserve(4 * MANY) && places.reserve(4 * MANY); }

  private:
    static constexpr int64_t FEW = 16, MANY = 1 << 14, PARTS = 1 << 11;
    Scratch<uint16_t> counts;
    Scratch<uint32_t> places;

    /// Of keys of both labels.
    static uint64_t of_two(uint64_t one, uint64_t two) {
        uint64_t up = (one & 1 ? one : two) >> 1, down = (one & 1 ? two : one) >> 1;
        return (uint64_t)(up > down) + (up >= down);
    }

    static uint64_t of_pairs(const uint64_t *keys, int64_t n) {
        uint64_t wins = 0;
        for (int64_t i = 0; i < n; i++) {
            uint64_t mine = keys[i] >> 1, sum = 0;
            for (int64_t j = 0; j < n; j++) {
                uint64_t other = keys[j] >> 1;
                sum += ((mine > other) + (mine >= other)) & ((keys[j] & 1) - 1);
            }
            wins += sum & -(keys[i] & 1);
        }
        return wins;
    }

    /// By how much keys are shifted so that fewer than ``parts`` are told apart.
    static int shift_for(uint64_t range, int64_t parts) {
        int shift = 1;
        while (range >> shift >= (uint64_t)parts) shift++;
        return shift;
    }

    uint64_t by_counting(uint64_t *keys, uint64_t *other, int64_t n, uint64_t low, uint64_t high) {
        int64_t parts = 32;
        while (parts < n) parts *= 2;
        int shift = shift_for(high - low, parts);
        parts = (int64_t)((high - low) >> shift) + 1;
        memset((void *)(uint16_t *)counts, 0, (size_t)(2 * parts) * sizeof(uint16_t));
        uint16_t *count = counts; // by part and label
        for (int64_t i = 0; i < n; i++) count[(keys[i] - low) >> shift << 1 | (keys[i] & 1)]++;
        uint64_t wins = 0, below = 0;
        uint32_t at = 0, mixed = 0, nowhere = (uint32_t)(n - 1) << 1; // free where it is used
        uint32_t *place = places, *begins = place + parts;
        for (int64_t part = 0; part < parts; part++) {
            uint32_t down = count[2 * part], up = count[2 * part + 1], both = (down != 0) & (up != 0);
            wins += 2 * below * up;
            below += down;
            place[part] = both ? at << 1 | 1 : nowhere;
            begins[mixed] = at;
            mixed += both;
            at += both ? up + down : 0;
        }
        begins[mixed] = at;
        for (int64_t i = 0; i < n; i++) {
            uint32_t &next = place[(keys[i] - low) >> shift], here = next;
            other[here >> 1] = keys[i];
            next = here + ((here & 1) << 1);
        }
        // What is counted further needs the places of the parts: those are looked at first.
        struct Run {
            uint32_t first, size;
        } later[MANY / FEW];
        int64_t larger = 0;
        for (uint32_t part = 0; part < mixed; part++) {
            uint32_t first = begins[part], size = begins[part + 1] - first;
            if (size == 2) wins += of_two(other[first], other[first + 1]);
            else if (size <= FEW) wins += of_pairs(other + first, size);
            else later[larger++] = {first, size};
        }
        for (int64_t each = 0; each < larger; each++) wins += this->count(other + later[each].first, keys + later[each].first, later[each].size);
        return wins;
    }

    uint64_t by_parts(uint64_t *keys, uint64_t *other, int64_t n, uint64_t low, uint64_t high) {
        int64_t parts = 1 << 8;
        while (parts < PARTS && parts * 512 < n) parts *= 2;
        int shift = shift_for(high - low, parts);
        uint64_t wins = 0, below = 0;
        uint32_t counted[2 * PARTS];
        int64_t next[PARTS], start = 0;
        memset(counted, 0, (size_t)(2 * parts) * sizeof *counted);
        bool whole = in_pieces(n, 2, [&](int64_t first, int64_t last) {
            for (int64_t i = first; i < last; i++) counted[(keys[i] - low) >> shift << 1 | (keys[i] & 1)]++;
        });
        for (int64_t part = 0; part < parts; part++) {
            wins += 2 * below * counted[2 * part + 1];
            below += counted[2 * part];
            next[part] = start;
            start += (int64_t)counted[2 * part] + counted[2 * part + 1];
        }
        whole = whole && in_pieces(n, 2, [&](int64_t first, int64_t last) {
            for (int64_t i = first; i < last; i++) other[next[(keys[i] - low) >> shift]++] = keys[i];
        });
        for (int64_t part = 0; part < parts && whole; part++) {
            int64_t size = (int64_t)counted[2 * part] + counted[2 * part + 1], first = next[part] - size;
            if (counted[2 * part] && counted[2 * part + 1]) wins += count(other + first, keys + first, size);
        }
        return wins;
    }
};

/// A row's score and, in place of its number, its weight: below 0 where it is not positive. ``falling``: higher scores come first.
inline Keyed weighed(double score, bool positive, double weight, bool falling) {
    double number = score + 0.0, own = positive ? weight : -weight; // of two zeros one
    Keyed row;
    memcpy(&row.key, &number, sizeof number);
    memcpy(&row.row, &own, sizeof own);
    if (falling) row.key = ~row.key;
    return row;
}

/// Σ over pairs of w⁺w⁻·([s⁺ > s⁻] + ½[s⁺ = s⁻]) / (Σw⁺·Σw⁻) of ``weighed`` rows, or of falling ones the average precision
/// Σ (Rₙ − Rₙ₋₁)·Pₙ. Sums run from score to score, and over rows of one score as they come.
class WeighedArea {
  public:
    explicit WeighedArea(bool precision) : precision(precision) {}

    /// Both (n) are overwritten. NaN where the area is not defined.
    double of(Keyed *rows, Keyed *other, int64_t n) {
        above = below = area = 0;
        add(rows, other, n);
        if (precision) return above > 0 ? area / above : (double)NAN;
        return above > 0 && below > 0 ? area / (above * below) : (double)NAN;
    }

  private:
    static constexpr int64_t FEW = 24;
    bool precision;
    double above = 0, below = 0, area = 0;

    /// Rows whose scores are next in order, by the upper bits in which they differ.
    void add(Keyed *rows, Keyed *other, int64_t n) {
        uint64_t differing = 0;
        for (int64_t i = 1; i < n; i++) differing |= rows[i].key ^ rows[0].key;
        if (!differing) return add_score(rows, n);
        if (n <= FEW) {
            sort(rows, n, other);
            for (int64_t first = 0, next = 0; first < n; first = next) {
                while (next < n && rows[next].key == rows[first].key) next++;
                add_score(rows + first, next - first);
            }
            return;
        }
        int bits = 64 - __builtin_clzll(differing), digits = 2;
        while (digits < 8 && n >> digits > 8) digits++;
        int shift = bits > digits ? bits - digits : 0;
        uint64_t mask = ((uint64_t)1 << (bits - shift)) - 1;
        int64_t start[257] = {};
        bool whole = in_pieces(n, 2, [&](int64_t first, int64_t last) {
            for (int64_t i = first; i < last; i++) start[(rows[i].key >> shift & mask) + 1]++;
        });
        for (uint64_t digit = 0; digit < mask; digit++) start[digit + 1] += start[digit];
        whole = whole && in_pieces(n, 4, [&](int64_t first, int64_t last) {
            for (int64_t i = first; i < last; i++) other[start[rows[i].key >> shift & mask]++] = rows[i];
        });
        if (!whole) return;
        for (uint64_t digit = 0; digit <= mask; digit++) {
            int64_t first = digit ? start[digit - 1] : 0; // each start has become the next one's
            if (start[digit] > first) add(other + first, rows + first, start[digit] - first);
        }
    }

    void add_score(const Keyed *rows, int64_t n) {
        double up = 0, down = 0;
        for (int64_t i = 0; i < n; i++) {
            double own;
            memcpy(&own, &rows[i].row, sizeof own);
            up += own > 0 ? own : 0; // no jump: labels come in no order
            down += own < 0 ? -own : 0;
        }
        above += up;
        if (precision) below += down, area += up * (above / (above + below));
        else area += up * (below + 0.5 * down), below += down;
    }
};

} // namespace grouplearn
