// The range, mean and standard deviation of runs of numbers, by which encoders centre and scale each group.
#include "lanes/entry.hpp"
#include "lanes/looks.hpp"
#include <cmath>

namespace grouplearn {
namespace {

/// Numbers that are summed in lanes; the sums of more are added two and two.
constexpr int64_t leaf_numbers = 512;

/// Σ f(value), of which the order depends on nothing but the count.
template <class Of> double sum_of(const double *values, int64_t count, const Of &f) {
    if (count > leaf_numbers) {
        int64_t half = (count / 2 + leaf_numbers - 1) / leaf_numbers * leaf_numbers;
        return sum_of(values, half, f) + sum_of(values + half, count - half, f);
    }
    constexpr int width = Lanes<D>::count;
    double lane[width] = {};
    for (int64_t i = 0; i < count; i++) lane[i % width] += f(values[i]);
    for (int apart = width / 2; apart; apart /= 2)
        for (int i = 0; i < apart; i++) lane[i] += lane[i + apart];
    return lane[0];
}

} // namespace

/// Of each run of finite numbers, from start[r] to start[r + 1], the least and the largest, the mean and the standard deviation
/// (of the whole, not of a sample); zeros of an empty one. Sums are of differences from the least, over a power of two near the
/// range: small spreads keep digits, large ones do not overflow, and means of few whole numbers are exact.
GROUPLEARN_ENTRY void spreads_of_runs(const double *values, const int64_t *start, int64_t runs, double *low, double *high,
                                      double *mean, double *deviation) {
    Arithmetic arithmetic;
    Looks looks;
    for (int64_t run = 0; run < runs; run++) {
        const double *mine = values + start[run];
        int64_t count = start[run + 1] - start[run];
        low[run] = high[run] = mean[run] = deviation[run] = 0;
        if (looks.stop(1 + count)) return;
        if (!count) continue;
        double least = mine[0], most = mine[0];
        for (int64_t i = 1; i < count; i++) {
            least = mine[i] < least ? mine[i] : least;
            most = mine[i] > most ? mine[i] : most;
        }
        low[run] = least + 0.0; // no -0
        high[run] = most + 0.0;
        mean[run] = low[run];
        if (most == least) continue;
        int exponent;
        frexp(most - least, &exponent);
        exponent = exponent < -1000 ? -1000 : exponent - 1; // neither the power nor its inverse is infinite
        double unit = ldexp(1, exponent), inverse = ldexp(1, -exponent);
        double average = sum_of(mine, count, [=](double value) { return (value - least) * inverse; }) / (double)count;
        auto square = [=](double value) {
            double off = (value - least) * inverse - average;
            return off * off;
        };
        mean[run] = low[run] + unit * average;
        deviation[run] = unit * __builtin_sqrt(sum_of(mine, count, square) / (double)count);
    }
}

} // namespace grouplearn
