// Least squares, ridge and elastic net of many groups and configs from moments.
//
// Columns are scaled to unit length: A = D⁻¹X'XD⁻¹ with D² = diag(X'X), v = Dw, and the penalty on v is l2·D⁻². Ridge is eight
// systems at a time, of any groups and configs, one per lane. Without penalty, the trace of A's inverse proves that every
// direction says something; else singular values decide which do.
#include "linear/least_squares/active_set.hpp"
#include "linear/least_squares/elastic_net.hpp"
#include "lanes/entry.hpp"
#include "linear/least_squares/redundant.hpp"
#include <memory>
#include <vector>

namespace grouplearn {
namespace {

/// From so many columns on a system is solved by itself, block by block, and not one of eight in lanes.
constexpr int64_t WIDE = 512;
/// From so many columns on Cholesky's factor takes less time than singular values.
constexpr int64_t PIVOTED = 32;
/// A column whose weighted variance is below this share of its squared mean is constant up to rounding.
constexpr double CONSTANT = 1e-24;
/// Two objectives that differ by no more of them are alike.
constexpr double ALIKE = 1e-9;
/// What the root of a Gram matrix drops, up to this share of an objective: its least point is known to the square of that.
constexpr double KNOWN = 1e-4;
/// Rounding of moments up to this share of an objective keeps descent from nothing that counts.
constexpr double TOLD = 1e-6;

bool finite(double x) { return __builtin_fabs(x) <= 1.7976931348623157e308; }

struct Configs {
    int64_t count;
    const double *l1, *l2, *tolerance;
    const uint8_t *intercept;
    int64_t rounds;
};

/// Where the models of a set of rows lie: weights (C, d), intercept, loss and converged (C).
struct Models {
    double *weights, *intercept, *loss;
    uint8_t *converged;
};

/// One Gram matrix on columns of unit length: matrix (d, width), right, inverse (width), and `plain`, its solution without penalty.
struct Scaled {
    double *matrix, *right, *inverse, *plain;
    double target, *weights;
    bool solved;

    static int64_t size(int64_t d, int64_t width) { return width * (d + 4); }
    static Scaled in(double *p, int64_t d, int64_t width) {
        Scaled s;
        s.matrix = p, s.right = p + d * width, s.inverse = s.right + width, s.plain = s.inverse + width;
        s.weights = s.plain + width, s.target = 0, s.solved = false;
        return s;
    }
};

class Solver {
  public:
    Solver(int64_t count, int64_t d, const Configs &configs, const double *factor)
        : d(d), width(in_lanes(d)), configs(configs), factor(factor), systems(smooth(configs, d) && d < WIDE ? d : 0, width),
          net(penalised(configs) ? d : 0, width), at_a_time(chunk(count, d, width)),
          room(at_a_time * Scaled::size(d, width), false), zeroed(Moments::size(d, 1) * at_a_time, false),
          solutions(at_a_time * configs.count * width, false), ridge(width), penalty(width), residual(width), v(width),
          doubtful(configs.count) {}

    int64_t chunk_size() const { return at_a_time; }

    /// Solves every config of `count` sets of rows, no more than `chunk_size`.
    void solve(const Moments *given, const Models *models, int64_t count) {
        for (int64_t i = 0; i < count; i++) {
            for (int64_t c = 0; c < configs.count; c++) models[i].converged[c] = 1;
            if (usable(given[i])) continue;
            for (int64_t c = 0; c < configs.count; c++) {
                models[i].loss[c] = models[i].intercept[c] = NAN;
                for (int64_t j = 0; j < d; j++) models[i].weights[c * d + j] = NAN;
            }
        }
        for (int about_mean = 1; about_mean >= 0; about_mean--) {
            chosen.clear();
            for (int64_t c = 0; c < configs.count; c++)
                if ((configs.intercept[c] != 0) == (about_mean != 0)) chosen.push_back(c);
            if (!chosen.empty()) solve_chosen(given, models, count, about_mean != 0);
        }
    }

