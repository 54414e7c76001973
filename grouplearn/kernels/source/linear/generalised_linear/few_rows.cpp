// Generalised linear models of few rows, one by one, for what Newton's method over columns does not end: one row that outweighs all
// others leaves nothing of them in a matrix of columns, but a factor of a matrix of rows does not mind how large each of them is.
//
// An interior point method (Koh, Kim & Boyd 2007; Boyd & Vandenberghe 2004, chapter 11): penalties l1·|v| become barriers of
// |v| ≤ u, squared hinges those of a slack that is no less than 1 − margin, both least over u and the slack. Newton's steps go by
// the second derivatives that the dual numbers make of these, which stays good where a barrier is steep (Chan, Golub & Mulet 1999),
// and are shortened until the smooth objective goes down. What columns have of second derivatives is a diagonal, so that a step asks for
// one matrix of the rows (Sherman, Morrison & Woodbury), of unit diagonal or more.
#include "algebra/semidefinite.hpp"
#include "lanes/elementary.hpp"
#include "lanes/entry.hpp"
#include "linear/generalised_linear/newton.hpp"
#include <algorithm>

namespace grouplearn::generalised_linear {
namespace {

/// The most steps of a model, all barriers together; half of them are plenty.
constexpr int most_interior = 300;
/// What is left of a barrier from one to the next, once a step promises less than this share of what it hides.
constexpr double softer = 0.1, hidden_by_barrier = 0.3;
/// How near to its objective a model is taken, of what was asked for: not as near that rounding says otherwise.
constexpr double nearest = 1e-10, farthest_off = 1e-8, share_of_gap = 1e-2;
/// What an objective is unsure of by rounding, as a share; the shortest step; the least second derivative, as a share of the rows'.
constexpr double unsure_of = 1e-14, shortest = 1e-12, least_curve = 1e-14, least_without_penalties = 1e-10;
/// The distance from 1 to the next number.
constexpr double rounding_of_one = 2.220446049250313e-16;
/// Duals stay that far inside their bounds, as a share.
constexpr double inside_of = 1e-12, least_left = 1e-2;
/// How much of the asked for a model may lose where its smallest weights are made zero.
constexpr double zeroing = 0.1;

/// max(0, u)² of u = 1 − margin: least over ξ ≥ u of ξ² − μ·log((ξ − u)/√μ). It is ``ξ`` there, and ``root`` makes its second
/// derivative, 2ξ/√(u² + 2μ), where ``left`` is ξ − u.
struct Slack {
    D xi, left, root;
    Slack(D u, D mu) {
        root = grouplearn::root(fma(u, u, mu + mu));
        D sum = root + size(u), more = all(0.5) * sum, less = mu / sum;
        auto inside = zero<D>() < u;
        xi = select(inside, more, less), left = select(inside, less, more);
    }
};

struct FewRows {
    const double *x, *label, *weight; // (n, d), (n), (n)
    int64_t n, d;
    Loss loss;
    bool fit_intercept;
    int64_t high, wide; // n and d in lanes
    double total = 0;
    Numbers z, centre, inverse, mass, sign, constant;
    Looks looks;

    FewRows(const double *x, const double *label, const double *weight, int64_t n, int64_t d, Loss loss, bool fit_intercept)
        : x(x), label(label), weight(weight), n(n), d(d), loss(loss), fit_intercept(fit_intercept), high(in_lanes(n)), wide(in_lanes(d)),
          z(n * wide), centre(wide), inverse(wide), mass(high), sign(high), constant(high) {
        for (int64_t i = 0; i < n; i++) mass[i] = weight[i], total += weight[i];
        for (int64_t i = 0; i < high; i++) sign[i] = i < n ? label[i] : 0;
        if (has_constant(loss)) losses::constants(loss, label, n, constant);
        if (fit_intercept) find_centres();
        for (int64_t i = 0; i < n && !looks.stop(d / 4 + 1); i++)
            for (int64_t j = 0; j < d; j++) {
                double a = x[i * d + j] - centre[j];
                z[i * wide + j] = a;
                inverse[j] = __builtin_fma(mass[i] * a, a, inverse[j]);
            }
        for (int64_t j = 0; j < d; j++) inverse[j] = std::isfinite(inverse[j]) ? inverse_spread(inverse[j], total, centre[j]) : 0;
        for (int64_t i = 0; i < n && !looks.stop(wide / 8); i++)
            for (int64_t j = 0; j < wide; j += 8) store(z + i * wide + j, load(z + i * wide + j) * load(inverse + j));
    }

