// Exponential smoothing of many series: models chosen by an information criterion and fitted by maximum likelihood, or given.
#include "series/each.hpp"
#include "series/forecasts.hpp"
#include "series/levenberg_marquardt.hpp"
#include "series/starting.hpp"

namespace grouplearn::series {
namespace {

enum Criterion : int64_t { AICC, AIC, BIC };
enum Note : int8_t { FITTED, CONSTANT, TOO_FEW, NO_CANDIDATE };
constexpr int64_t FEWEST_VALUES = 4;
constexpr double LOG_2 = 0.6931471805599453;
constexpr int WIDTH = Lanes<D>::count;
/// Steps of the search from each start, and from so many of the best ones.
constexpr int TRIAL_STEPS = 4, MOST_STEPS = 100, MOST_TRIALS = 2;

/// Results of G series with seasons of m steps, in the order of Python's.
struct Results {
    int64_t *model;
    double *parameters, *initial, *final, *sigma2, *loglik, *aic, *aicc, *bic;
    int64_t *n_values;
    uint8_t *converged;
    int8_t *note;
    double *fitted, *level, *trend, *season, *mean, *deviation;
};

struct Task {
    AllSeries all;
    const Model *models;
    int64_t n_models, criterion, horizon;
    Results results;
};

struct Criteria {
    double aic, aicc, bic;

    Criteria(double deviance, int64_t fitted, int64_t known) {
        double k = (double)fitted + 1, n = (double)known;
        aic = deviance + 2 * k;
        aicc = n > k + 1 ? aic + 2 * k * (k + 1) / (n - k - 1) : (double)INFINITY;
        bic = deviance + logarithm_of(n) * k;
    }
    double of(int64_t criterion) const { return criterion == AIC ? aic : criterion == BIC ? bic : aicc; }
};

/// What a search came to.
struct Found {
    double squares = INFINITY;
    bool converged = false;
    double numbers[LevenbergMarquardt::MOST] = {};
};

/// The best model of a series so far.
struct Best {
    int64_t model = -1;
    double criterion = INFINITY;
    Found found;
};

/// What one thread fits series with.
class Fitter {
  public:
    Fitter(const Task &task, int64_t longest)
        : task(task), m(task.all.season), points(WIDTH * LevenbergMarquardt::MOST), search(longest) {}

    /// Fits a series and writes its results, unless it is told to stop.
    void fit(int64_t g) {
        own.read(task.all, g);
        Best best;
        for (int64_t number = 0; number < task.n_models; number++) {
            Layout layout(task.models[number], m);
            if (!suits(task.models[number], layout)) continue;
            Found found = fit_model(task.models[number], layout);
            if (stopped()) return;
            keep(number, layout, found, best);
        }
        write(g, best);
    }

    /// Writes the results of a series whose model, parameters and first states are given.
    void follow(int64_t g) {
        own.read(task.all, g);
        const Results &to = task.results;
        const double *parameters = to.parameters + 4 * g, *initial = to.initial + (2 + m) * g;
        Model model = task.models[to.model[g]];
        Smoothing with = constant(own.to_scale(initial[0]));
        with.alpha = all(parameters[0]);
        if (model.trend) with.beta = all(parameters[1]), with.slope = all(own.to_scale(initial[1]));
        if (model.season) with.gamma = all(parameters[2]);
        if (model.trend == DAMPED_TREND) with.phi = all(parameters[3]);
        for (int64_t i = 0; i < m && model.season; i++)
            store(with.seasons + WIDTH * i, all(model.season == ADDITIVE ? own.to_scale(initial[2 + i]) : initial[2 + i]));
        to.note[g] = FITTED, to.converged[g] = true;
        finish(g, model, with);
    }

  private:
    const Task &task;
    int64_t m;
    Numbers points; // (numbers, 8)
    LevenbergMarquardt search;
    Series own;

    bool suits(const Model &model, const Layout &layout) const {
        if (own.is_constant || own.known < FEWEST_VALUES || layout.count >= own.known - 1) return false;
        if (model.season && (m < 2 || m > LONGEST_SEASON || own.known < 2 * m)) return false;
        return own.is_positive || !(model.relative || model.season == MULTIPLICATIVE);
    }

    Found fit_model(const Model &model, const Layout &layout) {
        const double *y = own.values.data();
        auto residuals_at = [&](const double *at, double *residuals) -> Points {
            if (stop(own.n * 24)) return {all((double)NAN), zero<D>() < zero<D>()};
            Smoothing with = at_points(at, model, layout);
            DMask allowed = is_allowed(model, with);
            auto write = [=](int64_t t, const Step &step) { store(residuals + WIDTH * t, step.error); };
            ErrorSums sums = filter_model(model, y, own.n, m, with, write);
            return {model.relative ? exponential(sums.logs * all(1 / (double)own.known)) : all(1.0), allowed};
        };
        layout.set_ranges(search.low, search.high);
        Found best;
        for (const Found &trial : try_starts(model, layout, residuals_at)) {
            std::copy(trial.numbers, trial.numbers + layout.count, search.numbers);
            bool converged = search.solve(layout.count, layout.count, own.n, residuals_at, MOST_STEPS);
            if (!(search.squares < best.squares)) continue;
            best.squares = search.squares, best.converged = converged;
            std::copy(search.numbers, search.numbers + layout.count, best.numbers);
        }
        return best;
    }

