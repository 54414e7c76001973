// Random numbers that are functions of where they are used: no state, so that order, packs and workers do not matter.
#pragma once
#include "lanes/looks.hpp"

namespace grouplearn {

/// A bijection of 64-bit words that mixes them well (SplitMix64: Steele, Lea & Flood 2014).
inline uint64_t mixed(uint64_t word) {
    word += 0x9e3779b97f4a7c15ULL;
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ULL;
    word = (word ^ (word >> 27)) * 0x94d049bb133111ebULL;
    return word ^ (word >> 31);
}

/// What random numbers are for: streams of different purposes have nothing to do with each other.
enum Purpose : uint64_t { SHUFFLE = 1, DROPOUT = 2, START = 3, SAMPLE = 4, SEEDS = 5, CORESET = 6, FACILITIES = 7 };

/// The key of the stream of a purpose at (seed, first, second).
inline uint64_t stream(Purpose purpose, uint64_t seed, uint64_t first, uint64_t second) {
    return mixed(mixed(mixed(mixed(seed) ^ purpose) ^ first) ^ second);
}

/// The number of a unit of a network in [0, 1), a multiple of 2⁻²⁴, for the two halves of a row's key (lowbias32: Wellons).
inline float uniform(uint32_t low, uint32_t high, uint32_t unit) {
    uint32_t word = low + unit * 0x9e3779b9u;
    word = (word ^ (word >> 16)) * 0x7feb352du;
    word = (word ^ (word >> 15) ^ high) * 0x846ca68bu;
    word ^= word >> 16;
    return (float)(int32_t)(word >> 8) * 0x1p-24f;
}

/// Shuffle 0 … n − 1 (Fisher & Yates) by the numbers of a stream.
inline void shuffle(uint64_t key, int64_t n, int64_t *order) {
    for (int64_t i = 0; i < n; i++) order[i] = i;
    Looks looks;
    for (int64_t i = n - 1; i > 0 && !looks.stop(4); i--) {
        int64_t j = (int64_t)(((unsigned __int128)mixed(key + (uint64_t)i) * (uint64_t)(i + 1)) >> 64);
        int64_t kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
}

} // namespace grouplearn
