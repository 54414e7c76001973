// The theta method for many series: the standard one (Assimakopoulos & Nikolopoulos 2000; with drift, Hyndman & Billah 2003) and
// the optimised one (Fiorucci, Pellegrini, Louzada, Petropoulos & Koehler 2016).
//
// With the line A + B·t through the series without seasons, and w = 1 − 1/θ, a step's forecast is
//     level + w·(A·(1 − α)^t + B·(1 − (1 − α)^(t + 1))/α),   level = α·y + (1 − α)·level.
// The standard method smooths with w = 0, and adds half the slope of the line: B/2·(h − 1 + (1 − (1 − α)^n)/α) after n steps.
#include "series/decomposition.hpp"
#include "series/each.hpp"
#include "series/levenberg_marquardt.hpp"

namespace grouplearn::series {
namespace {

enum Note : int8_t { FITTED, CONSTANT, TOO_FEW };
constexpr int64_t FEWEST_VALUES = 4;
constexpr int WIDTH = Lanes<D>::count, MOST_STEPS = 100;

/// Results of G series with seasons of m steps, in the order of Python's.
struct Results {
    double *parameters, *initial, *final, *seasons;
    uint8_t *is_multiplicative;
    double *sigma2;
    int64_t *n_values;
    uint8_t *converged;
    int8_t *note;
    double *fitted, *level, *trend, *season, *mean, *deviation;
};

struct Task {
    AllSeries all;
    bool is_optimised;
    int64_t horizon;
    Results results;
};

/// Where the numbers of a search stand.
enum { LEVEL, ALPHA, BEND };

/// The recursion with eight sets of numbers side by side.
struct Recursion {
    D level, alpha, bend;
    double intercept, slope;
    D power = all(1.0); // (1 − α)^t

    D forecast() const {
        D next = power * (all(1.0) - alpha);
        return fma(bend, fma(all(intercept), power, all(slope) * ((all(1.0) - next) / alpha)), level);
    }
    void step(D value) {
        level = fma(alpha, value - level, level);
        power = power * (all(1.0) - alpha);
    }
};

double first(D a) {
    double lane[WIDTH];
    store(lane, a);
    return lane[0];
}

class Fitter {
  public:
    Fitter(const Task &task, int64_t longest) : task(task), m(task.all.season), search(longest) {}

    void fit(int64_t g) {
        own.read(task.all, g);
        set_seasons();
        Line line = straight_line(adjusted.data(), own.n);
        intercept = line.intercept, slope = line.slope;
        bool is_fitted = own.known >= FEWEST_VALUES && !own.is_constant, converged = true;
        if (is_fitted) converged = search_numbers();
        if (stopped()) return;
        const Results &to = task.results;
        to.note[g] = is_fitted ? FITTED : own.known < FEWEST_VALUES ? TOO_FEW : CONSTANT;
        to.n_values[g] = own.known, to.converged[g] = converged;
        is_fitted ? write(g) : write_mean(g);
    }

  private:
    const Task &task;
    int64_t m;
    LevenbergMarquardt search;
    Series own;
    std::vector<double> figure, adjusted; // the seasons, if any, and the series without them
    bool is_multiplicative = false;
    double intercept = 0, slope = 0;

    /// Take out seasons where the autocorrelation at their length is more than chance at 90 %.
    void set_seasons() {
        figure.clear(), adjusted = own.filled, is_multiplicative = false;
        if (m < 2 || own.n <= 2 * m || own.is_constant || !has_seasons()) return;
        figure.resize((size_t)m), is_multiplicative = own.is_positive;
        seasonal_figure(own.filled.data(), own.n, m, is_multiplicative, figure.data());
        if (is_multiplicative && *std::min_element(figure.begin(), figure.end()) < 0.01) {
            is_multiplicative = false;
            seasonal_figure(own.filled.data(), own.n, m, false, figure.data());
        }
        for (int64_t t = 0; t < own.n; t++)
            adjusted[t] = is_multiplicative ? adjusted[t] / season(t) : adjusted[t] - season(t);
    }

    bool has_seasons() const {
        const std::vector<double> &y = own.filled;
        double mean = 0, total = 0, squares = 0, last = 0;
        for (double value : y) mean += value;
        mean /= (double)own.n;
        for (double value : y) total += (value - mean) * (value - mean);
        for (int64_t lag = 1; lag <= m; lag++) {
            double sum = 0;
            for (int64_t t = lag; t < own.n; t++) sum += (y[t] - mean) * (y[t - lag] - mean);
            last = sum / total;
            if (lag < m) squares += last * last;
        }
        constexpr double quantile = 1.6448536269514722; // of the normal distribution, 0.95
        return fabs(last) > quantile * __builtin_sqrt((1 + 2 * squares) / (double)own.n);
    }

    double season(int64_t t) const { return figure[t % m]; }
    /// A number of the series without seasons, as one of the series.
    double with_season(double value, int64_t t) const {
        if (figure.empty()) return own.in_unit(value);
        return own.in_unit(is_multiplicative ? value * season(t) : value + season(t));
    }
    double season_in_unit(int64_t t) const {
        if (figure.empty()) return (double)NAN;
        return is_multiplicative ? season(t) : own.in_unit(season(t));
    }
    bool is_known(int64_t t) const { return own.values[t] == own.values[t]; }

    Recursion recursion(const double *points) const {
        D bend = task.is_optimised ? load(points + WIDTH * BEND) : zero<D>();
        return {load(points + WIDTH * LEVEL), load(points + WIDTH * ALPHA), bend, intercept, slope};
    }

