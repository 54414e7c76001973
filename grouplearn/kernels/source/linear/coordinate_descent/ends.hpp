// What an epoch has come to: whether it was the last, and, after every few, a leap along where the weights have been going.
//
// Of blocks that say much the same every epoch goes a little further the same way. So the weights after each of the last epochs
// are kept, and from how they moved follows where such moves would end (Anderson 1965; Bertrand & Massias 2021). The losses
// of a few points on that way are taken by the pass that ends the epoch, and the models go to the one of the least objective.
#pragma once
#include "linear/coordinate_descent/blocks.hpp"

namespace grouplearn::coordinate_descent {

/// Of an epoch's gain, as a multiple of the tolerance: where more was gained, the ratio of two gains says little of the rest. Where
/// columns say much the same, great gains are followed by ten thousands that are small and hardly change.
constexpr double MOST_GAIN = 0.01;
/// The objective counts as no less than this share of the first one: where it goes to 0, shares of it say nothing.
constexpr double LEAST_OBJECTIVE = 1e-6;
/// A gain that is rounding.
constexpr double NO_GAIN = 1e-15;
/// The rounding of a sum of losses, as a share of the numbers of which each is the difference.
constexpr double ROUNDING = 0x1p-50;
/// A gain that has a sign.
constexpr double NEARLY_NOTHING = 1e-300;

double larger_of(double one, double other) { return one > other ? one : other; }

/// The points of a leap whose losses are taken, as shares of the way; the first is where the epoch ended. Where moves hardly grow
/// smaller, nobody knows where they end: far beyond what seems to be the end.
constexpr double POINTS[] = {0, 0.25, 0.5, 1, 2, 8, 32, 256};
constexpr int64_t N_POINTS = sizeof POINTS / sizeof *POINTS;
/// A leap follows from so many moves; the first of them begins where epoch FIRST ended, each other one at the last leap.
constexpr int64_t MOVES = 5, FIRST = 3;
/// What is added to products of moves, as a share of all, so that moves that are alike do no harm.
constexpr double ALIKE = 1e-14;

/// How many weights are kept of the epochs since the last leap, before such an epoch ends; 0 is the end of the start.
inline int64_t kept_before(int64_t epoch) { return epoch <= FIRST ? 0 : 1 + (epoch - FIRST - 1) % MOVES; }

/// Whether such an epoch ends with a leap.
inline bool leaps(const Group &group, int64_t epoch) {
    return group.leaps && group.n_blocks > 0 && kept_before(epoch) == MOVES;
}

/// The weights of one model after the last epochs, `kept` (MOVES, columns + 1, groups, outputs, lanes), and now.
struct Path {
    const Group &group;
    int64_t model;
    const double *kept, *now;

    int64_t columns() const { return group.first[group.n_blocks] + 1; }
    /// Calls `work` with the place of each weight, and how large it is as a move of its largest row.
    template <class Work> void each(Work work) const {
        const Shape &shape = group.shape;
        for (int64_t j = 0; j < columns() && !stop(MOVES * shape.outputs); j++)
            for (int64_t k = 0; k < shape.outputs && group.unit[j] > 0; k++)
                work(j * shape.column() + shape.at(model / shape.lanes, k) + model % shape.lanes, 1 / group.unit[j]);
    }
    double at(int64_t number, int64_t place) const {
        return number < MOVES ? kept[number * columns() * group.shape.column() + place] : now[place];
    }
    double moved(int64_t number, int64_t place) const { return at(number + 1, place) - at(number, place); }
    /// How far along each move to leap from now: to the mean of where moves went, weighed so that the sum of the moves themselves
    /// is least, which is 0 where they end; on by the last one where that is not known.
    void weigh(double *of_move) const {
        double product[MOVES][MOVES] = {}, share[MOVES], all = 0, total = 0;
        each([&](int64_t place, double size) {
            double move[MOVES];
            for (int64_t i = 0; i < MOVES; i++) {
                move[i] = moved(i, place) * size;
                for (int64_t j = 0; j <= i; j++) product[i][j] += move[i] * move[j];
            }
        });
        for (int64_t i = 0; i < MOVES; i++) all += product[i][i], of_move[i] = i == MOVES - 1;
        if (!(all > 0 && all < INFINITY)) return;
        for (int64_t i = 0; i < MOVES; i++) // products = L·L'
            for (int64_t j = 0; j <= i; j++) {
                double rest = product[i][j] / all + (i == j ? ALIKE : 0);
                for (int64_t l = 0; l < j; l++) rest -= product[i][l] * product[j][l];
                if (i == j && !(rest > 0)) return;
                product[i][j] = i == j ? __builtin_sqrt(rest) : rest / product[j][j];
            }
        for (int64_t i = 0; i < MOVES; i++) { // L·L'·share = 1
            share[i] = 1;
            for (int64_t l = 0; l < i; l++) share[i] -= product[i][l] * share[l];
            share[i] /= product[i][i];
        }
        for (int64_t i = MOVES - 1; i >= 0; i--) {
            for (int64_t l = i + 1; l < MOVES; l++) share[i] -= product[l][i] * share[l];
            share[i] /= product[i][i], total += share[i];
        }
        if (!(total > 0 && total < INFINITY)) return;
        of_move[0] = 0; // the mean is after a move or another: less all moves since
        for (int64_t i = 1; i < MOVES; i++) of_move[i] = of_move[i - 1] - share[i - 1] / total;
    }
    /// Where to leap from now. With l1 a weight that is 0 stays so.
    void direction(double *to) const {
        double of_move[MOVES];
        weigh(of_move);
        bool sparse = group.penalties.l1[model] > 0;
        each([&](int64_t place, double) {
            double sum = 0;
            for (int64_t i = 0; i < MOVES; i++) sum += of_move[i] * moved(i, place);
            to[place] = sparse && now[place] == 0 ? 0 : sum;
        });
    }
};

/// Where the models of a group that are not done would leap, in the shape of their weights.
void find_leap(const Group &group, const double *kept, const double *weights, const double *done, double *leap) {
    memset(leap, 0, (size_t)((group.first[group.n_blocks] + 1) * group.shape.column()) * sizeof(double));
    for (int64_t model = 0; model < group.models(); model++)
        if (done[model] == 0) Path{group, model, kept, weights}.direction(leap);
}

/// The weights of a model, and, where it may leap, where to; NULL else.
struct Ahead {
    const double *weights, *leap;

