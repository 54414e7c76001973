// The least of a parabola plus l1·‖w‖₁ over many parameters, by coordinate descent on the few that may move.
//
// The parabola has a diagonal and some products of vectors, y·y' and v·v', beside it (BFGS). Parameters that are 0, and whose slope
// their penalty holds there, stay where they are (Friedman, Hastie & Tibshirani 2010, section 2.6): if a later step lets one go, its
// slope says so then. The numbers of those that may move lie side by side, so that each is a few products of lanes.
#pragma once
#include "lanes/lanes.hpp"
#include "lanes/looks.hpp"
#include "lanes/memory.hpp"
#include <vector>

namespace grouplearn::generalised_linear {
namespace {

/// What the parabola is made of, by parameter: where it begins, its slope there, a penalty, the diagonal beside the products and the
/// whole second derivative; of each of ``slots`` vectors y and v its own, (slots, size), and what their products count.
struct Parabola {
    int64_t size;
    int slots;
    const double *point, *slope, *penalty, *beside, *whole, *y, *v, *of_y, *of_v;
};

class WorkingSet {
    static constexpr int width = Lanes<D>::count;

  public:
    /// ``reserve`` says whether there is memory.
    explicit WorkingSet(const Parabola &about) : about(about), padded((2 * about.slots + width - 1) / width * width) {
        for (int64_t k = 0; k < about.size; k++)
            if (about.penalty[k] <= 0 || about.point[k] != 0 || !(__builtin_fabs(about.slope[k]) <= about.penalty[k])) open.push_back(k);
    }

    bool reserve() {
        if (!numbers.reserve((int64_t)open.size() * padded) || !drawn.reserve(padded) || !counts.reserve(padded)) return false;
        drawn.clear(padded);
        counts.clear(padded);
        for (int slot = 0; slot < about.slots; slot++) counts[slot] = about.of_y[slot], counts[about.slots + slot] = -about.of_v[slot];
        numbers.clear((int64_t)open.size() * padded);
        for (int slot = 0; slot < about.slots; slot++)
            for (size_t i = 0; i < open.size() && !stop(1); i++) {
                numbers[(int64_t)i * padded + slot] = about.y[slot * about.size + open[i]];
                numbers[(int64_t)i * padded + about.slots + slot] = about.v[slot * about.size + open[i]];
            }
        return true;
    }

    /// Go round the parameters that may move until a round gains no more than a share of all; ``step`` is changed in place.
    void descend(int rounds, double share, double *step) {
        double total = 0, gain = INFINITY;
        Looks looks;
        for (int round = 0; round < rounds && gain > share * total; round++) {
            gain = 0;
            for (size_t i = 0; i < open.size(); i++) {
                if (looks.stop(padded)) return;
                gain += move((int64_t)i, step[open[i]]);
            }
            total += gain;
        }
    }

    /// Second derivatives times the way from the point to ``step``, where it is not 0.
    void bend(const double *step, double *moved) const {
        for (size_t i = 0; i < open.size(); i++) moved[open[i]] = bent((int64_t)i, step[open[i]]);
    }

  private:
    const Parabola &about;
    int64_t padded;
    std::vector<int64_t> open;
    Scratch<double> numbers, drawn, counts; // (open, y and v); what each product makes of the way so far; what it counts

    double bent(int64_t i, double now) const {
        D sum = zero<D>();
        for (int64_t at = 0; at < padded; at += width) sum = fma(load(numbers + i * padded + at), load(drawn + at), sum);
        return __builtin_fma(about.beside[open[i]], now - about.point[open[i]], grouplearn::sum(sum));
    }

    /// One parameter to its least; returns what that gains.
    double move(int64_t i, double &now) {
        int64_t k = open[i];
        double bend = about.whole[k], free = now - (about.slope[k] + bent(i, now)) / bend, threshold = about.penalty[k] / bend;
        double next = free > threshold ? free - threshold : free < -threshold ? free + threshold : free == free ? 0 : free;
        double change = next - now;
        if (change == 0) return 0;
        now = next;
        D by = all(change);
        for (int64_t at = 0; at < padded; at += width)
            store(drawn + at, fma(load(numbers + i * padded + at) * load(counts + at), by, load(drawn + at)));
        return 0.5 * bend * change * change;
    }
};

} // namespace
} // namespace grouplearn::generalised_linear
