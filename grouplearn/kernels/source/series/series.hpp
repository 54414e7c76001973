// One series as the kernels of this room take it: scaled, and without gaps where a method needs all steps.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace grouplearn::series {

/// The series of a call, one after another: the steps of series g from start[g] to start[g + 1], NaN where they are missing.
struct AllSeries {
    const double *y;
    const int64_t *start;
    int64_t count, season;

    int64_t length(int64_t g) const { return start[g + 1] - start[g]; }
    int64_t longest() const {
        int64_t most = 0;
        for (int64_t g = 0; g < count; g++) most = std::max(most, length(g));
        return most;
    }
};

/// The steps of a series over a power of two, so that the largest is below 1: what is made of them is the same for every unit.
class Series {
  public:
    void read(const AllSeries &all, int64_t g) {
        const double *own = all.y + all.start[g];
        n = all.length(g), known = 0;
        double low = INFINITY, high = -INFINITY;
        for (int64_t t = 0; t < n; t++) {
            if (!(own[t] == own[t])) continue;
            known++, low = std::min(low, own[t]), high = std::max(high, own[t]);
        }
        is_positive = low > 0, is_constant = low == high;
        exponent = 0;
        if (known) frexp(std::max(fabs(low), fabs(high)), &exponent);
        exponent = std::max(exponent, -1000); // the inverse is finite
        values.resize((size_t)n), filled.resize((size_t)n);
        for (int64_t t = 0; t < n; t++) values[t] = ldexp(own[t], -exponent);
        fill();
    }

    double mean() const {
        if (is_constant || !known) return known ? filled[0] : (double)NAN;
        double sum = 0;
        for (double value : values)
            if (value == value) sum += value;
        return sum / (double)known;
    }

    /// A number in the unit of the series, and one of that unit over the scale.
    double in_unit(double number) const { return ldexp(number, exponent); }
    double to_scale(double number) const { return ldexp(number, -exponent); }

    int64_t n = 0, known = 0;
    int exponent = 0;
    bool is_positive = false, is_constant = false;
    std::vector<double> values, filled; // filled: on a straight line over each gap

  private:
    void fill() {
        for (int64_t t = 0, last = 0; t < n; t++) {
            filled[t] = values[t];
            if (!(values[t] == values[t])) continue;
            for (int64_t gap = last + 1; gap < t; gap++)
                filled[gap] = values[last] + (values[t] - values[last]) * ((double)(gap - last) / (double)(t - last));
            last = t;
        }
    }
};

} // namespace grouplearn::series