    double at(int64_t place, double share) const {
        return leap ? __builtin_fma(share, leap[place], weights[place]) : weights[place];
    }
};

/// Σ loss + l1·‖w‖₁ + ½·l2·‖w‖² of a model at a point of a leap, from the `sums` of ``measure`` there.
double objective_of(const Group &group, int64_t model, const double *sums, const Ahead &ahead, double share) {
    const Shape &shape = group.shape;
    int64_t g = model / shape.lanes, lane = model % shape.lanes, columns = group.first[group.n_blocks];
    double objective = 0;
    for (int64_t k = 0; k < shape.outputs; k++) {
        double sizes = 0, squares = 0;
        for (int64_t j = 0; j < columns; j++) {
            double weight = ahead.at(j * shape.column() + shape.at(g, k) + lane, share);
            sizes += __builtin_fabs(weight), squares += weight * weight;
        }
        double penalty = group.penalties.l1[model] * sizes + 0.5 * group.penalties.l2[model] * squares;
        objective += sums[3 * shape.at(g, k) + lane] + penalty;
    }
    return objective;
}

/// Moves a model to the point of its leap where the objective is least, if that is less than the `objective` where it is, and
/// returns the number of that point.
int64_t leap_of(const Group &group, int64_t model, const double *sums, double *weights, const double *leap, double &objective) {
    const Shape &shape = group.shape;
    int64_t best = 0, apart = shape.column(), columns = group.first[group.n_blocks] + 1;
    for (int64_t point = 1; point < N_POINTS && !stop(columns * shape.outputs / 4); point++) {
        double found = objective_of(group, model, sums + 3 * point * apart, {weights, leap}, POINTS[point]);
        if (found < objective) objective = found, best = point;
    }
    for (int64_t j = 0; j < columns && best; j++)
        for (int64_t k = 0; k < shape.outputs; k++) {
            int64_t place = j * apart + shape.at(model / shape.lanes, k) + model % shape.lanes;
            weights[place] = Ahead{weights, leap}.at(place, POINTS[best]);
        }
    return best;
}

/// Whether an epoch of such a `gain`, after one of the gain `last`, leaves less than `enough` to come, were each gain to come
/// the same share of the one before.
bool leaves_little(double gain, double last, double enough) {
    double share = gain / last;
    share = share < 0.9999 ? share : 0.9999;
    return last < INFINITY && gain <= MOST_GAIN * enough && gain * share <= enough * (1 - share);
}

/// What the intercept's own step would gain.
double of_intercept(const Group &group, int64_t model, const double *sums) {
    double gain = 0;
    for (int64_t k = 0; k < group.shape.outputs && group.fit_intercept; k++) {
        const double *own = sums + 3 * group.shape.at(model / group.shape.lanes, k) + model % group.shape.lanes;
        double slope = own[group.shape.lanes], bend = own[2 * group.shape.lanes];
        gain += bend > 0 ? 0.5 * slope * slope / bend : 0;
    }
    return gain;
}

/// Whether what pulled at columns in an epoch, and the intercept's own step, show that an objective is near its minimum.
bool is_known(const Group &group, int64_t model, double pull, double of_level, double enough) {
    double l1 = group.penalties.l1[model], l2 = group.penalties.l2[model];
    if (l2 > 0) return pull / (2 * l2) + of_level <= enough;
    return l1 > 0 && pull <= __builtin_sqrt(group.penalties.tolerance[model]) * l1 && of_level <= enough;
}

/// What rounding may add to the objective of a model whose loss is a difference of numbers as large as its second derivatives (of
/// labels that it predicts exactly nothing else is left); 0 of other losses.
double rounding_of(const Group &group, int64_t model, const double *sums) {
    if (!losses::has_constant(group.shape.loss)) return 0;
    double bends = 0;
    for (int64_t k = 0; k < group.shape.outputs; k++)
        bends += sums[3 * group.shape.at(model / group.shape.lanes, k) + model % group.shape.lanes + 2 * group.shape.lanes];
    return bends < INFINITY ? ROUNDING * bends : 0;
}

/// What an epoch has come to, from the `sums` of ``measure``; then the leap, if any, `before` as the weights are now, and the
/// intercept's step, for models that go on. In an epoch that does not have all blocks nobody is done; where blocks are chosen,
/// all have a round in the next one if the end may be near.
///
/// With l2 the objective is at most Σ slope²/(2·l2) above the least (it is as convex as its penalty), slopes being what pulled
/// at columns in this epoch. With l1 alone it is above the least by at most 2·pull/l1 of itself, where no column was pulled at by
/// more than `pull` (both ‖w‖₁ and that of the best are at most objective/l1), and as a rule by about the square of that: so the
/// end is known where pull <= √tolerance·l1. Gains do not say that: where columns say the same, they are soon too small to be
/// seen, and go on for a million epochs. Without penalties there is no such bound, and little must be left twice on end: an epoch
/// of great gains may be followed by thousands of small ones, and the first of these says that they end. Of models that are done
/// `pull` is 0 where their end is known.
void close(const Group &group, const double *sums, double *weights, double *before, double *radius, const double *leap,
           const Progress &progress, Order order) {
    bool all = order.has_all(), near = false;
    int64_t apart = group.shape.column(), columns = group.first[group.n_blocks];
    std::vector<double> here(sums, sums + 3 * apart); // the sums where each model is in the end
    for (int64_t model = 0; model < group.models(); model++) {
        if (progress.done[model] != 0 || stop(columns * group.shape.outputs / 4)) continue;
        double objective = objective_of(group, model, sums, {weights, nullptr}, 0), gain = progress.loss[model] - objective;
        double last = __builtin_fabs(progress.gain[model]), pull = progress.pull[model];
        double l1 = group.penalties.l1[model], l2 = group.penalties.l2[model];
        bool again = progress.gain[model] < 0, first = progress.start[model] != progress.start[model];
        if (first) progress.start[model] = objective;
        progress.loss[model] = objective, progress.gain[model] = first ? INFINITY : __builtin_fabs(gain);
        progress.pull[model] = 0;
        if (first || !(__builtin_fabs(objective) < INFINITY)) continue;
        double scale = LEAST_OBJECTIVE * progress.start[model];
        scale = objective > scale ? objective : scale;
        double rounding = rounding_of(group, model, sums), enough = larger_of(group.penalties.tolerance[model] * scale, rounding);
        bool none = gain <= larger_of(NO_GAIN * scale, rounding), little = leaves_little(gain, last, enough);
        bool known = is_known(group, model, pull, of_intercept(group, model, sums), enough);
        bool ends = known || (l2 == 0 && (l1 > 0 ? none && again : none || (little && again)));
        progress.done[model] = ends && all ? 1 : 0;
        if (ends && all && !known) progress.pull[model] = larger_of(pull, NEARLY_NOTHING);
        bool goes = leap && progress.done[model] == 0;
        int64_t point = goes ? leap_of(group, model, sums, weights, leap, progress.loss[model]) : 0;
        for (int64_t k = 0; k < group.shape.outputs && point; k++) {
            int64_t place = 3 * group.shape.at(model / group.shape.lanes, k) + model % group.shape.lanes;
            for (int64_t end = place + 3 * group.shape.lanes; place < end; place += group.shape.lanes)
                here[place] = sums[3 * point * apart + place];
        }
        if (point || (!none && !little && !ends)) continue;
        progress.gain[model] = -larger_of(progress.gain[model], NEARLY_NOTHING); // below 0 where the end may be near
        near |= progress.done[model] == 0;
    }
    if (order.chooses()) order.begin(near);
    memcpy(before, weights, (size_t)((columns + 1) * apart) * sizeof(double));
    if (!group.fit_intercept) return;
    move_intercept(group, here.data(), weights + columns * apart, radius ? radius + columns * apart : nullptr, progress);
}

} // namespace grouplearn::coordinate_descent
