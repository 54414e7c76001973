// Least squares, ridge and elastic net of many groups and configs from moments, and what to do where a Gram matrix has lost digits.
//
// Columns are scaled to unit length: A = D⁻¹X'XD⁻¹ with D² = diag(X'X), v = Dw, and the penalty on v is l2·D⁻². Ridge is eight
// systems at a time, of any groups and configs, one per lane. Without penalty, the trace of A's inverse proves that every
// direction says something; else singular values decide which do.
#include "elastic_net.hpp"
#include "entry.hpp"
#include "moments.hpp"
#include "systems.hpp"
#include <vector>

namespace grouplearn {
namespace {

/// Directions below this share of the largest eigenvalue of a correlation matrix carry no information.
constexpr double RANK = 1e-12;
/// Of the largest eigenvalue: below it digits of the weights are lost in a Gram matrix; below it, times d, is its rounding.
constexpr double DOUBT = 1e-9, NONE = 1e-14;
/// Of the largest singular value of rows: what is below it is rounding of the columns as written.
constexpr double ROUNDING = 1e-13;
/// A column whose weighted variance is below this share of its squared mean is constant up to rounding.
constexpr double CONSTANT = 1e-24;
/// Up to which a Gram matrix is looked at for digits that it has lost.
constexpr int64_t MOST_COLUMNS = 128;
constexpr double EPSILON = 2.220446049250313e-16;

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

/// Writes D⁻¹GD⁻¹ with a unit diagonal; a constant column is in no other equation, and its weight comes out as zero.
void scale_matrix(double *matrix, const double *gram, const double *inverse, int64_t d, int64_t width) {
    for (int64_t i = 0; i < d; i++) {
        double own = inverse[i];
        for (int64_t j = 0; j < d; j++) matrix[i * width + j] = gram[i * d + j] * (own * inverse[j]);
        for (int64_t j = d; j < width; j++) matrix[i * width + j] = 0;
        matrix[i * width + i] = 1;
    }
}

/// 1/√ of what is above 0, else 0.
double inverse_root(double square) { return square > 0 ? 1 / __builtin_sqrt(square) : 0; }

/// What is rounding of the columns as written, of singular values on columns of unit length.
double rounding_of(const Moments &m, int64_t d) {
    double most = 0;
    for (int64_t j = 0; j < d; j++) {
        double offset = m.square[j] > 0 ? *m.total * (m.mean[j] * m.mean[j]) / m.square[j] : 0;
        if (offset > most) most = offset;
    }
    return ROUNDING * __builtin_sqrt(1 + most);
}

/// A square root F of a Gram matrix of features and label, F'F; directions that are its rounding are none. F (p, p) by rows.
void root_of(const double *whole, int64_t p, double *root) {
    int64_t width = in_lanes(p);
    Numbers inverse(p), matrix(p * width), columns(p * width), values(p);
    for (int64_t i = 0; i < p; i++) inverse[i] = inverse_root(whole[i * p + i]);
    for (int64_t i = 0; i < p; i++)
        for (int64_t j = 0; j < p; j++) matrix[i * width + j] = whole[i * p + j] * inverse[i] * inverse[j];
    int64_t rank = eigenvectors(matrix, p, width, columns, values);
    double largest = 0;
    for (int64_t i = 0; i < rank; i++)
        if (values[i] > largest) largest = values[i];
    memset(root, 0, p * p * sizeof(double));
    for (int64_t i = 0; i < rank; i++) {
        double value = values[i] > NONE * (double)p * largest ? __builtin_sqrt(values[i]) : 0;
        for (int64_t j = 0; j < p; j++) root[i * p + j] = inverse[j] > 0 ? value * columns[i * width + j] / inverse[j] : 0;
    }
}

/// R of QR of rows (n, p), p·p by rows.
void triangle_of_rows(const double *rows, int64_t n, int64_t p, double *triangle) {
    int64_t length = in_lanes(n);
    Numbers columns(p * length);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < p; j++) columns[j * length + i] = rows[i * p + j];
    triangle_of(columns, length, p, triangle);
}

/// Ridge of a factor (p, p) of [X y], p = d + 1, by singular values: the penalty is d more rows, √l2 on the diagonal, of label 0.
double solve_factor(const double *factor, int64_t d, double l2, double tolerance, double *weights) {
    int64_t p = d + 1, length = in_lanes(p + d), width = in_lanes(d);
    Numbers columns(d * length), given(d * length), right(length), scale(width), solution(width), found(width);
    for (int64_t i = 0; i < p; i++) {
        for (int64_t j = 0; j < d; j++) given[j * length + i] = factor[i * p + j];
        right[i] = factor[i * p + d];
    }
    for (int64_t j = 0; j < d; j++) {
        double *column = given + j * length;
        column[p + j] = __builtin_sqrt(l2);
        scale[j] = inverse_root(dot(column, column, length));
        for (int64_t i = 0; i < length; i++) columns[j * length + i] = column[i] * scale[j];
    }
    smallest_solution(columns, length, d, right, tolerance, scale, solution, found);
    memcpy(weights, found, d * sizeof(double));
    for (int64_t j = 0; j < d; j++) add_multiple(right, -weights[j], given + j * length, length);
    return 0.5 * dot(right, right, length);
}

class Solver {
  public:
    Solver(int64_t count, int64_t d, const Configs &configs, const double *factor)
        : d(d), width(in_lanes(d)), configs(configs), factor(factor), systems(smooth(configs, d) ? d : 0, width),
          net(penalised(configs) ? d : 0, width),
          at_a_time(chunk(count, d, width)), room(at_a_time * Scaled::size(d, width), false),
          zeroed(Moments::size(d, 1) * at_a_time, false), solutions(at_a_time * configs.count * width, false), ridge(width), penalty(width), residual(width), v(width) {}

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
        size_t next = 0;
        for (int64_t i = 0; i < count; i++) {
            if (!usable(given[i])) continue;
            bool penalised = false;
            for (int64_t c : chosen) {
                if (configs.l1[c] > 0) {
                    penalised = true;
                    models[i].converged[c] = penalise(scaled[i], c, v);
                } else if (configs.l2[c] > 0) {
                    while (which[next] != c || whose[next] != i) next++;
                    memcpy(v, waiting[next].solution, width * sizeof(double));
                } else {
                    memcpy(v, scaled[i].plain, width * sizeof(double));
                }
                finish(scaled[i], c, models[i]);
            }
            refine(given[i], about[i], models[i], about_mean, penalised);
            for (int64_t c : chosen) {
                double offset = 0;
                for (int64_t j = 0; j < d; j++) offset += models[i].weights[c * d + j] * given[i].mean[j];
                models[i].intercept[c] = about_mean ? *given[i].target_mean - offset : 0;
            }
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
        memset(solution, 0, width * sizeof(double));
        waiting.push_back({s.matrix, s.right, s.inverse, l2, solution});
        whose.push_back(owner), which.push_back(config);
    }