  private:
    int64_t d, width;
    Configs configs;
    const double *factor;
    SystemSolver systems;
    ElasticNet net;
    int64_t at_a_time;
    Numbers room, zeroed, solutions, ridge, penalty, residual, v;
    std::vector<int64_t> chosen;
    std::vector<System> waiting;
    /// Of each waiting system the set of rows, and the config, or -1 for all of those without penalties.
    std::vector<int64_t> whose, which;
    /// The configs whose descent rounding has ended.
    std::vector<uint8_t> doubtful;
    /// What was found of the matrix of the system that was solved last by itself.
    std::unique_ptr<Redundant> redundant;
    const double *found_of = nullptr;

    /// Whether there is a config without l1, or what a Gram matrix has lost is to be looked at.
    static bool smooth(const Configs &configs, int64_t d) {
        bool found = d <= MOST_COLUMNS;
        for (int64_t c = 0; c < configs.count; c++) found |= configs.l1[c] == 0;
        return found;
    }

    static bool penalised(const Configs &configs) {
        bool found = false;
        for (int64_t c = 0; c < configs.count; c++) found |= configs.l1[c] > 0;
        return found;
    }

    static int64_t chunk(int64_t count, int64_t d, int64_t width) {
        int64_t fits = 40000 / (Scaled::size(d, width) + 1);
        fits = fits < 1 ? 1 : fits > 64 ? 64 : fits;
        return count < fits ? count : fits;
    }

    /// Where there are rows and no sum overflows.
    bool usable(const Moments &m) {
        if (!(*m.total > 0)) return false;
        double sum = *m.target_gram;
        for (int64_t j = 0; j < d; j++) sum += m.square[j] + __builtin_fabs(m.cross[j]) + *m.total * (m.mean[j] * m.mean[j]);
        return finite(sum);
    }

    void solve_chosen(const Moments *given, const Models *models, int64_t count, bool about_mean) {
        Moments about[64];
        Scaled scaled[64];
        waiting.clear(), whose.clear(), which.clear();
        found_of = nullptr;
        for (int64_t i = 0; i < count; i++) {
            if (!usable(given[i])) continue;
            about[i] = given[i];
            if (!about_mean) {
                about[i] = Moments::in(zeroed + i * Moments::size(d, 1), d, 1, true);
                about_zero(about[i], given[i], d, 1);
            }
            scaled[i] = prepare(about[i], room + i * Scaled::size(d, width));
            add_systems(scaled[i], i);
        }
        for (size_t first = 0; first < waiting.size(); first += 8) solve_systems(first, scaled);
        if (stop(count * d * width / 4)) return;
        size_t next = 0;
        for (int64_t i = 0; i < count; i++) {
            if (!usable(given[i])) continue;
            for (int64_t c : chosen) {
                if (stop(d * width / 8)) return;
                const double *solution = scaled[i].plain;
                if (configs.l1[c] > 0) {
                    models[i].converged[c] = penalise(scaled[i], c, v);
                    solution = v;
                } else if (configs.l2[c] > 0) {
                    while (which[next] != c || whose[next] != i) next++;
                    solution = waiting[next].solution;
                }
                finish(scaled[i], c, solution, models[i]);
            }
            add_penalties(models[i]);
            refine(given[i], about[i], scaled[i], models[i], about_mean);
            each_four([&](const int64_t *those, int count) {
                double offset[4] = {};
                for (int64_t j = 0; j < d; j++)
                    for (int k = 0; k < 4; k++) offset[k] += models[i].weights[those[k] * d + j] * given[i].mean[j];
                for (int k = 0; k < count; k++)
                    models[i].intercept[those[k]] = about_mean ? *given[i].target_mean - offset[k] : 0;
            });
        }
    }

    Scaled prepare(const Moments &m, double *place) {
        Scaled s = Scaled::in(place, d, width);
        s.target = *m.target_gram;
        for (int64_t j = 0; j < width; j++) {
            bool varies = j < d && m.square[j] > 0 && m.square[j] > CONSTANT * *m.total * (m.mean[j] * m.mean[j]);
            s.inverse[j] = varies ? 1 / __builtin_sqrt(m.square[j]) : 0;
            s.right[j] = varies ? m.cross[j] * s.inverse[j] : 0;
        }
        scale_matrix(s.matrix, m.gram, s.inverse, d, width);
        return s;
    }

    void add_systems(const Scaled &s, int64_t owner) {
        bool plain = false;
        for (int64_t c : chosen)
            if (configs.l1[c] == 0 && configs.l2[c] == 0) plain = true;
        if (plain) add_system(s, 0, s.plain, owner, -1);
        int64_t place = owner * configs.count;
        for (int64_t c : chosen)
            if (configs.l1[c] == 0 && configs.l2[c] > 0) add_system(s, configs.l2[c], solutions + (place + c) * width, owner, c);
    }

