// exp, log(1 + u) and log of arrays, as the other kernels compute them, and which rows are finite.
#include "lanes/entry.hpp"
#include "lanes/links.hpp"

using namespace grouplearn;

GROUPLEARN_ENTRY void exponential_single(const float *x, float *out, int64_t n) {
    Arithmetic arithmetic;
    by_lanes<F>(x, out, n, 1, [](F a) { return exponential(a); });
}
GROUPLEARN_ENTRY void exponential_double(const double *x, double *out, int64_t n) {
    Arithmetic arithmetic;
    by_lanes<D>(x, out, n, 1, [](D a) { return exponential(a); });
}
GROUPLEARN_ENTRY void log_of_one_plus_single(const float *x, float *out, int64_t n) {
    Arithmetic arithmetic;
    by_lanes<F>(x, out, n, 1, [](F a) { return log_of_one_plus(a); });
}
GROUPLEARN_ENTRY void log_of_one_plus_double(const double *x, double *out, int64_t n) {
    Arithmetic arithmetic;
    by_lanes<D>(x, out, n, 1, [](D a) { return log_of_one_plus(a); });
}
GROUPLEARN_ENTRY void logarithm_double(const double *x, double *out, int64_t n) {
    Arithmetic arithmetic;
    by_lanes<D>(x, out, n, 1, [](D a) { return logarithm(a); });
}

namespace {

template <class V> void find_finite_rows(const typename Lanes<V>::Number *x, int64_t n, int64_t d, uint8_t *finite) {
    constexpr int count = Lanes<V>::count;
    int64_t lanes = d / count * count;
    in_pieces(n, d / 8 + 1, [=](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; i++) {
            // What is finite less itself is 0, and anything else no number.
            const typename Lanes<V>::Number *own = x + i * d;
            typename Lanes<V>::Number nothing = 0;
            V none = zero<V>();
            for (int64_t j = 0; j < lanes; j += count) none += load(own + j) - load(own + j);
            for (int64_t j = lanes; j < d; j++) nothing += own[j] - own[j];
            finite[i] = nothing == 0 && !any(!(none <= zero<V>()));
        }
    });
}

} // namespace

/// Whether every number of each row of x (n, d), in single or in double precision, is finite.
GROUPLEARN_ENTRY void finite_rows(const float *x_single, const double *x_double, int64_t n, int64_t d, uint8_t *finite) {
    Arithmetic arithmetic;
    if (x_single) find_finite_rows<F>(x_single, n, d, finite);
    else find_finite_rows<D>(x_double, n, d, finite);
}
