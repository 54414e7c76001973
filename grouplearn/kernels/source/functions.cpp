// exp, log(1 + u) and log of arrays, as the other kernels compute them.
#include "elementary.hpp"
#include "entry.hpp"

namespace grouplearn {
namespace {

template <class V, class Number, class Function> void by_lanes(const Number *x, Number *out, int64_t n, Function function) {
    constexpr int width = Lanes<V>::count;
    for (int64_t i = 0; i < n; i += width) {
        Number part[width] = {};
        int64_t here = n - i < width ? n - i : width;
        memcpy(part, x + i, here * sizeof(Number));
        store(part, function(load(part)));
        memcpy(out + i, part, here * sizeof(Number));
    }
}

} // namespace
} // namespace grouplearn

using namespace grouplearn;

GROUPLEARN_ENTRY void exponential_single(const float *x, float *out, int64_t n) {
    Arithmetic arithmetic;
    by_lanes<F>(x, out, n, [](F a) { return exponential(a); });
}
GROUPLEARN_ENTRY void exponential_double(const double *x, double *out, int64_t n) {
    Arithmetic arithmetic;
    by_lanes<D>(x, out, n, [](D a) { return exponential(a); });
}
GROUPLEARN_ENTRY void log_of_one_plus_single(const float *x, float *out, int64_t n) {
    Arithmetic arithmetic;
    by_lanes<F>(x, out, n, [](F a) { return log_of_one_plus(a); });
}
GROUPLEARN_ENTRY void log_of_one_plus_double(const double *x, double *out, int64_t n) {
    Arithmetic arithmetic;
    by_lanes<D>(x, out, n, [](D a) { return log_of_one_plus(a); });
}
GROUPLEARN_ENTRY void logarithm_double(const double *x, double *out, int64_t n) {
    Arithmetic arithmetic;
    by_lanes<D>(x, out, n, [](D a) { return logarithm(a); });
}