    double *row(int64_t i) { return z + i * wide; }

  private:
    /// The (lower) median, which rows of any size leave where it is.
    void find_centres() {
        Numbers sorted(n);
        double *first = sorted, *middle = first + (n - 1) / 2;
        for (int64_t j = 0; j < d && !looks.stop(8 * n); j++) {
            for (int64_t i = 0; i < n; i++) first[i] = x[i * d + j];
            std::nth_element(first, middle, first + n);
            centre[j] = *middle;
        }
    }
};

class InteriorPoint {
  public:
    InteriorPoint(FewRows &rows, double l1, double l2, double tolerance)
        : rows(rows), n(rows.n), d(rows.d), high(rows.high), wide(rows.wide), l1(l1), hinges(losses::of_slack(rows.loss)), penalised(l1 > 0 || l2 > 0),
          tolerance(tolerance < nearest ? nearest : tolerance > farthest_off ? farthest_off : tolerance), penalty(wide), ridge(wide),
          point(wide), slope(wide), scale(wide), step(wide), trial(wide), dual(wide), pull(wide), score(high), change(high), moved(high),
          slopes(high), bends(high), share(high), right(high), ones(high), scaled(n * wide), factor(n * high) {
        for (int64_t j = 0; j < d; j++) penalty[j] = l1 * rows.inverse[j], ridge[j] = l2 * rows.inverse[j] * rows.inverse[j];
        count = (double)((l1 > 0 ? 2 * d : 0) + (hinges ? n : 0));
    }

    /// Returns whether it came to the least objective, as near as was asked for.
    bool solve() {
        begin();
        bool anew = false; // whether no step went down and duals were made anew
        for (int iteration = 0; iteration < most_interior && !stopped(); iteration++) {
            double smooth = look();
            double promised = aim();
            if (!std::isfinite(promised)) return false;
            double length = go(smooth, promised);
            double objective = settle(length);
            bool stays = length == 0, rests = 0.5 * promised <= (count > 0 ? hidden_by_barrier * mu * count : share_of_gap * tolerance * objective) ||
                                             0.5 * promised <= unsure_of * objective;
            if (stays && !rests && !anew && count > 0) {
                anew = true;
                continue;
            }
            anew = false;
            if (objective <= no_loss * rows.total) return finish();
            if (!rests && !stays) continue;
            double last = share_of_gap * tolerance * objective / (count > 0 ? count : 1);
            if (mu <= last) return (rests || count > 0 || 0.5 * promised <= tolerance * objective) && finish();
            mu = softer * mu < 0.5 * last ? 0.5 * last : softer * mu;
        }
        return false;
    }

    double weight(int64_t j) const { return point.start()[j] * rows.inverse.start()[j]; }
    double intercept() const {
        double lift = level;
        for (int64_t j = 0; j < d; j++) lift -= weight(j) * rows.centre.start()[j];
        return rows.fit_intercept ? lift : 0;
    }
    double objective() const { return value; }

  private:
    FewRows &rows;
    int64_t n, d, high, wide;
    double l1;
    bool hinges, penalised;
    double tolerance, count, mu = 0, level = 0, level_step = 0, value = 0;
    // By column: penalties, where it is, slopes there, 1/√ of second derivatives, the step, where it leads, duals of the penalties.
    Numbers penalty, ridge, point, slope, scale, step, trial, dual, pull;
    // By row: scores, those of the step, slopes and second derivatives, duals of slacks, and right sides.
    Numbers score, change, moved, slopes, bends, share, right, ones;
    Numbers scaled, factor; // rows times ``scale``, and the factor of their products

    D unit(int64_t i) const { return load(rows.mass.start() + i); }

