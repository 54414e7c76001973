// Linear algebra with one matrix per lane: symmetric ones by their lower triangles, row after row.
#pragma once
#include "lanes/lanes.hpp"
#include "lanes/looks.hpp"

namespace grouplearn {

inline int64_t triangle(int64_t row) { return row * (row + 1) / 2; }

/// Factor positive definite ``matrix`` into L·L', in place, its diagonal replaced by 1/Lᵢᵢ. A pivot that rounding has made
/// small or negative counts as ``least`` of its diagonal. Returns the smallest share of a diagonal that was left of it.
template <class V> V factor(typename Lanes<V>::Number *matrix, int64_t size, V least) {
    constexpr int width = Lanes<V>::count;
    V smallest = all<V>(1);
    Looks looks;
    for (int64_t row = 0; row < size; row++) {
        if (looks.stop(row * row / 2)) return smallest;
        auto *mine = matrix + triangle(row) * width;
        for (int64_t first = 0; first < row; first += 4) {
            int64_t count = row - first < 4 ? row - first : 4;
            const typename Lanes<V>::Number *other[4];
            V value[4];
            for (int64_t c = 0; c < count; c++) {
                other[c] = matrix + triangle(first + c) * width;
                value[c] = load(mine + (first + c) * width);
            }
            if (count == 4) {
                for (int64_t k = 0; k < first; k++) {
                    V left = load(mine + k * width);
                    for (int c = 0; c < 4; c++) value[c] = fnma(left, load(other[c] + k * width), value[c]);
                }
            } else {
                for (int64_t k = 0; k < first; k++)
                    for (int64_t c = 0; c < count; c++)
                        value[c] = fnma(load(mine + k * width), load(other[c] + k * width), value[c]);
            }
            for (int64_t c = 0; c < count; c++) {
                for (int64_t k = 0; k < c; k++) value[c] = fnma(value[k], load(other[c] + (first + k) * width), value[c]);
                value[c] *= load(other[c] + (first + c) * width);
                store(mine + (first + c) * width, value[c]);
            }
        }
        V whole = load(mine + row * width), pivot[4] = {whole, zero<V>(), zero<V>(), zero<V>()};
        for (int64_t k = 0; k < row; k++) {
            V left = load(mine + k * width);
            pivot[k & 3] = fnma(left, left, pivot[k & 3]);
        }
        V rest = (pivot[0] + pivot[1]) + (pivot[2] + pivot[3]);
        smallest = smaller(rest / whole, smallest);
        rest = larger(rest, whole * least);
        store(mine + row * width, all<V>(1) / root(rest));
    }
    return smallest;
}

/// Overwrite ``right`` by the solution of L·L'x = right, with the result of ``factor``.
template <class V> void solve(const typename Lanes<V>::Number *matrix, int64_t size, typename Lanes<V>::Number *right) {
    constexpr int width = Lanes<V>::count;
    for (int64_t k = 0; k < size; k++) {
        V known = load(right + k * width) * load(matrix + (triangle(k) + k) * width);
        store(right + k * width, known);
        for (int64_t row = k + 1; row < size; row++)
            store(right + row * width, fnma(load(matrix + (triangle(row) + k) * width), known, load(right + row * width)));
    }
    for (int64_t k = size - 1; k >= 0; k--) {
        const auto *mine = matrix + triangle(k) * width;
        V known = load(right + k * width) * load(mine + k * width);
        store(right + k * width, known);
        for (int64_t row = 0; row < k; row++)
            store(right + row * width, fnma(load(mine + row * width), known, load(right + row * width)));
    }
}

} // namespace grouplearn
