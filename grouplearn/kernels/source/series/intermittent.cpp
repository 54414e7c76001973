// Intermittent demand: sizes and intervals of demands smoothed apart (Croston 1972; Syntetos & Boylan 2005), or sizes and the
// probability of a demand (Teunter, Syntetos & Babai 2011).
//
// A demand is a step that is not 0. At each one size += α·(y − size) and interval += β·(steps since the last one − interval), and
// the forecast is size/interval, times 1 − β/2 with Syntetos and Boylan. With Teunter, Syntetos and Babai in each step
// probability += β·([y ≠ 0] − probability), and the forecast is size·probability. The first demand is the first size, and its step
// the first interval. A step that is missing changes nothing.
#include "series/each.hpp"
#include "series/levenberg_marquardt.hpp"

namespace grouplearn::series {
namespace {

enum Variant : int64_t { CROSTON, SBA, TSB };
enum Note : int8_t { FITTED, NO_DEMAND, TOO_FEW };
constexpr int64_t FEWEST_DEMANDS = 3;
constexpr int WIDTH = Lanes<D>::count, MOST_STEPS = 100;
/// The range of weights that are fitted, and what they are where demands are too few to fit them.
constexpr double LEAST = 0.01, MOST = 0.5, USUAL = 0.1;
enum { ALPHA, BETA };

/// Results of G series, in the order of Python's.
struct Results {
    double *parameters, *final, *sigma2;
    int64_t *n_values, *n_demands;
    uint8_t *converged;
    int8_t *note;
    double *fitted, *mean, *deviation;
};

/// `alpha` and `beta`: NaN where they are fitted.
struct Task {
    AllSeries all;
    int64_t variant, horizon;
    double alpha, beta;
    Results results;
};

/// The recursion with eight pairs of weights side by side.
struct Recursion {
    int64_t variant;
    D alpha, beta, size = zero<D>(), rate = zero<D>(); // rate: the interval, or the probability
    int64_t since = 0, demands = 0;

    bool forecasts() const { return demands > 0; }
    D forecast() const {
        if (variant == TSB) return size * rate;
        D demand = size / rate;
        return variant == SBA ? demand * fnma(all(0.5), beta, all(1.0)) : demand;
    }
    void step(double value, bool is_first) {
        bool is_demand = value != 0;
        since++;
        if (variant == TSB) rate = is_first ? all(is_demand ? 1.0 : 0.0) : fma(beta, all(is_demand ? 1.0 : 0.0) - rate, rate);
        if (!is_demand) return;
        size = demands ? fma(alpha, all(value) - size, size) : all(value);
        if (variant != TSB) rate = demands ? fma(beta, all((double)since) - rate, rate) : all((double)since);
        demands++, since = 0;
    }
};

double first(D a) {
    double lane[WIDTH];
    store(lane, a);
    return lane[0];
}

class Fitter {
  public:
    Fitter(const Task &task, int64_t longest) : task(task), search(longest) {}

    void fit(int64_t g) {
        own.read(task.all, g);
        int64_t demands = 0;
        for (double value : own.values) demands += value == value && value != 0;
        const Results &to = task.results;
        to.note[g] = !demands ? NO_DEMAND : demands < FEWEST_DEMANDS ? TOO_FEW : FITTED;
        to.n_values[g] = own.known, to.n_demands[g] = demands;
        to.converged[g] = to.note[g] != FITTED || search_weights();
        if (to.note[g] != FITTED) set_weights(USUAL, USUAL);
        if (!stopped()) write(g);
    }

  private:
    const Task &task;
    LevenbergMarquardt search;
    Series own;

    void set_weights(double alpha, double beta) {
        search.numbers[ALPHA] = task.alpha == task.alpha ? task.alpha : alpha;
        search.numbers[BETA] = task.beta == task.beta ? task.beta : beta;
    }

