// Matrix products of what fits a core's cache: every number is one sum, in order, however the work is cut into registers.
#pragma once
#include "lanes.hpp"
#include "looks.hpp"

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

template <class V, int rows, int vectors, class Number>
inline void multiply_tile(const Product<Number> &p, int64_t row, int64_t column) {
    V sum[rows][vectors];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < vectors; j++) sum[i][j] = p.bias ? all(p.bias[row + i]) : zero<V>();
    const Number *a = p.a + row * p.a_row, *b = p.b + column;
    for (int64_t k = 0; k < p.depth; k++, a += p.a_column, b += p.b_row) {
        V right[vectors];
        for (int j = 0; j < vectors; j++) right[j] = load(b + j * Lanes<V>::count);
        for (int i = 0; i < rows; i++) {
            V left = all(a[i * p.a_row]);
            for (int j = 0; j < vectors; j++) sum[i][j] = fma(left, right[j], sum[i][j]);
        }
    }
    Number *c = p.c + row * p.c_row + column;
    for (int i = 0; i < rows; i++, c += p.c_row)
        for (int j = 0; j < vectors; j++) {
            Number *at = c + j * Lanes<V>::count;
            store(at, p.adds ? load(at) + sum[i][j] : sum[i][j]);
        }
}

/// The last rows, fewer than a tile has.
template <class V, int rows, int vectors, class Number>
inline void multiply_rest(const Product<Number> &p, int64_t row, int64_t column) {
    if constexpr (rows > 0) {
        if (p.rows - row == rows)
            multiply_tile<V, rows, vectors>(p, row, column);
        else
            multiply_rest<V, rows - 1, vectors>(p, row, column);
    }
}

template <class V, int vectors, class Number> inline void multiply_columns(const Product<Number> &p, int64_t column) {
    int64_t row = 0;
    for (; row + PRODUCT_ROWS <= p.rows; row += PRODUCT_ROWS) multiply_tile<V, PRODUCT_ROWS, vectors>(p, row, column);
    multiply_rest<V, PRODUCT_ROWS - 1, vectors>(p, row, column);
}

template <class V, class Number> __attribute__((noinline)) void multiply(const Product<Number> &p) {
    int64_t at = 0;
    for (; at + PRODUCT_VECTORS <= p.vectors; at += PRODUCT_VECTORS) {
        if (stop(p.rows * p.depth * PRODUCT_VECTORS)) return;
        multiply_columns<V, PRODUCT_VECTORS>(p, at * Lanes<V>::count);
    }
    if constexpr (PRODUCT_VECTORS > 1)
        for (; at < p.vectors; at++) multiply_columns<V, 1>(p, at * Lanes<V>::count);
}

} // namespace grouplearn