    /// The best different ends of some steps from each start, with the seasons left as they are.
    template <class Residuals> std::vector<Found> try_starts(const Model &model, const Layout &layout, const Residuals &residuals_at) {
        std::vector<Found> trials;
        Found states;
        start_states(own, model, layout, m, states.numbers);
        for (const Start &start : STARTS) {
            std::copy(states.numbers, states.numbers + layout.count, search.numbers);
            start.write(layout, search.numbers);
            search.solve(layout.seasons, layout.count, own.n, residuals_at, TRIAL_STEPS);
            if (search.squares == INFINITY) continue;
            trials.emplace_back();
            trials.back().squares = search.squares;
            std::copy(search.numbers, search.numbers + layout.count, trials.back().numbers);
        }
        std::stable_sort(trials.begin(), trials.end(), [](const Found &a, const Found &b) { return a.squares < b.squares; });
        auto is_same = [](const Found &a, const Found &b) { return b.squares <= a.squares * (1 + 1e-4); };
        trials.erase(std::unique(trials.begin(), trials.end(), is_same), trials.end());
        if (trials.size() > MOST_TRIALS) trials.resize(MOST_TRIALS);
        return trials;
    }

    DMask is_allowed(const Model &model, const Smoothing &with) const {
        DMask allowed = zero<D>() <= zero<D>();
        if (model.season) allowed = is_admissible(with, m);
        for (int64_t i = 0; i < m && model.season == MULTIPLICATIVE; i++)
            allowed = allowed & (zero<D>() <= load(with.seasons + WIDTH * i));
        return allowed;
    }

    void keep(int64_t number, const Layout &layout, const Found &found, Best &best) {
        if (found.squares == INFINITY) return;
        const Model &model = task.models[number];
        Smoothing with = at(found.numbers, model, layout);
        double deviance = first(filter_model(model, own.values.data(), own.n, m, with, [](int64_t, const Step &) {}).deviance(own.known));
        double criterion = Criteria(deviance, layout.count, own.known).of(task.criterion);
        if (criterion < best.criterion) best = {number, criterion, found};
    }

    Smoothing at(const double *numbers, const Model &model, const Layout &layout) {
        for (int i = 0; i < layout.count; i++) store(points + WIDTH * i, all(numbers[i]));
        return at_points(points, model, layout);
    }

    static Smoothing at_points(const double *points, const Model &model, const Layout &layout) {
        auto of = [&](int place, double otherwise) { return place < 0 ? all(otherwise) : load(points + WIDTH * place); };
        D least = all(LEAST_WEIGHT), alpha = of(layout.alpha, 0);
        D beta = fma(of(layout.beta, 0), alpha - least, least);
        D gamma = fma(of(layout.gamma, 0), smaller(all(MOST_WEIGHT), all(1.0) - alpha) - least, least);
        if (!model.trend) beta = zero<D>();
        if (!model.season) gamma = zero<D>();
        Smoothing with{alpha, beta, gamma, of(layout.phi, 1), of(layout.level, 0), of(layout.slope, 0), {}};
        if (!model.season) return with;
        D rest = all(model.season == MULTIPLICATIVE ? (double)(layout.seasons_fitted + 1) : 0.0);
        for (int i = 0; i < layout.seasons_fitted; i++) {
            D season = load(points + WIDTH * (layout.seasons + i));
            store(with.seasons + WIDTH * (i + 1), season);
            rest = rest - season;
        }
        store(with.seasons, rest);
        return with;
    }

    static Smoothing constant(double level) {
        D none = zero<D>();
        return {none, none, none, all(1.0), all(level), none, {}};
    }

    void write(int64_t g, const Best &best) {
        const Results &to = task.results;
        bool is_fitted = best.model >= 0;
        to.converged[g] = !is_fitted || best.found.converged;
        to.note[g] = own.known < FEWEST_VALUES ? TOO_FEW : own.is_constant ? CONSTANT : is_fitted ? FITTED : NO_CANDIDATE;
        to.model[g] = best.model;
        Model model = is_fitted ? task.models[best.model] : Model{0, NO_TREND, NO_SEASON};
        Smoothing with = is_fitted ? at(best.found.numbers, model, Layout(model, m)) : constant(own.mean());
        finish(g, model, with);
    }