    /// Σ weight·loss at scores, of smooth hinges if ``barrier``.
    double loss_at(const double *scores, double barrier) const {
        D sum = zero<D>(), one = all(1.0);
        for (int64_t i = 0; i < high; i += 8) {
            D label = load(rows.sign.start() + i), weight = unit(i), loss = zero<D>(), ignored;
            auto weighs = zero<D>() < weight;
            if (hinges && barrier > 0) {
                D sign = select(all(0.5) < label, minus(one), one), m = all(barrier) / select(weighs, weight, one);
                Slack slack(fma(sign, load(scores + i), one), m);
                loss = slack.xi * slack.xi - m * logarithm(slack.left / root(m));
            } else
                with_loss_of_a_score(Objective<D>{rows.loss, one}, [&](const auto &kind) {
                    D bend;
                    kind.at(load(scores + i), label, loss, ignored, bend);
                    if (kind.with_constant) loss += load(rows.constant.start() + i);
                });
            sum += select(weighs, weight * loss, zero<D>());
        }
        return grouplearn::sum(sum);
    }

    /// The penalties at ``v``, smooth ones if ``barrier``.
    double penalties_at(const double *v, double barrier) const {
        D sum = zero<D>(), m = all(barrier);
        for (int64_t j = 0; j < wide; j += 8) {
            D at = load(v + j), pulled = load(penalty.start() + j) * at, more = size(pulled);
            if (l1 > 0 && barrier > 0) {
                more = m + root(fma(pulled, pulled, m * m));
                more = more - m * logarithm(more / m);
            }
            sum += fma(all(0.5) * load(ridge.start() + j) * at, at, more);
        }
        return grouplearn::sum(sum);
    }

    void find_scores() {
        for (int64_t i = 0; i < n && !rows.looks.stop(wide / 8); i++) score[i] = level + dot(rows.row(i), point, wide);
    }

    /// Weights are zero, and the intercept is that of the mean label.
    void begin() {
        double sum = 0;
        for (int64_t i = 0; i < n; i++) sum = __builtin_fma(rows.mass[i], rows.label[i], sum);
        double mean = sum / rows.total;
        if (rows.fit_intercept && !hinges) level = losses::with(rows.loss, [mean](auto kind) { return decltype(kind)::start(mean); });
        find_scores();
        value = loss_at(score, 0);
        if (count > 0) mu = value / count;
    }

    /// The smooth objective where it is, with its slopes; also its duals, at first and where they are made anew.
    double look() {
        D one = all(1.0);
        for (int64_t i = 0; i < high; i += 8) {
            D label = load(rows.sign + i), weight = unit(i), loss, slope = zero<D>(), bend = zero<D>();
            auto weighs = zero<D>() < weight;
            if (hinges) {
                D sign = select(all(0.5) < label, minus(one), one), m = all(mu) / select(weighs, weight, one);
                Slack slack(fma(sign, load(score + i), one), m);
                D twice = slack.xi + slack.xi, own = load(share + i);
                own = select(zero<D>() < own, own, twice);
                store(share + i, own);
                slope = sign * twice;
                bend = smaller(own / slack.root, all(2.0));
            } else
                with_loss_of_a_score(Objective<D>{rows.loss, one}, [&](const auto &kind) { kind.at(load(score + i), label, loss, slope, bend); });
            store(slopes + i, select(weighs, weight * slope, zero<D>()));
            store(bends + i, select(weighs, weight * bend, zero<D>()));
        }
        for (int64_t j = 0; j < wide; j += 8) store(slope + j, load(ridge + j) * load(point + j));
        for (int64_t i = 0; i < n && !rows.looks.stop(wide / 8); i++) add_multiple(slope, slopes[i], rows.row(i), wide);
        for (int64_t j = 0; j < wide; j += 8) {
            D own = load(ridge + j), l = load(penalty + j), pulled = l * load(point + j);
            if (l1 > 0) {
                D m = all(mu), r = root(fma(pulled, pulled, m * m)), sum = m + r, now = l * (pulled / sum);
                D y = load(dual + j);
                store(pull + j, now);
                store(slope + j, load(slope + j) + now);
                own += larger(l * ((l - y * (pulled / r)) / sum), zero<D>());
            }
            store(scale + j, own);
        }
        for (int64_t j = 0; j < wide; j += 8) store(trial + j, zero<D>());
        for (int64_t i = 0; i < n && !rows.looks.stop(wide / 4); i++) {
            D bend = all(bends[i]);
            for (int64_t j = 0; j < wide; j += 8) {
                D a = load(rows.row(i) + j);
                store(trial + j, fma(bend, a * a, load(trial + j)));
            }
        }
        for (int64_t j = 0; j < d; j++) {
            double least = (penalised ? least_curve : least_without_penalties) * trial[j], own = scale[j] > least ? scale[j] : least;
            scale[j] = rows.inverse[j] > 0 && own > 0 ? 1 / __builtin_sqrt(own) : 0;
        }
        return loss_at(score, mu) + penalties_at(point, mu);
    }