    void solve_systems(size_t first, Scaled *scaled) {
        if (!d) return;
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
            if (!s.solved) {
                smallest_of_gram(s.matrix, d, width, s.right, RANK, s.inverse, s.plain, s.weights);
                s.solved = true;
            }
            if (which[first + i] >= 0) memcpy(waiting[first + i].solution, s.plain, width * sizeof(double));
        }
    }

    bool penalise(const Scaled &s, int64_t config, double *v) {
        for (int64_t j = 0; j < width; j++) {
            ridge[j] = configs.l2[config] * (s.inverse[j] * s.inverse[j]);
            penalty[j] = configs.l1[config] * s.inverse[j];
        }
        return net.solve(s.matrix, s.right, ridge, penalty, configs.tolerance[config], configs.rounds, v);
    }

    /// The weights and the objective of v.
    void finish(const Scaled &s, int64_t c, const Models &models) {
        memcpy(residual, s.right, width * sizeof(double));
        for (int64_t j = 0; j < d; j++)
            if (v[j] != 0) add_multiple(residual, -v[j], s.matrix + j * width, width);
        double explained = dot(v, s.right, width) + dot(v, residual, width);
        double sizes = 0, squares = 0, *weights = models.weights + c * d;
        for (int64_t j = 0; j < d; j++) {
            weights[j] = v[j] * s.inverse[j];
            sizes += __builtin_fabs(weights[j]);
            squares += weights[j] * weights[j];
        }
        double left = s.target - explained;
        models.loss[c] = 0.5 * (left < 0 ? 0 : left) + (configs.l1[c] * sizes + 0.5 * configs.l2[c] * squares);
    }

