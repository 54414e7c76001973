// Products of matrices and links of scores: what BLAS and a C library would do with other bits on another processor.
#include "lanes/entry.hpp"
#include "rows/features.hpp"
#include "lanes/links.hpp"
#include "lanes/memory.hpp"
#include "algebra/products.hpp"

namespace grouplearn::algebra {
namespace {

constexpr int width = Lanes<D>::count;
/// Rows of a product that are made at a time, where columns are filled up to whole lanes.
constexpr int64_t band = 16 * PRODUCT_ROWS;

/// out (m, n) = a (m, k) · b (k, n), each number the sum over k in its order; a begins at ``first``.
bool multiply(const Features &a, int64_t first, const double *b, int64_t m, int64_t k, int64_t n, double *out) {
    int64_t vectors = (n + width - 1) / width, stride = vectors * width;
    Scratch<double> filled, rows, wide;
    if (!filled.reserve(k * stride) || !rows.reserve(band * stride) || !wide.reserve(a.single ? band * k : 0)) return false;
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j < stride; j++) filled[i * stride + j] = j < n ? b[i * n + j] : 0;
    for (int64_t i = 0; i < m; i += band) {
        int64_t here = m - i < band ? m - i : band;
        if (a.single) a.read(first + i * k, here * k, wide);
        const double *left = a.single ? (const double *)wide : a.wide + first + i * k;
        grouplearn::multiply<D>(Product<double>{left, k, 1, filled, stride, rows, stride, here, vectors, k});
        for (int64_t r = 0; r < here; r++) memcpy(out + (i + r) * n, rows + r * stride, (size_t)n * sizeof(double));
    }
    return true;
}

} // namespace

/// Products of ``count`` pairs of matrices, each (m, k) · (k, n); 2 without memory.
GROUPLEARN_ENTRY int products(const float *a_single, const double *a_double, const double *b, int64_t count, int64_t m, int64_t k, int64_t n,
                              double *out) {
    Arithmetic arithmetic;
    Features a{a_single, a_double};
    for (int64_t each = 0; each < count; each++)
        if (!multiply(a, each * m * k, b + each * k * n, m, k, n, out + each * m * n)) return 2;
    return 0;
}

/// 1/(1 + e⁻ᶻ), in place.
GROUPLEARN_ENTRY void sigmoid(double *z, int64_t n) {
    Arithmetic arithmetic;
    by_lanes<D>(z, z, n, 1, [](D a) { return probability(a); });
}

/// e^zₖ / Σ e^zⱼ of each row of (n, outputs), in place. 2 without memory.
GROUPLEARN_ENTRY int softmax(double *z, int64_t n, int64_t outputs) {
    Arithmetic arithmetic;
    Scratch<double> lanes;
    if (!lanes.reserve(outputs * width)) return 2;
    shares_of_rows(z, n, outputs, lanes);
    return 0;
}

} // namespace grouplearn::algebra
