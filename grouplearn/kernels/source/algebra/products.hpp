// Matrix products of what fits a core's cache: every number is one sum, in order, however the work is cut into registers.
#pragma once
#include "lanes/lanes.hpp"
#include "lanes/looks.hpp"

namespace grouplearn {

/// c[i][·] = bias[i] + Σⱼ a(i, j)·b[j][·], a(i, j) at a + i·a_row + j·a_column; `vectors` of lanes wide, `depth` terms.
///
/// Without a bias sums begin at 0; with `adds` they are added to what c holds.
template <class Number> struct Product {
    const Number *a;
    int64_t a_row, a_column;
    const Number *b;
    int64_t b_row;
    Number *c;
    int64_t c_row;
    int64_t rows, vectors, depth;
    const Number *bias = nullptr;
    bool adds = false;
};

#if defined(GROUPLEARN_AVX512)
constexpr int PRODUCT_ROWS = 8, PRODUCT_VECTORS = 2;
#else
constexpr int PRODUCT_ROWS = 6, PRODUCT_VECTORS = 1;
#endif
/// How many vectors wide a tile of fewer rows is: enough sums at a time that none waits for the one before.
constexpr int vectors_of(int rows) {
    int wide = PRODUCT_ROWS * PRODUCT_VECTORS / rows;
    return wide < 4 ? wide : 4;
}

// Sums stay in registers only where loops over them are unrolled before the compiler looks for what it can keep there.
template <class V, int rows, int vectors, class Number>
inline void multiply_tile(const Product<Number> &p, int64_t row, int64_t column) {
    constexpr int count = Lanes<V>::count;
    V sum[rows][vectors];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++) sum[i][j] = p.bias ? all(p.bias[row + i]) : zero<V>();
    const Number *a = p.a + row * p.a_row, *b = p.b + column;
    int64_t a_row = p.a_row, a_column = p.a_column, b_row = p.b_row;
#pragma GCC unroll 4
    for (int64_t k = p.depth; k > 0; k--, a += a_column, b += b_row) {
        V right[vectors];
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++) right[j] = load(b + j * count);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            V left = all(a[i * a_row]);
#pragma GCC unroll 8
            for (int j = 0; j < vectors; j++) sum[i][j] = fma(left, right[j], sum[i][j]);
        }
    }
    int64_t c_row = p.c_row;
    Number *c = p.c + row * c_row + column;
    if (p.adds)
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
            for (int j = 0; j < vectors; j++) sum[i][j] = load(c + i * c_row + j * count) + sum[i][j];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++) store(c + i * c_row + j * count, sum[i][j]);
}

/// So many rows of the columns from vector `at` on, in tiles of `vectors` first; `looks`: whether to stop, before each tile.
template <class V, int rows, int vectors, class Number>
inline void multiply_rows(const Product<Number> &p, int64_t row, int64_t at, bool looks) {
    for (; at + vectors <= p.vectors; at += vectors) {
        if (looks && stop(rows * p.depth * vectors)) return;
        multiply_tile<V, rows, vectors>(p, row, at * Lanes<V>::count);
    }
    if constexpr (vectors > 1)
        if (at < p.vectors) multiply_rows<V, rows, vectors / 2>(p, row, at, looks);
}

/// The last rows, fewer than a tile has.
template <class V, int rows, class Number> inline void multiply_rest(const Product<Number> &p, int64_t row, bool looks) {
    if constexpr (rows > 0) {
        if (p.rows - row == rows)
            multiply_rows<V, rows, vectors_of(rows)>(p, row, 0, looks);
        else
            multiply_rest<V, rows - 1>(p, row, looks);
    }
}

template <class V, class Number> __attribute__((noinline)) void multiply(const Product<Number> &p) {
    int64_t row = 0, work = p.rows * p.depth * p.vectors;
    bool looks = work > STRETCH; // of a small product one look takes as long as a few rows of it
    if (!looks && stop(work)) return;
    for (; row + PRODUCT_ROWS <= p.rows; row += PRODUCT_ROWS) multiply_rows<V, PRODUCT_ROWS, PRODUCT_VECTORS>(p, row, 0, looks);
    multiply_rest<V, PRODUCT_ROWS - 1>(p, row, looks);
}

} // namespace grouplearn