    /// Solves again what depends on directions that the Gram matrix has lost: from a factor, where there is one.
    void refine(const Moments &given, const Moments &about, const Models &models, bool about_mean, bool penalised) {
        bool lost = factor != nullptr;
        if (!lost && !about_mean) lost = loses(about.gram);
        if (!lost || !d) return;
        int64_t p = d + 1;
        std::vector<double> own(p * p), rows((p + 1) * p);
        if (factor && about_mean) {
            own.assign(factor, factor + p * p);
        } else if (!about_mean) {
            // About zero, the means are one more row.
            if (factor) memcpy(rows.data(), factor, p * p * sizeof(double));
            else root_of(whole_gram(given).data(), p, rows.data());
            double root = __builtin_sqrt(*given.total);
            for (int64_t j = 0; j < d; j++) rows[p * p + j] = given.mean[j] * root;
            rows[p * p + d] = *given.target_mean * root;
            triangle_of_rows(rows.data(), p + 1, p, own.data());
        }
        double largest = 0;
        for (int64_t j = 0; j < d; j++)
            if (about.square[j] > largest) largest = about.square[j];
        for (int64_t c : chosen)
            if (configs.l1[c] == 0 && configs.l2[c] <= DOUBT * (double)d * largest)
                models.loss[c] = solve_factor(own.data(), d, configs.l2[c], rounding_of(about, d), models.weights + c * d);
        // With l1 there is the Gram matrix alone, from which what the offset has cost cannot be gained.
        if (!about_mean && penalised && !loses(given.gram))
            for (int64_t c : chosen)
                if (configs.l1[c] > 0) models.converged[c] = 0;
    }