    /// Newton's step; returns what it goes down by, were the slope what it is here all the way.
    double aim() {
        for (int64_t i = 0; i < n && !rows.looks.stop(wide / 4); i++)
            for (int64_t j = 0; j < wide; j += 8) store(scaled + i * wide + j, load(rows.row(i) + j) * load(scale + j));
        for (int64_t j = 0; j < wide; j += 8) store(trial + j, load(slope + j) * load(scale + j));
        for (int64_t i = 0; i < n; i++) {
            double root_of = __builtin_sqrt(bends[i]), *line = factor + i * high;
            change[i] = root_of; // until it is the step's score
            for (int64_t k = 0; k <= i; k++) {
                if (rows.looks.stop(wide / 8 + 4)) return NAN;
                line[k] = root_of * change[k] * dot(scaled + i * wide, scaled + k * wide, wide);
            }
            line[i] += 1;
            right[i] = -root_of * dot(scaled + i * wide, trial, wide);
            ones[i] = root_of;
        }
        decompose();
        solve(right);
        level_step = 0;
        if (rows.fit_intercept) {
            solve(ones);
            double slope_of_level = 0, across = 0, along = 0;
            for (int64_t i = 0; i < n; i++) {
                slope_of_level += slopes[i];
                across = __builtin_fma(change[i], ones[i], across);
                along = __builtin_fma(change[i], right[i], along);
            }
            if (across > 0) level_step = -(slope_of_level + along) / across;
            for (int64_t i = 0; i < n; i++) right[i] = __builtin_fma(level_step, ones[i], right[i]);
        }
        for (int64_t i = 0; i < n && !rows.looks.stop(wide / 8); i++) add_multiple(trial, change[i] * right[i], scaled + i * wide, wide);
        double promised = 0;
        for (int64_t j = 0; j < d; j++) {
            step[j] = -trial[j] * scale[j];
            promised = __builtin_fma(trial[j], trial[j], promised); // of second derivatives 1/scale²
        }
        for (int64_t i = 0; i < n && !rows.looks.stop(wide / 8); i++) {
            change[i] = level_step + dot(rows.row(i), step, wide);
            promised = __builtin_fma(bends[i] * change[i], change[i], promised);
        }
        return promised;
    }

    /// The factor of 1 + products, row by row. Rounding alone may leave nothing of a row on its diagonal.
    void decompose() {
        for (int64_t i = 0; i < n; i++) {
            double *line = factor + i * high, whole = line[i];
            for (int64_t k = 0; k <= i; k++) {
                if (rows.looks.stop(k / 8 + 4)) return;
                const double *other = factor + k * high;
                double left = line[k] - dot_of(line, other, k);
                line[k] = k < i ? left / other[k] : __builtin_sqrt(left > rounding_of_one * whole ? left : rounding_of_one * whole);
            }
        }
    }

    void solve(double *x) {
        for (int64_t i = 0; i < n && !rows.looks.stop(i / 8 + 4); i++) x[i] = (x[i] - dot_of(factor + i * high, x, i)) / factor[i * high + i];
        for (int64_t i = n - 1; i >= 0 && !rows.looks.stop(i / 8 + 4); i--) {
            const double *line = factor + i * high;
            x[i] /= line[i];
            for (int64_t k = 0; k < i; k++) x[k] = __builtin_fma(-x[i], line[k], x[k]);
        }
    }

    /// How much of the step goes down far enough (Armijo); none if the shortest does not.
    double go(double from, double promised) {
        for (double length = 1; length >= shortest && !rows.looks.stop((wide + 8 * high) / 4); length *= shorter) {
            D l = all(length);
            for (int64_t i = 0; i < high; i += 8) store(moved + i, fma(l, load(change + i), load(score + i)));
            for (int64_t j = 0; j < wide; j += 8) store(trial + j, fma(l, load(step + j), load(point + j)));
            double there = loss_at(moved, mu) + penalties_at(trial, mu);
            if (there <= from - sufficient * length * promised + unsure_of * __builtin_fabs(from)) return length;
        }
        return 0;
    }

