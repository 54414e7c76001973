// exp, log(1 + u) and log of arrays, as the other kernels compute them.
#include "entry.hpp"
#include "links.hpp"

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