    bool search_weights() {
        auto residuals_at = [&](const double *at, double *residuals) -> Points {
            if (stop(own.n * 8)) return {all((double)NAN), zero<D>() < zero<D>()};
            auto write = [=](int64_t t, bool counts, D, D error) { store(residuals + WIDTH * t, counts ? error : zero<D>()); };
            follow(Recursion{task.variant, load(at + WIDTH * ALPHA), load(at + WIDTH * BETA)}, write);
            return {all(1.0), zero<D>() <= zero<D>()};
        };
        bool fits_alpha = task.alpha != task.alpha, fits_beta = task.beta != task.beta, converged = true;
        search.low[ALPHA] = fits_alpha ? LEAST : task.alpha, search.high[ALPHA] = fits_alpha ? MOST : task.alpha;
        search.low[BETA] = fits_beta ? LEAST : task.beta, search.high[BETA] = fits_beta ? MOST : task.beta;
        double least = INFINITY, best[2] = {USUAL, USUAL};
        for (double start : {USUAL, 0.02, 0.4}) {
            set_weights(start, start);
            if (!fits_alpha && !fits_beta) return true;
            bool has_converged = search.solve(2, 2, own.n, residuals_at, MOST_STEPS);
            if (!(search.squares < least)) continue;
            least = search.squares, converged = has_converged;
            std::copy(search.numbers, search.numbers + 2, best);
        }
        set_weights(best[ALPHA], best[BETA]);
        return converged;
    }

    /// Go through the steps; `each(t, counts, forecast, error)`, which counts where there is a forecast and a value.
    template <class Each> Recursion follow(Recursion with, const Each &each) const {
        bool is_first = true;
        for (int64_t t = 0; t < own.n; t++) {
            bool is_known = own.values[t] == own.values[t];
            D forecast = with.forecast();
            each(t, is_known && with.forecasts(), forecast, all(own.values[t]) - forecast);
            if (is_known) with.step(own.values[t], is_first), is_first = false;
        }
        return with;
    }

    void write(int64_t g) {
        const Results &to = task.results;
        double *fitted = to.fitted + task.all.start[g], squares = 0, count = 0, nothing = (double)NAN;
        double alpha = search.numbers[ALPHA], beta = search.numbers[BETA];
        int64_t before_first = 0; // steps without a forecast
        Recursion with = follow(Recursion{task.variant, all(alpha), all(beta)}, [&](int64_t t, bool counts, D forecast, D error) {
            fitted[t] = own.in_unit(first(forecast));
            if (counts) squares = __builtin_fma(first(error), first(error), squares), count++;
            else if (!count && own.values[t] == own.values[t]) before_first = t + 1;
        });
        bool has_demand = to.note[g] != NO_DEMAND;
        std::fill(fitted, fitted + (has_demand ? before_first : own.n), has_demand ? nothing : 0.0);
        to.parameters[2 * g] = has_demand ? alpha : nothing, to.parameters[2 * g + 1] = has_demand ? beta : nothing;
        to.final[3 * g] = has_demand ? own.in_unit(first(with.size)) : nothing;
        to.final[3 * g + 1] = has_demand ? first(with.rate) : nothing, to.final[3 * g + 2] = (double)with.since;
        double variance = count ? squares / count : 0;
        to.sigma2[g] = ldexp(variance, 2 * own.exponent);
        double mean = has_demand ? own.in_unit(first(with.forecast())) : 0, deviation = own.in_unit(__builtin_sqrt(variance));
        std::fill(to.mean + task.horizon * g, to.mean + task.horizon * (g + 1), mean);
        std::fill(to.deviation + task.horizon * g, to.deviation + task.horizon * (g + 1), deviation);
    }
};

} // namespace
} // namespace grouplearn::series

using namespace grouplearn;
using namespace grouplearn::series;

/// Fits intermittent demand to each series, with weights that are given or, where they are NaN, have the least squares of one-step
/// errors.
GROUPLEARN_ENTRY void fit_intermittent(const AllSeries *all, int64_t variant, int64_t horizon, double alpha, double beta,
                                       int64_t threads, const Results *results) {
    Arithmetic arithmetic;
    Task task{*all, variant, horizon, alpha, beta, *results};
    fit_each<Fitter>(task, threads);
}