    /// Writes a series' states, forecasts and measures by its model and first states, which are in the first lane.
    void finish(int64_t g, const Model &model, Smoothing &with) {
        const Results &to = task.results;
        double *parameters = to.parameters + 4 * g, *final = to.final + (2 + m) * g;
        write_states(model, with, 0, parameters, to.initial + (2 + m) * g);
        auto write = [&](int64_t t, const Step &step) { write_step(task.all.start[g] + t, model, step); };
        ErrorSums sums = filter_model(model, own.values.data(), own.n, m, with, write);
        write_states(model, with, own.n, parameters, final);
        write_measures(g, model, sums);
        Ended end = ended(model, m, parameters, final, to.sigma2[g]);
        forecast(end, task.horizon, to.mean + task.horizon * g, to.deviation + task.horizon * g);
    }

    void write_step(int64_t place, const Model &model, const Step &step) {
        const Results &to = task.results;
        double season = first(step.season), nothing = (double)NAN;
        to.fitted[place] = own.in_unit(first(step.forecast)), to.level[place] = own.in_unit(first(step.level));
        to.trend[place] = model.trend ? own.in_unit(first(step.trend)) : nothing;
        to.season[place] = model.season == ADDITIVE ? own.in_unit(season) : model.season ? season : nothing;
    }

    void write_measures(int64_t g, const Model &model, const ErrorSums &sums) {
        const Results &to = task.results;
        int64_t numbers = Layout(model, m).count, spare = own.known - numbers;
        to.n_values[g] = own.known;
        to.sigma2[g] = to.note[g] == FITTED ? (double)NAN : 0;
        to.loglik[g] = to.aic[g] = to.aicc[g] = to.bic[g] = (double)NAN;
        if (to.note[g] != FITTED || !own.known) return;
        double variance = first(sums.squares) / (double)spare;
        if (spare > 0) to.sigma2[g] = model.relative ? variance : ldexp(variance, 2 * own.exponent);
        double deviance = first(sums.deviance(own.known)) + 2 * LOG_2 * (double)own.known * own.exponent;
        Criteria criteria(deviance, numbers, own.known);
        to.loglik[g] = -0.5 * deviance, to.aic[g] = criteria.aic, to.aicc[g] = criteria.aicc, to.bic[g] = criteria.bic;
    }

    /// Parameters and states of the first lane after so many steps, in the series' unit; NaN where the model has none.
    void write_states(const Model &model, const Smoothing &with, int64_t steps, double *parameters, double *states) {
        double nothing = (double)NAN;
        parameters[0] = first(with.alpha);
        parameters[1] = model.trend ? first(with.beta) : nothing;
        parameters[2] = model.season ? first(with.gamma) : nothing;
        parameters[3] = model.trend == DAMPED_TREND ? first(with.phi) : nothing;
        states[0] = own.in_unit(first(with.level));
        states[1] = model.trend ? own.in_unit(first(with.slope)) : nothing;
        for (int64_t i = 0; i < m; i++) {
            double season = model.season ? with.seasons[WIDTH * ((steps + i) % m)] : nothing;
            states[2 + i] = model.season == ADDITIVE ? own.in_unit(season) : season;
        }
    }

    static double first(D a) {
        double lane[WIDTH];
        store(lane, a);
        return lane[0];
    }
};

} // namespace
} // namespace grouplearn::series

using namespace grouplearn;
using namespace grouplearn::series;

/// Fits the best of some models to each series.
GROUPLEARN_ENTRY void fit_exponential_smoothing(const AllSeries *all, const Model *models, int64_t n_models, int64_t criterion,
                                                int64_t horizon, int64_t threads, const Results *results) {
    Arithmetic arithmetic;
    Task task{*all, models, n_models, criterion, horizon, *results};
    fit_each<Fitter>(task, threads);
}

/// Goes through each series with the model, the parameters and the first states that `results` has of it, and writes the others.
GROUPLEARN_ENTRY void filter_exponential_smoothing(const AllSeries *all, const Model *models, int64_t horizon,
                                                   const Results *results) {
    Arithmetic arithmetic;
    Task task{*all, models, 0, AICC, horizon, *results};
    Fitter fitter(task, 0);
    for (int64_t g = 0; g < all->count && !stop(all->length(g) * 24 + horizon); g++) fitter.follow(g);
}

/// Forecasts of G models from their parameters (G, 4), last states (G, 2 + m) and variances of one-step errors (G,).
GROUPLEARN_ENTRY void forecast_exponential_smoothing(const Model *models, const int64_t *model, int64_t count, int64_t m,
                                                     const double *parameters, const double *final, const double *variance,
                                                     int64_t horizon, double *mean, double *deviation) {
    Arithmetic arithmetic;
    Looks looks;
    for (int64_t g = 0; g < count && !looks.stop(horizon * 8); g++)
        forecast(ended(models[model[g]], m, parameters + 4 * g, final + (2 + m) * g, variance[g]), horizon, mean + horizon * g,
                 deviation + horizon * g);
}