    /// Whether a Gram matrix loses digits of a direction.
    bool loses(const double *gram) {
        if (!d || d > MOST_COLUMNS) return false;
        Numbers inverse(width), matrix(d * width), right(width), solution(width);
        for (int64_t j = 0; j < d; j++) inverse[j] = inverse_root(gram[j * d + j]);
        scale_matrix(matrix, gram, inverse, d, width);
        System system{matrix, right, inverse, 0, solution};
        bool regular;
        double trace;
        systems.solve(&system, 1, EPSILON, &regular, &trace);
        if (regular && trace * DOUBT * (double)d < 0.5) return false;
        Numbers columns(d * width), values(d);
        int64_t rank = eigenvectors(matrix, d, width, columns, values);
        double largest = 0, least = rank < d ? 0 : INFINITY;
        for (int64_t i = 0; i < rank; i++) {
            if (values[i] > largest) largest = values[i];
            if (values[i] < least) least = values[i];
        }
        return least <= DOUBT * largest;
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
    for (int64_t first = 0; first < count; first += at_a_time) {
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

/// Of each group of rows (start as in row_moments) whose moments are given: 0 where its Gram matrix keeps all digits or is not
/// finite, 1 where it may have lost some, but its rows have nothing there, 2 where they have.
GROUPLEARN_ENTRY void lost_directions(int64_t groups, int64_t d, double *const *moments, const double *x, const double *weight,
                                      const int64_t *start, uint8_t *found) {
    Arithmetic arithmetic;
    Moments all{moments[0], moments[1], moments[2], moments[3], moments[4], moments[5], moments[6]};
    int64_t width = in_lanes(d);
    SystemSolver systems(d, width);
    Numbers inverses(8 * width), matrices(8 * d * width), right(width), solutions(8 * width), row(width);
    for (int64_t first = 0; first < groups; first += 8) {
        int count = (int)(groups - first < 8 ? groups - first : 8);
        System side_by_side[8];
        bool regular[8], known[8];
        double trace[8];
        for (int i = 0; i < count; i++) {
            const double *gram = all.gram + (first + i) * d * d;
            double *inverse = inverses + i * width, *matrix = matrices + i * d * width, sum = 0;
            for (int64_t j = 0; j < d * d; j++) sum += __builtin_fabs(gram[j]) <= 1.7976931348623157e308 ? 0 : 1;
            known[i] = sum == 0;
            for (int64_t j = 0; j < d; j++) inverse[j] = known[i] ? inverse_root(gram[j * d + j]) : 0;
            if (known[i]) scale_matrix(matrix, gram, inverse, d, width);
            side_by_side[i] = {matrix, right, inverse, 0, solutions + i * width};
        }
        systems.solve(side_by_side, count, EPSILON, regular, trace);
        for (int i = 0; i < count; i++) {
            int64_t g = first + i;
            found[g] = 0;
            const double *matrix = matrices + i * d * width, *inverse = inverses + i * width;
            if (!known[i] || (regular[i] && trace[i] * DOUBT * (double)d < 0.5)) continue;
            Numbers columns(d * width), values(d);
            int64_t rank = eigenvectors(matrix, d, width, columns, values), known_well = 0;
            double largest = 0, left = 0;
            for (int64_t k = 0; k < rank; k++)
                if (values[k] > largest) largest = values[k];
            for (int64_t k = 0; k < rank; k++)
                if (values[k] > DOUBT * largest) memmove(columns + known_well++ * width, columns + k * width, width * sizeof(double));
            if (known_well == d) continue;
            // What the rows have beyond the directions that the Gram matrix knows.
            Moments m = all.at(g, d, 1);
            for (int64_t r = start[g]; r < start[g + 1]; r++) {
                for (int64_t j = 0; j < d; j++) row[j] = (x[r * d + j] - m.mean[j]) * inverse[j];
                for (int64_t k = 0; k < known_well; k++) {
                    const double *direction = columns + k * width;
                    add_multiple(row, -dot(row, direction, width), direction, width);
                }
                left += weight[r] * dot(row, row, width);
            }
            found[g] = __builtin_sqrt(left) > rounding_of(m, d) * __builtin_sqrt((double)(d - known_well)) ? 2 : 1;
        }
    }
}

/// Ridge of `own` columns no two of which are set together, and of p − 1 others and the intercept: products `square` (own) of the
/// first, `beside` (own, p) of them with the others, `rest` (p, p) of these, and those with the label. The first follow from the
/// others, which solve a Schur complement. `weights`: own, then p, of many solutions the smallest but for the last one's size.
GROUPLEARN_ENTRY void parted_least_squares(int64_t own, int64_t p, const double *square, const double *beside,
                                           const double *rest, const double *cross, const double *others, double l2,
                                           double *weights) {
    Arithmetic arithmetic;
    int64_t width = in_lanes(p), length = in_lanes(own + p);
    Numbers inverse(own), matrix(p * width), right(width), scale(width), solution(width), row(width), whole(length);
    for (int64_t i = 0; i < p; i++) {
        double penalty = i < p - 1 ? l2 : 0;
        for (int64_t j = 0; j < p; j++) matrix[i * width + j] = rest[i * p + j];
        matrix[i * width + i] += penalty;
        scale[i] = inverse_root(rest[i * p + i] + penalty);
        right[i] = others[i];
    }
    for (int64_t k = 0; k < own; k++) {
        inverse[k] = square[k] + l2 > 0 ? 1 / (square[k] + l2) : 0;
        memcpy(row, beside + k * p, p * sizeof(double));
        for (int64_t i = 0; i < p; i++)
            if (row[i] != 0) add_multiple(matrix + i * width, -(inverse[k] * row[i]), row, width);
        add_multiple(right, -(inverse[k] * cross[k]), row, width);
    }
    for (int64_t i = 0; i < p; i++) {
        right[i] *= scale[i];
        for (int64_t j = 0; j < p; j++) matrix[i * width + j] *= scale[i] * scale[j];
    }
    Numbers basis(p * width), values(p), null(p * length);
    double largest = directions(matrix, width, basis, p, values);
    int64_t lost = 0;
    // The weights of the first that follow from those of the others, with the label or without it.
    auto complete = [&](const double *last, bool with_label, double *to) {
        for (int64_t k = 0; k < own; k++) {
            double left = with_label ? cross[k] : 0;
            for (int64_t i = 0; i < p; i++) left -= beside[k * p + i] * last[i];
            to[k] = inverse[k] * left;
        }
        memcpy(to + own, last, p * sizeof(double));
        to[own + p - 1] = 0; // the intercept's size is of no consequence
    };
    for (int64_t i = 0; i < p; i++) {
        double *direction = basis + i * width;
        bool kept = values[i] > RANK * (largest > 1 ? largest : 1);
        if (kept) add_multiple(solution, dot(matrix + i * width, right, width) / values[i] / values[i], direction, width);
        if (kept) continue;
        for (int64_t j = 0; j < p; j++) row[j] = scale[j] * direction[j];
        complete(row, false, null + lost++ * length);
    }
    for (int64_t j = 0; j < p; j++) solution[j] *= scale[j];
    complete(solution, true, whole);
    take_out(whole, null, length, lost);
    memcpy(weights, whole, (own + p) * sizeof(double));
}

/// R (p, p) of QR of rows (n, p).
GROUPLEARN_ENTRY void triangle_of_rows(const double *rows, int64_t n, int64_t p, double *triangle) {
    Arithmetic arithmetic;
    grouplearn::triangle_of_rows(rows, n, p, triangle);
}

/// A square root F (p, p) of a symmetric matrix F'F (p, p).
GROUPLEARN_ENTRY void root_of_gram(const double *whole, int64_t p, double *root) {
    Arithmetic arithmetic;
    root_of(whole, p, root);
}