    /// Find the numbers with the least squares of one-step errors.
    bool search_numbers() {
        auto residuals_at = [&](const double *at, double *residuals) -> Points {
            if (stop(own.n * 12)) return {all((double)NAN), zero<D>() < zero<D>()};
            Recursion with = recursion(at);
            for (int64_t t = 0; t < own.n; t++) {
                D forecast = with.forecast(), error = all(adjusted[t]) - forecast;
                store(residuals + WIDTH * t, is_known(t) ? error : zero<D>());
                with.step(is_known(t) ? all(adjusted[t]) : forecast);
            }
            return {all(1.0), zero<D>() <= zero<D>()};
        };
        int numbers = task.is_optimised ? 3 : 2;
        search.low[LEVEL] = -INFINITY, search.high[LEVEL] = INFINITY;
        search.low[ALPHA] = task.is_optimised ? 0.1 : 1e-4, search.high[ALPHA] = task.is_optimised ? 0.99 : 0.9999;
        search.low[BEND] = 0, search.high[BEND] = 1;
        double least = INFINITY, best[3] = {};
        bool converged = false;
        for (double alpha : {0.1, 0.5, 0.9}) {
            double start[3] = {task.is_optimised ? 0.5 * adjusted[0] : adjusted[0], alpha, 0.5};
            std::copy(start, start + 3, search.numbers);
            bool has_converged = search.solve(numbers, numbers, own.n, residuals_at, MOST_STEPS);
            if (!(search.squares < least)) continue;
            least = search.squares, converged = has_converged;
            std::copy(search.numbers, search.numbers + 3, best);
        }
        std::copy(best, best + 3, search.numbers), search.squares = least;
        return converged;
    }

    void write_mean(int64_t g) {
        const Results &to = task.results;
        double mean = own.in_unit(own.mean());
        to.initial[g] = to.final[g] = mean, to.sigma2[g] = 0, to.is_multiplicative[g] = false;
        std::fill(to.parameters + 4 * g, to.parameters + 4 * (g + 1), (double)NAN);
        std::fill(to.seasons + m * g, to.seasons + m * (g + 1), (double)NAN);
        for (double *each : {to.fitted, to.level}) std::fill(each + task.all.start[g], each + task.all.start[g + 1], mean);
        for (double *each : {to.trend, to.season}) std::fill(each + task.all.start[g], each + task.all.start[g + 1], (double)NAN);
        std::fill(to.mean + task.horizon * g, to.mean + task.horizon * (g + 1), mean);
        std::fill(to.deviation + task.horizon * g, to.deviation + task.horizon * (g + 1), 0.0);
    }

    void write(int64_t g) {
        const Results &to = task.results;
        double points[3 * WIDTH], *numbers = search.numbers;
        for (int i = 0; i < 3; i++) store(points + WIDTH * i, all(numbers[i]));
        Recursion with = recursion(points);
        double alpha = numbers[ALPHA], drift = task.is_optimised ? 0 : 0.5 * slope;
        double theta = task.is_optimised ? 1 / std::max(1 - numbers[BEND], 1e-10) : 2;
        for (int64_t t = 0; t < own.n; t++) {
            D forecast = with.forecast();
            double line = first(forecast) + drift * ((1 - first(with.power)) / alpha), level = first(with.level);
            int64_t place = task.all.start[g] + t;
            to.fitted[place] = with_season(line, t), to.level[place] = own.in_unit(level);
            to.trend[place] = own.in_unit(line - level), to.season[place] = season_in_unit(t);
            with.step(is_known(t) ? all(adjusted[t]) : forecast);
        }
        double variance = search.squares / (double)std::max((int64_t)1, own.known - (task.is_optimised ? 3 : 2));
        to.sigma2[g] = ldexp(variance, 2 * own.exponent);
        double parameters[4] = {alpha, theta, own.in_unit(intercept), own.in_unit(slope)};
        std::copy(parameters, parameters + 4, to.parameters + 4 * g);
        to.initial[g] = own.in_unit(numbers[LEVEL]), to.final[g] = own.in_unit(first(with.level));
        to.is_multiplicative[g] = is_multiplicative;
        for (int64_t i = 0; i < m; i++) to.seasons[m * g + i] = season_in_unit(own.n + i);
        write_forecasts(g, with, variance, drift);
    }

    /// The variance grows by α² with each step; multiplicative seasons multiply its root.
    void write_forecasts(int64_t g, Recursion with, double variance, double drift) {
        double *mean = task.results.mean + task.horizon * g, *deviation = task.results.deviation + task.horizon * g;
        double alpha = first(with.alpha), ended = (1 - first(with.power)) / alpha;
        for (int64_t h = 0; h < task.horizon; h++) {
            D forecast = with.forecast();
            mean[h] = with_season(first(forecast) + drift * ((double)h + ended), own.n + h);
            double spread = __builtin_sqrt(variance * (1 + (double)h * alpha * alpha));
            deviation[h] = own.in_unit(is_multiplicative ? spread * season(own.n + h) : spread);
            with.step(forecast);
        }
    }
};

} // namespace
} // namespace grouplearn::series

using namespace grouplearn;
using namespace grouplearn::series;

/// Fits the theta method to each series.
GROUPLEARN_ENTRY void fit_theta(const AllSeries *all, int64_t is_optimised, int64_t horizon, int64_t threads, const Results *results) {
    Arithmetic arithmetic;
    Task task{*all, is_optimised != 0, horizon, *results};
    fit_each<Fitter>(task, threads);
}