    void add_system(const Scaled &s, double l2, double *solution, int64_t owner, int64_t config) {
        waiting.push_back({s.matrix, s.right, s.inverse, l2, solution});
        whose.push_back(owner), which.push_back(config);
    }

    void solve_systems(size_t first, Scaled *scaled) {
        if (!d) return;
        if (d >= WIDE) {
            for (size_t i = first; i < waiting.size() && i < first + 8; i++) solve_alone(waiting[i]);
            return;
        }
        int count = (int)(waiting.size() - first < 8 ? waiting.size() - first : 8);
        bool regular[8], plain = false;
        double trace[8];
        for (int i = 0; i < count; i++) plain |= which[first + i] < 0;
        // A pivot of the size of rounding: the penalty is lost in it, and without one two columns are the same.
        double least = 8 * EPSILON * (double)d;
        systems.solve(&waiting[first], count, least < 5e-13 ? least : 5e-13, regular, plain ? trace : nullptr);
        for (int i = 0; i < count; i++) {
            bool whole = which[first + i] >= 0 || trace[i] * RANK * (double)d < 0.5;
            if (regular[i] && whole) continue;
            Scaled &s = scaled[whose[first + i]];
            if (which[first + i] >= 0) {
                solve_alone(waiting[first + i]);
            } else if (!s.solved) {
                smallest(s.matrix, s.right, s.inverse, s.plain, s.weights);
                s.solved = true;
            }
        }
    }

    /// A system by itself, on columns that have unit length with its penalty: one of many columns, or one whose penalty is lost
    /// in the rounding of some directions, but may count for others.
    void solve_alone(const System &system) {
        Numbers matrix(d * width), right(width), scale(width), inverse(width), solution(width), weights(width);
        for (int64_t j = 0; j < d; j++) {
            scale[j] = 1 / __builtin_sqrt(1 + system.l2 * (system.inverse[j] * system.inverse[j]));
            inverse[j] = system.inverse[j] * scale[j], right[j] = system.right[j] * scale[j];
        }
        for (int64_t i = 0; i < d; i++) {
            for (int64_t j = 0; j < d; j++) matrix[i * width + j] = system.matrix[i * width + j] * (scale[i] * scale[j]);
            matrix[i * width + i] = 1;
        }
        if (!by_pivots(matrix, right, inverse, solution, weights)) {
            if (system.l2 > 0 && without_redundant(system)) return;
            smallest_of_gram(matrix, d, width, right, RANK, inverse, solution, weights);
        }
        for (int64_t j = 0; j < width; j++) system.solution[j] = solution[j] * scale[j];
    }

    /// Solves a system whose penalty is small, if the pivots of its Gram matrix tell which columns follow from others.
    bool without_redundant(const System &system) {
        if (d < PIVOTED) return false;
        if (found_of != system.matrix) {
            redundant.reset(new Redundant(system.matrix, d, width, system.inverse));
            found_of = system.matrix;
        }
        return redundant->solve(system.right, system.l2, system.solution);
    }

    void smallest(const double *matrix, const double *right, const double *inverse, double *solution, double *weights) {
        if (!by_pivots(matrix, right, inverse, solution, weights))
            smallest_of_gram(matrix, d, width, right, RANK, inverse, solution, weights);
    }

    /// `smallest_of_gram`, where there are some columns and pivots tell which directions count; else false.
    bool by_pivots(const double *matrix, const double *right, const double *inverse, double *solution, double *weights) {
        auto as_it_is = [&](const double *found, bool, double *to) { memcpy(to, found, width * sizeof(double)); };
        if (d < PIVOTED || !smallest_by_pivots(matrix, d, width, right, inverse, width, d, as_it_is, weights)) return false;
        for (int64_t j = 0; j < width; j++) solution[j] = inverse[j] > 0 ? weights[j] / inverse[j] : 0;
        return true;
    }

