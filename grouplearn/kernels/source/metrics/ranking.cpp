// Areas under curves of the configs of a group.
#include "metrics/ranking.hpp"
#include "lanes/entry.hpp"

namespace grouplearn {
namespace {

/// Rows one after another in some runs: run i has ``length[i]`` of them, and ``scores[i]`` of a config's, configs ``apart[i]``.
struct Runs {
    int64_t count;
    const double *const *scores;
    const int64_t *length, *apart;

    /// ``use(row, scores, n)`` for some rows of a config after others; returns whether all scores are numbers.
    template <class Use> bool each(int64_t config, Use use) const {
        bool numbers = true;
        for (int64_t run = 0, before = 0; run < count; before += length[run++]) {
            const double *own = scores[run] + config * apart[run];
            in_pieces(length[run], 1, [&](int64_t first, int64_t last) {
                use(before + first, own + first, last - first);
                for (int64_t i = first; i < last; i++) numbers &= own[i] == own[i];
            });
        }
        return numbers;
    }
};

/// Σ over pairs of w⁺w⁻·([s⁺ > s⁻] + ½[s⁺ = s⁻]) / (Σw⁺·Σw⁻) of ``weighed`` rows, in the order of ``Measurer::pairs``.
double of_pairs(const Keyed *rows, int64_t n) {
    auto weight = [&](int64_t i) {
        double own;
        memcpy(&own, &rows[i].row, sizeof own);
        return own;
    };
    double up = 0, down = 0, won = 0;
    for (int64_t i = 0; i < n; i++) weight(i) > 0 ? up += weight(i) : down -= weight(i);
    for (int64_t i = 0; i < n; i++) {
        if (weight(i) < 0) continue;
        double less = 0, no_more = 0;
        for (int64_t j = 0; j < n; j++) {
            if (weight(j) > 0) continue;
            if (rows[j].key < rows[i].key) less -= weight(j);
            if (rows[j].key <= rows[i].key) no_more -= weight(j);
        }
        won = __builtin_fma(0.5 * weight(i), less + no_more, won);
    }
    return up > 0 && down > 0 ? won / (up * down) : (double)NAN;
}

} // namespace
} // namespace grouplearn

using namespace grouplearn;

/// Areas (configs) under the ROC curve of rows in ``runs``, or average precisions: which of the n rows are ``positive``, and what
/// they weigh, if they do not weigh alike. NaN where one is not defined, or a score is no number. 1: stopped, 2: without memory.
GROUPLEARN_ENTRY int areas(int64_t runs, const double *const *scores, const int64_t *length, const int64_t *apart, int64_t configs,
                           int64_t n, const uint8_t *positive, const double *weight, int64_t precision, double *out) {
    Arithmetic arithmetic;
    Runs given{runs, scores, length, apart};
    Scratch<uint64_t> keys, other;
    Scratch<Keyed> rows, spare;
    Wins wins;
    bool counts = !weight && !precision;
    if (counts ? !keys.reserve(n) || !other.reserve(n) || !wins.reserve() : !rows.reserve(n) || !spare.reserve(n)) return 2;
    uint64_t positives = 0;
    for (int64_t i = 0; i < n; i++) positives += positive[i];
    for (int64_t config = 0; config < configs && !stopped(); config++) {
        int64_t kept = 0;
        bool numbers = given.each(config, [&](int64_t row, const double *score, int64_t some) {
            uint64_t *key = keys + row;
            const uint8_t *up = positive + row;
            for (int64_t i = 0; counts && i < some; i++) key[i] = ranking_key(score[i], up[i]);
            for (int64_t i = 0; !counts && i < some; i++) {
                double own = weight ? weight[row + i] : 1;
                rows[kept] = weighed(score[i], up[i], own, precision);
                kept += own > 0;
            }
        });
        if (stopped()) return 1;
        double found = counts                         ? wins.area(keys, other, n, positives)
                       : kept <= PAIRS && !precision ? of_pairs(rows, kept)
                                                     : WeighedArea(precision).of(rows, spare, kept);
        out[config] = numbers ? found : (double)NAN;
    }
    return stopped() ? 1 : 0;
}
