// Rows of features as they lie, in single or in double precision.
//
// A number of single precision is one of double precision, too: it is widened where it is read, before anything is computed
// with it. So whatever is made of the rows has the same bits as of the same numbers in double precision.
#pragma once
#include <cstdint>
#include <cstring>

namespace grouplearn {

inline void widen(const float *__restrict from, int64_t count, double *__restrict to) {
    for (int64_t i = 0; i < count; i++) to[i] = (double)from[i];
}

struct Features {
    const float *single; // one of the two
    const double *wide;

    double operator[](int64_t place) const { return single ? (double)single[place] : wide[place]; }
    /// Copies numbers from ``place`` on.
    void read(int64_t place, int64_t count, double *to) const {
        if (single) widen(single + place, count, to);
        else memcpy(to, wide + place, (size_t)count * sizeof(double));
    }
};

} // namespace grouplearn