    /// Go there, with the duals that belong to the step; returns the objective.
    double settle(double length) {
        if (length == 0) { // made anew
            share_anew();
            return value;
        }
        level = __builtin_fma(length, level_step, level);
        D l = all(length), one = all(1.0);
        for (int64_t i = 0; hinges && i < high; i += 8) {
            D label = load(rows.sign + i), weight = unit(i), own = load(share + i);
            auto weighs = zero<D>() < weight;
            D sign = select(all(0.5) < label, minus(one), one), m = all(mu) / select(weighs, weight, one);
            Slack slack(fma(sign, load(score + i), one), m);
            D twice = slack.xi + slack.xi, bend = smaller(own / slack.root, all(2.0));
            D next = fma(l, fma(sign * bend, load(change + i), twice) - own, own);
            store(share + i, larger(next, all(least_left) * smaller(own, twice)));
        }
        for (int64_t j = 0; l1 > 0 && j < d; j++) {
            double own = dual[j], curve = scale[j] > 0 ? 1 / (scale[j] * scale[j]) - ridge[j] : 0, bound = penalty[j] * (1 - inside_of);
            double next = __builtin_fma(length, __builtin_fma(curve, step[j], pull[j]) - own, own);
            dual[j] = next > bound ? bound : next < -bound ? -bound : next;
        }
        for (int64_t j = 0; j < wide; j += 8) store(point + j, fma(l, load(step + j), load(point + j)));
        find_scores();
        return value = loss_at(score, 0) + penalties_at(point, 0);
    }

    void share_anew() {
        for (int64_t i = 0; i < high; i++) share[i] = 0;
        for (int64_t j = 0; l1 > 0 && j < wide; j++) dual[j] = pull[j];
    }

    /// Make zero what the barrier alone keeps from it: as many of the smallest penalties as leave the objective where it is.
    bool finish() {
        if (!(l1 > 0)) return std::isfinite(value);
        double reached = value, kept_level = level;
        memcpy(step, point, (size_t)wide * sizeof(double));
        for (double most = __builtin_sqrt(mu * reached); most > mu; most *= 0.1) {
            for (int64_t j = 0; j < d; j++) point[j] = penalty[j] * __builtin_fabs(step[j]) <= most ? 0 : step[j];
            find_scores();
            value = loss_at(score, 0) + penalties_at(point, 0);
            if (stopped() || value <= reached + zeroing * tolerance * reached) return true;
        }
        memcpy(point, step, (size_t)wide * sizeof(double));
        level = kept_level, value = reached;
        return true;
    }
};

} // namespace

/// After how many epochs a model of so few rows is left to another method, 0 for never; see ``are_few``.
GROUPLEARN_ENTRY int64_t generalised_linear_epochs_of_few(int64_t loss, int64_t outputs, int64_t rows, int64_t columns, int64_t dense) {
    if (!are_few((Loss)loss, outputs, rows, columns)) return 0;
    return dense ? epochs_of_few : epochs_of_few_and_wide;
}

/// Models of ``configs`` penalties on rows (n, d): weights (C, d), intercepts, objectives and whether they came to the least (C,). Losses are
/// those of one score, without a kink.
GROUPLEARN_ENTRY void solve_generalised_linear_of_few_rows(const double *x, const double *label, const double *weight, int64_t n, int64_t d,
                                                           int64_t loss, int64_t fit_intercept, const double *l1, const double *l2,
                                                           const double *tolerance, int64_t configs, double *weights, double *intercept,
                                                           double *value, uint8_t *converged) {
    Arithmetic arithmetic;
    FewRows rows(x, label, weight, n, d, (Loss)loss, fit_intercept != 0);
    for (int64_t c = 0; c < configs && !stopped(); c++) {
        InteriorPoint model(rows, l1[c], l2[c], tolerance[c]);
        converged[c] = model.solve();
        for (int64_t j = 0; j < d; j++) weights[c * d + j] = model.weight(j);
        intercept[c] = model.intercept();
        value[c] = model.objective();
    }
}

} // namespace grouplearn::generalised_linear
