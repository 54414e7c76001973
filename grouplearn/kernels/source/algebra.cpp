// Products of matrices, linear systems and links of scores: what BLAS, LAPACK and a C library would do with other bits on
// another processor.
#include "elementary.hpp"
#include "entry.hpp"
#include "memory.hpp"
#include <utility>

namespace grouplearn::algebra {
namespace {

constexpr int width = Lanes<D>::count;
/// Rows and registers of columns that are summed side by side; they decide speed, not bits.
constexpr int tall = 4, wide = 2;

template <int rows, int columns>
inline void block(const double *a, int64_t across, const double *packed, int64_t stride, int64_t inner, double *out, int64_t out_stride) {
    D sum[rows][columns];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) sum[i][j] = zero<D>();
    for (int64_t k = 0; k < inner; k++) {
        D right[columns];
        for (int j = 0; j < columns; j++) right[j] = load(packed + k * stride + j * width);
        for (int i = 0; i < rows; i++) {
            D left = all(a[i * across + k]);
            for (int j = 0; j < columns; j++) sum[i][j] = fma(left, right[j], sum[i][j]);
        }
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) store(out + i * out_stride + j * width, sum[i][j]);
}

template <int rows>
inline void band(const double *a, int64_t across, const double *packed, int64_t stride, int64_t inner, double *out) {
    int64_t j = 0;
    for (; j + wide * width <= stride; j += wide * width) block<rows, wide>(a, across, packed + j, stride, inner, out + j, stride);
    for (; j < stride; j += width) block<rows, 1>(a, across, packed + j, stride, inner, out + j, stride);
}

/// out (m, n) = a (m, k) · b (k, n), each number the sum over k in its order.
bool multiply(const double *a, const double *b, int64_t m, int64_t k, int64_t n, double *out) {
    int64_t stride = (n + width - 1) / width * width;
    Scratch<double> packed, rows;
    bool whole = stride == n;
    if ((!whole && !packed.reserve(k * stride)) || !rows.reserve(tall * stride)) return false;
    for (int64_t i = 0; i < k && !whole; i++)
        for (int64_t j = 0; j < stride; j++) packed[i * stride + j] = j < n ? b[i * n + j] : 0;
    const double *right = whole ? b : (const double *)packed;
    int64_t i = 0;
    for (; i + tall <= m; i += tall) {
        band<tall>(a + i * k, k, right, stride, k, rows);
        for (int64_t r = 0; r < tall; r++) memcpy(out + (i + r) * n, rows + r * stride, (size_t)n * sizeof(double));
    }
    for (; i < m; i++) {
        band<1>(a + i * k, k, right, stride, k, rows);
        memcpy(out + i * n, rows, (size_t)n * sizeof(double));
    }
    return true;
}

/// Gauss elimination with partial pivoting of ``a`` (n, n) and ``b`` (n, r), both overwritten; false where a is singular.
bool eliminate(double *a, double *b, int64_t n, int64_t r) {
    for (int64_t k = 0; k < n; k++) {
        int64_t best = k;
        for (int64_t i = k + 1; i < n; i++)
            if (__builtin_fabs(a[i * n + k]) > __builtin_fabs(a[best * n + k])) best = i;
        double pivot = a[best * n + k];
        if (!(__builtin_fabs(pivot) > 0) || !std::isfinite(pivot)) return false;
        for (int64_t j = k; j < n && best != k; j++) std::swap(a[k * n + j], a[best * n + j]);
        for (int64_t j = 0; j < r && best != k; j++) std::swap(b[k * r + j], b[best * r + j]);
        for (int64_t i = k + 1; i < n; i++) {
            double share = a[i * n + k] / pivot;
            if (share == 0) continue;
            for (int64_t j = k + 1; j < n; j++) a[i * n + j] = __builtin_fma(-share, a[k * n + j], a[i * n + j]);
            for (int64_t j = 0; j < r; j++) b[i * r + j] = __builtin_fma(-share, b[k * r + j], b[i * r + j]);
        }
    }
    for (int64_t k = n - 1; k >= 0; k--)
        for (int64_t j = 0; j < r; j++) {
            b[k * r + j] /= a[k * n + k];
            for (int64_t i = 0; i < k; i++) b[i * r + j] = __builtin_fma(-a[i * n + k], b[k * r + j], b[i * r + j]);
        }
    return true;
}

} // namespace

/// Products of ``count`` pairs of matrices, each (m, k) · (k, n); 2 without memory.
GROUPLEARN_ENTRY int products(const double *a, const double *b, int64_t count, int64_t m, int64_t k, int64_t n, double *out) {
    Arithmetic arithmetic;
    for (int64_t each = 0; each < count; each++)
        if (!multiply(a + each * m * k, b + each * k * n, m, k, n, out + each * m * n)) return 2;
    return 0;
}

/// Solutions of ``count`` systems, a (n, n) and b (n, r) overwritten; those of a singular matrix are NaN.
GROUPLEARN_ENTRY void eliminate_each(double *a, double *b, int64_t count, int64_t n, int64_t r) {
    Arithmetic arithmetic;
    for (int64_t each = 0; each < count; each++)
        if (!eliminate(a + each * n * n, b + each * n * r, n, r))
            for (int64_t i = 0; i < n * r; i++) b[each * n * r + i] = (double)NAN;
}

/// 1/(1 + e⁻ᶻ), in place.
GROUPLEARN_ENTRY void sigmoid(double *z, int64_t n) {
    Arithmetic arithmetic;
    for (int64_t i = 0; i < n; i += width) {
        double part[width] = {};
        int64_t here = n - i < width ? n - i : width;
        memcpy(part, z + i, (size_t)here * sizeof(double));
        D score = load(part), e = exponential(minus(size(score))), inverse = all(1.0) / (all(1.0) + e);
        store(part, select(score < zero<D>(), e * inverse, select(score <= score, inverse, score)));
        memcpy(z + i, part, (size_t)here * sizeof(double));
    }
}

/// e^zₖ / Σ e^zⱼ of each row of (n, outputs), in place; rows are the lanes. 2 without memory.
GROUPLEARN_ENTRY int softmax(double *z, int64_t n, int64_t outputs) {
    Arithmetic arithmetic;
    Scratch<double> lanes;
    if (!lanes.reserve(outputs * width)) return 2;
    for (int64_t i = 0; i < n; i += width) {
        int64_t here = n - i < width ? n - i : width;
        for (int64_t k = 0; k < outputs; k++)
            for (int64_t row = 0; row < width; row++) lanes[k * width + row] = z[(i + (row < here ? row : 0)) * outputs + k];
        D most = load(lanes), total = zero<D>();
        for (int64_t k = 1; k < outputs; k++) most = larger(load(lanes + k * width), most);
        for (int64_t k = 0; k < outputs; k++) {
            D e = exponential(load(lanes + k * width) - most);
            total += e;
            store(lanes + k * width, e);
        }
        for (int64_t k = 0; k < outputs; k++) {
            store(lanes + k * width, load(lanes + k * width) / total);
            for (int64_t row = 0; row < here; row++) z[(i + row) * outputs + k] = lanes[k * width + row];
        }
    }
    return 0;
}

} // namespace grouplearn::algebra