    bool penalise(const Scaled &s, int64_t config, double *v) {
        for (int64_t j = 0; j < width; j++) {
            ridge[j] = configs.l2[config] * (s.inverse[j] * s.inverse[j]);
            penalty[j] = configs.l1[config] * s.inverse[j];
        }
        // Of so many columns there is a factor only where descent has come to no end before.
        if (factor && d > MOST_COLUMNS) return memset(v, 0, width * sizeof(double)), false;
        bool ended = net.solve(s.matrix, s.right, ridge, penalty, configs.tolerance[config], configs.rounds, v);
        doubtful[config] = net.kept_by_rounding;
        return ended;
    }

    /// The weights of v and the objective without penalties.
    void finish(const Scaled &s, int64_t c, const double *v, const Models &models) {
        memcpy(residual, s.right, width * sizeof(double));
        subtract_rows(residual, v, s.matrix, d, width);
        double explained = dot(v, s.right, width) + dot(v, residual, width);
        for (int64_t j = 0; j < d; j++) models.weights[c * d + j] = v[j] * s.inverse[j];
        double left = s.target - explained;
        models.loss[c] = 0.5 * (left < 0 ? 0 : left);
    }

    void add_penalties(const Models &models) {
        each_four([&](const int64_t *those, int count) {
            double sizes[4] = {}, squares[4] = {};
            for (int64_t j = 0; j < d; j++)
                for (int k = 0; k < 4; k++) {
                    double weight = models.weights[those[k] * d + j];
                    sizes[k] += __builtin_fabs(weight);
                    squares[k] += weight * weight;
                }
            for (int k = 0; k < count; k++)
                models.loss[those[k]] += configs.l1[those[k]] * sizes[k] + 0.5 * configs.l2[those[k]] * squares[k];
        });
    }

    /// Four chosen configs at a time, so that what is added up in order of the features waits for no sum but its own.
    template <class Work> void each_four(Work work) const {
        for (size_t first = 0; first < chosen.size(); first += 4) {
            int64_t those[4];
            int count = (int)(chosen.size() - first < 4 ? chosen.size() - first : 4);
            for (int k = 0; k < 4; k++) those[k] = chosen[first + (k < count ? k : 0)];
            work(those, count);
        }
    }

    /// Solves again what depends on directions that the Gram matrix has lost, from a factor, and what descent has not ended.
    void refine(const Moments &given, const Moments &about, const Scaled &s, const Models &models, bool about_mean) {
        bool lost = factor != nullptr, open = false;
        if (!lost && !about_mean) lost = loses(about.gram, d, systems);
        for (int64_t c : chosen) {
            if (doubtful[c] && !factor) {
                doubtful[c] = 0;
                if (d > MOST_COLUMNS && !tells(about, models.weights + c * d, models.loss[c])) models.converged[c] = 0;
            }
            open |= !models.converged[c] || doubtful[c];
        }
        if (!(lost || (open && d <= MOST_ACTIVE)) || !d || stopped()) return;
        // With l1 descent has the Gram matrix alone, from which what the offset has cost cannot be gained.
        bool unknown = lost && !about_mean && !loses(given.gram, d, systems);
        std::vector<double> own = factor_about(given, about_mean);
        double largest = 0;
        for (int64_t j = 0; j < d; j++)
            if (about.square[j] > largest) largest = about.square[j];
        for (int64_t c : chosen)
            if (configs.l1[c] > 0) {
                if (!models.converged[c] || doubtful[c]) end_descent(own.data(), rounding_of(about, d), s, c, models);
                else if (unknown) models.converged[c] = 0;
                if (lost) models.loss[c] = objective(own.data(), c, models.weights + c * d);
            } else if (lost && configs.l2[c] <= DOUBT * (double)d * largest) {
                models.loss[c] = solve_factor(own.data(), d, configs.l2[c], rounding_of(about, d), models.weights + c * d);
            }
    }

    /// Whether rounding of moments is next to nothing of an objective.
    bool tells(const Moments &m, const double *weights, double objective) const {
        double terms = __builtin_sqrt(*m.target_gram);
        for (int64_t j = 0; j < d; j++) terms = __builtin_fma(__builtin_sqrt(m.square[j]), __builtin_fabs(weights[j]), terms);
        return EPSILON * terms * terms <= TOLD * objective;
    }

    /// A factor (d + 1, d + 1) of features and label about their means or zero.
    std::vector<double> factor_about(const Moments &given, bool about_mean) {
        int64_t p = d + 1;
        std::vector<double> own(p * p), rows((p + 1) * p);
        if (factor) memcpy(rows.data(), factor, p * p * sizeof(double));
        else root_of(whole_gram(given).data(), p, rows.data());
        if (about_mean) {
            own.assign(rows.begin(), rows.begin() + p * p);
            return own;
        }
        // About zero, the means are one more row.
        double root = __builtin_sqrt(*given.total);
        for (int64_t j = 0; j < d; j++) rows[p * p + j] = given.mean[j] * root;
        rows[p * p + d] = *given.target_mean * root;
        triangle_of_rows(rows.data(), p + 1, p, own.data());
        return own;
    }

    /// A model with l1 at the end of an active set, where descent has come to none, or to one that is higher.
    void end_descent(const double *factor, double rounding, const Scaled &s, int64_t c, const Models &models) {
        if (d > MOST_ACTIVE) return;
        ActiveSet set(factor, d, s.inverse, configs.l1[c], configs.l2[c], rounding);
        bool ended = set.solve(configs.tolerance[c], configs.rounds);
        if (stopped()) return;
        double *weights = models.weights + c * d, before = objective(factor, c, weights);
        for (int64_t j = 0; j < d; j++) v[j] = set.solution(j) * s.inverse[j];
        double after = objective(factor, c, v);
        if (!(ended && !models.converged[c]) && !(after < before * (1 - ALIKE))) return;
        memcpy(weights, v, d * sizeof(double));
        models.loss[c] = after, models.converged[c] = ended && (this->factor || knows(factor, weights, after));
    }

    /// Whether an objective on the root of a Gram matrix is far more than what that drops.
    bool knows(const double *factor, const double *weights, double objective) const {
        double total = 0;
        for (int64_t i = 0; i <= d; i++) {
            const double *row = factor + i * (d + 1);
            double terms = __builtin_fabs(row[d]);
            for (int64_t j = 0; j < d; j++) terms = __builtin_fma(__builtin_fabs(row[j]), __builtin_fabs(weights[j]), terms);
            total = __builtin_fma(terms, terms, total);
        }
        return NONE * (double)(d + 1) * total <= KNOWN * objective;
    }

    /// The objective of weights on a factor.
    double objective(const double *factor, int64_t c, const double *weights) const {
        double size = 0, square = 0;
        for (int64_t j = 0; j < d; j++)
            size += __builtin_fabs(weights[j]), square = __builtin_fma(weights[j], weights[j], square);
        return loss_of_factor(factor, d, weights) + configs.l1[c] * size + 0.5 * configs.l2[c] * square;
    }

    std::vector<double> whole_gram(const Moments &m) {
        int64_t p = d + 1;
        std::vector<double> whole(p * p);
        for (int64_t i = 0; i < d; i++) {
            memcpy(&whole[i * p], m.gram + i * d, d * sizeof(double));
            whole[i * p + d] = whole[d * p + i] = m.cross[i];
        }
        whole[d * p + d] = *m.target_gram;
        return whole;
    }
};

} // namespace
} // namespace grouplearn

using namespace grouplearn;

/// The models of every config for `count` moments with one target; `factor` (d + 1, d + 1), perhaps none, is of all of them.
GROUPLEARN_ENTRY void least_squares(int64_t count, int64_t d, double *const *moments, const double *factor, int64_t n_configs,
                                   const double *l1, const double *l2, const double *tolerance, const uint8_t *with_intercept,
                                   int64_t rounds, double *weights, double *intercept, double *loss, uint8_t *converged) {
    Arithmetic arithmetic;
    Moments all{moments[0], moments[1], moments[2], moments[3], moments[4], moments[5], moments[6]};
    Configs configs{n_configs, l1, l2, tolerance, with_intercept, rounds};
    Solver solver(count, d, configs, factor);
    int64_t at_a_time = solver.chunk_size();
    for (int64_t first = 0; first < count && !stop(at_a_time * d * d / 8); first += at_a_time) {
        Moments some[64];
        Models models[64];
        int64_t here = count - first < at_a_time ? count - first : at_a_time;
        for (int64_t i = 0; i < here; i++) {
            int64_t place = (first + i) * n_configs;
            some[i] = all.at(first + i, d, 1);
            models[i] = {weights + place * d, intercept + place, loss + place, converged + place};
        }
        solver.solve(some, models, here);
    }
}
