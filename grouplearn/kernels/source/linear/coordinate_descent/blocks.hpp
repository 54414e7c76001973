// What becomes of a block's columns from their sums, of the intercept with them, and of weights that say the same; which block is
// next.
#pragma once
#include "linear/coordinate_descent/rows.hpp"
#include "lanes/together.hpp"
#include <algorithm>
#include <vector>

namespace grouplearn::coordinate_descent {

/// The radius of a column is no less than this share of what moves its largest row by 1.
constexpr double LEAST_RADIUS = 1.0 / 64;
/// A sum over columns is 0 where it is no more than this share of what was added: 2^-44.
constexpr double NOTHING = 0x1p-44;
/// Points that are looked at for a level, most of the time a few.
constexpr int MOST_LOOKS = 64;
/// A block is chosen at the latest after so many rounds for each block there is.
constexpr int64_t LATEST = 4;

/// What is told per model, (groups, lanes).
struct Penalties {
    const double *l1, *l2, *tolerance;
};

/// How far the models of the lanes are, (groups, lanes) each; `done` is 1 where a model stays as it is, `pull` the sum of squares
/// of what pulled at columns when they were moved in this epoch (slopes of the objective where there is no l1), or the most of it.
struct Progress {
    double *loss, *start, *gain, *done, *pull;
};

struct Group {
    Shape shape;
    int64_t n_blocks, n_cells;
    const int64_t *first;     // (n_blocks + 1): the first column of each block, and the number of columns
    const int64_t *complete;  // (n_blocks): every row has one entry in it, which is 1
    const double *unit;       // (columns + 1): 1/max|x|, 0 for a column of zeros; 1 for the intercept
    bool fit_intercept, leaps;
    Penalties penalties;

    int64_t width(int64_t block) const { return first[block + 1] - first[block]; }
    int64_t models() const { return shape.groups * shape.lanes; }
};

/// Whether all models of a lane group stay as they are.
inline bool all_done(const Shape &shape, int64_t group, const double *done) {
    for (int64_t lane = 0; lane < shape.lanes; lane++)
        if (done[group * shape.lanes + lane] == 0) return false;
    return true;
}

/// The problem of one column: minimise slope·u + ½·bend·u² + l1·|w + u − v| + ½·l2·(w + u − v)² over |u| <= most, by which rows
/// with a 1 in it move, when the level of all rows moves by v.
struct Column {
    double slope, bend, l1, l2;

    /// Whether no row says anything of the weight any more (a hinge beyond its margin is flat), so that l1 takes it to 0.
    bool is_free() const { return l1 > 0 && bend + l2 == 0 && __builtin_fabs(slope) <= l1; }

    /// Moves the weight and returns u; `pull` is what there was to gain by, `gained` what the quadratic falls by.
    double move(double v, double most, double &weight, double &pull, double &gained) const {
        double there = slope + bend * v, total = bend + l2, old = weight, step = 0;
        if (total > 0 && total < INFINITY) {
            double at = bend * weight - there, beyond = at > l1 ? at - l1 : at < -l1 ? at + l1 : at == at ? 0 : at;
            step = l1 > 0 ? beyond / total - weight : -(there + l2 * weight) / total;
        } else if (slope != slope || total != total) {
            step = NAN;
        } else if (is_free()) {
            step = -weight;
        }
        double u = step + v;
        pull = bend < INFINITY ? bend * u + l2 * step : INFINITY;
        if (is_free() && weight != 0) pull = l1; // whatever was gained: a loss that is flat does not say how far
        if (u > most || u < -most) u = u > most ? most : -most, step = u - v;
        weight = step == -weight ? 0 : weight + step; // a weight that goes to 0 is 0
        double of_l1 = l1 * (__builtin_fabs(old) - __builtin_fabs(weight)), of_l2 = 0.5 * l2 * (old * old - weight * weight);
        gained = of_l1 + of_l2 - u * (slope + 0.5 * bend * u);
        return u;
    }
};

/// What pulled at columns, with one more: the sum of squares; without l2 the most.
inline double with_pull(double pulls, double pull, double l2) {
    double most = __builtin_fabs(pull);
    return l2 > 0 ? pulls + pull * pull : most > pulls || most != most ? most : pulls;
}

/// How far the rows of a column may move next, which have moved by u: twice as far, or half of what they might.
inline double next_radius(double most, double u, double unit) {
    double next = most < INFINITY ? 0.5 * most : 0, twice = 2 * __builtin_fabs(u);
    next = twice > next ? twice : next;
    return next > LEAST_RADIUS * unit ? next : LEAST_RADIUS * unit;
}

/// The columns of one output of one model side by side, a complete block's: what the level of all rows, v, says of them.
class Level {
  public:
    Level(int64_t columns, double l1, double l2)
        : columns(columns), l1(l1), l2(l2), weight(columns), slope(columns), bend(columns), most(in_lanes(columns), false) {
        std::fill_n((double *)most, in_lanes(columns), INFINITY); // those to spare say nothing
    }

    void set(int64_t j, double of_weight, double of_slope, double of_bend, double of_most) {
        weight[j] = of_weight, slope[j] = of_slope, bend[j] = of_bend, most[j] = of_most;
    }

    /// The v that minimises the sum of the columns' least costs, 0 where there is none: the root of its derivative, which never
    /// falls, by Newton's steps, halves where they do not get ahead, and never from the far side.
    double best() {
        double reached = 0, steep, rises, beyond = 0, step = typical();
        if (!(l1 + l2 > 0) || !derivative(0, steep, rises)) return 0;
        bool down = steep > 0, ends = false;
        for (int look = 0; look < MOST_LOOKS && !stop(8 * columns); look++) {
            double next = rises > 0 ? reached - steep / rises : INFINITY;
            if (!ends && !(__builtin_fabs(next - reached) <= step)) next = down ? reached - step : reached + step, step *= 2;
            bool inside = down ? beyond < next && next < reached : reached < next && next < beyond;
            if (ends && (!inside || look % 3 == 2)) next = 0.5 * (reached + beyond);
            if (next == reached || (ends && next == beyond)) break;
            double there, bends;
            bool left = derivative(next, there, bends);
            if (left && (there > 0) != down) {
                beyond = next, ends = true;
                continue;
            }
            reached = next, steep = there, rises = bends;
            if (!left) break;
        }
        return reached;
    }

  private:
    int64_t columns;
    double l1, l2;
    Numbers weight, slope, bend, most;

    /// A first guess how far the level may go: the largest weight there is, or would be.
    double typical() {
        double largest = 0;
        for (int64_t j = 0; j < columns; j++) {
            double total = bend[j] + l2, moves = total > 0 ? __builtin_fabs(slope[j]) / total : 0;
            double size = __builtin_fabs(weight[j]) + moves;
            largest = size > largest && size < INFINITY ? size : largest;
        }
        return largest > 0 ? largest : 1;
    }

    /// The first and second derivative by v of the columns' least costs; false where the first is 0 but for rounding, or is not
    /// known.
    bool derivative(double v, double &first, double &second) {
        D sums = zero<D>(), bends = zero<D>(), sizes = zero<D>(), penalty = all(l1), square = all(l2), none = zero<D>();
        for (int64_t j = 0; j < columns; j += 8) {
            D h = load(bend + j), s = load(slope + j), x = load(weight + j) - all(v), reach = load(most + j);
            D total = h + square, at = h * x - s, over = larger(size(at) - penalty, none), goes_to = over / total;
            goes_to = select(at < none, minus(goes_to), goes_to);
            D free = l1 > 0 ? select(penalty < size(s), load(weight + j), none) : load(weight + j); // as Column::is_free has it
            goes_to = select(none < total, goes_to, free);
            D u = goes_to - x, bounded = smaller(larger(u, minus(reach)), reach), w = x + bounded;
            D sign = select(none < w, all(1.0), select(w < none, all(-1.0), none));
            D of_loss = s + h * u, of_penalty = minus(square * w + penalty * sign);
            D within = select(none < over, h * square / total, h);
            D derivative = select(reach < size(u), of_penalty, of_loss);
            sums += derivative, sizes += size(derivative);
            bends += select(reach < size(u), square, within);
        }
        first = sum(sums), second = sum(bends);
        double enough = NOTHING * sum(sizes);
        return first > enough || first < -enough;
    }
};

/// How far the level of all rows of each output goes, (group, output, lanes): a block in which every row has one entry, 1, pays for
/// it.
void find_levels(const Group &group, int64_t block, const double *sums, const double *weights, const double *radius,
                 const double *done, double *levels) {
    const Shape &shape = group.shape;
    int64_t apart = shape.column(), width = group.width(block);
    const double *unit = group.unit + group.first[block];
    for (int64_t model = 0; model < group.models(); model++)
        for (int64_t k = 0; k < shape.outputs && done[model] == 0; k++) {
            if (stop(8 * width)) return;
            int64_t at = shape.at(model / shape.lanes, k), lane = model % shape.lanes;
            Level columns(width, group.penalties.l1[model], group.penalties.l2[model]);
            for (int64_t j = 0; j < width; j++) {
                if (unit[j] == 0) continue;
                const double *slope = sums + 2 * (j * apart + at) + lane;
                int64_t own = j * apart + at + lane;
                columns.set(j, weights[own], slope[0], slope[shape.lanes], radius ? radius[own] : INFINITY);
            }
            levels[at + lane] = columns.best();
        }
}

/// Columns that a thread solves at a time.
constexpr int64_t SOLVED = 4096;

/// What a block's columns become, in place, from their `sums` (column, group, output, 2, lanes), and how far they move rows,
/// `step`. Where every row has one entry, 1, the intercept `level` (group, output, lanes) goes to the best with them: a row's
/// score is that of its column, whose weight is what the level is not. `gained` (models) is what the quadratics fall by.
void solve(const Group &group, int64_t block, const double *sums, double *weights, double *level, double *radius,
           const Progress &progress, double *step, double *gained, Together &together) {
    const Shape &shape = group.shape;
    int64_t apart = shape.column(), width = group.width(block);
    const double *unit = group.unit + group.first[block];
    std::vector<double> levels((size_t)apart), pulls((size_t)(width * apart)), falls((size_t)(width * apart));
    if (group.fit_intercept && group.complete[block])
        find_levels(group, block, sums, weights, radius, progress.done, levels.data());
    for (int64_t i = 0; i < apart; i++) level[i] += levels[i];
    for (int64_t i = 0; i < group.models(); i++) gained[i] = 0;
    memset(step, 0, (size_t)(width * apart) * sizeof(double));
    auto of_columns = [&](auto work) {
        return [&, work](int64_t begin, int64_t end) {
            Looks looks;
            for (int64_t j = begin; j < end && !looks.stop(8 * apart); j++)
                for (int64_t at = 0; at < apart && unit[j] != 0; at += shape.lanes)
                    for (int64_t lane = 0, first = at / (shape.outputs * shape.lanes) * shape.lanes; lane < shape.lanes; lane++)
                        if (progress.done[first + lane] == 0) work(j, at, lane, first + lane);
        };
    };
    auto move = of_columns([&](int64_t j, int64_t at, int64_t lane, int64_t model) {
        int64_t own = j * apart + at + lane;
        const double *slope = sums + 2 * (j * apart + at) + lane;
        Column column{slope[0], slope[shape.lanes], group.penalties.l1[model], group.penalties.l2[model]};
        double v = levels[at + lane], before = weights[own], most = radius ? radius[own] : INFINITY;
        double u = column.move(v, most, weights[own], pulls[own], falls[own]);
        if (radius) radius[own] = next_radius(most, u, unit[j]);
        step[own] = (weights[own] - before) + v;
    });
    together.each((width + SOLVED - 1) / SOLVED, [&](int64_t, int64_t some) {
        move(some * SOLVED, width - some * SOLVED < SOLVED ? width : (some + 1) * SOLVED);
    });
    of_columns([&](int64_t j, int64_t at, int64_t lane, int64_t model) {
        int64_t own = j * apart + at + lane;
        progress.pull[model] = with_pull(progress.pull[model], pulls[own], group.penalties.l2[model]), gained[model] += falls[own];
    })(0, width);
}

/// The intercept's own step, in place, from its sums (group, output, 3, lanes) of losses and derivatives.
void move_intercept(const Group &group, const double *sums, double *level, double *radius, const Progress &progress) {
    const Shape &shape = group.shape;
    for (int64_t model = 0; model < group.models(); model++)
        for (int64_t k = 0; k < shape.outputs && progress.done[model] == 0; k++) {
            int64_t at = shape.at(model / shape.lanes, k), lane = model % shape.lanes;
            const double *own = sums + 3 * at + lane;
            Column column{own[shape.lanes], own[2 * shape.lanes], 0, 0};
            double pull, falls, most = radius ? radius[at + lane] : INFINITY;
            double u = column.move(0, most, level[at + lane], pull, falls);
            if (radius) radius[at + lane] = next_radius(most, u, 1);
        }
}

/// The c that minimises Σ l1·|v − c| + ½·l2·(v − c)² over sorted `values`.
double centre(const std::vector<double> &values, double l1, double l2) {
    int64_t n = (int64_t)values.size(), below = 0, zeros = 0;
    double total = 0;
    for (double v : values) total += v, below += v < 0, zeros += v == 0;
    if (l1 == 0) return total / (double)n;
    // At 0 already: no weight that is 0 is given up for rounding.
    if (__builtin_fabs(l1 * (double)(n - zeros - 2 * below) + l2 * total) <= l1 * (double)zeros) return 0;
    for (int64_t i = 0; i <= n; i++) { // i values are below c
        double low = i ? values[i - 1] : -INFINITY, high = i < n ? values[i] : INFINITY;
        double slope = l1 * (double)(n - 2 * i) + l2 * total; // less l2·n·c: above 0 where c is to be greater
        double c = l2 > 0 ? slope / (l2 * (double)n) : slope > 0 ? INFINITY : low;
        if (c <= low) return low;
        if (c <= high && c < INFINITY) return c;
    }
    return 0;
}

/// Moves weights that may all change by one number, which changes no prediction, to where they cost least; returns that number.
double settle(std::vector<double *> &weights, std::vector<double> &values, double l1, double l2) {
    values.clear();
    for (const double *weight : weights) {
        if (!(__builtin_fabs(*weight) < INFINITY)) return 0;
        values.push_back(*weight);
    }
    if (values.empty()) return 0;
    if (l1 > 0) std::sort(values.begin(), values.end());
    double c = centre(values, l1, l2);
    if (c == 0) return 0;
    for (double *weight : weights) *weight -= c;
    return c;
}

/// Moves weights of complete blocks where there is no intercept: those of a block by one number, the numbers of all blocks 0 in
/// all, which changes no prediction, to where their squares are least: by its mean less λ over its columns.
void even_out(const Group &group, int64_t at, double *weights) {
    int64_t apart = group.shape.column();
    std::vector<double> mean((size_t)group.n_blocks), columns((size_t)group.n_blocks);
    double means = 0, inverses = 0;
    for (int64_t b = 0; b < group.n_blocks; b++) {
        if (!group.complete[b]) continue;
        for (int64_t j = group.first[b]; j < group.first[b + 1]; j++)
            if (group.unit[j] > 0) mean[b] += weights[j * apart + at], columns[b]++;
        if (stop(group.width(b))) return;
        mean[b] /= columns[b], means += mean[b], inverses += 1 / columns[b];
    }
    if (!(__builtin_fabs(means) < INFINITY) || inverses == 0) return;
    for (int64_t b = 0; b < group.n_blocks; b++)
        for (int64_t j = group.first[b]; j < group.first[b + 1] && group.complete[b]; j++)
            if (group.unit[j] > 0) weights[j * apart + at] -= mean[b] - means / inverses / columns[b];
}

/// What costs less and changes no prediction: weights of all classes of a softmax at a column by the same number; those of complete
/// blocks where there is no intercept.
void shift(const Group &group, double *weights, const double *done) {
    const Shape &shape = group.shape;
    int64_t apart = shape.column(), columns = group.first[group.n_blocks];
    std::vector<double *> moving;
    std::vector<double> values;
    for (int64_t model = 0; model < group.models(); model++) {
        if (done[model] != 0) continue;
        double l1 = group.penalties.l1[model], l2 = group.penalties.l2[model];
        int64_t g = model / shape.lanes, lane = model % shape.lanes;
        for (int64_t j = 0; j < columns && losses::of_all_scores(shape.loss); j++) {
            if (stop(shape.outputs)) return;
            moving.clear();
            for (int64_t k = 0; k < shape.outputs; k++) moving.push_back(weights + j * apart + shape.at(g, k) + lane);
            settle(moving, values, l1, l2);
        }
        if (group.fit_intercept || l1 > 0 || l2 == 0) continue;
        for (int64_t k = 0; k < shape.outputs; k++) even_out(group, shape.at(g, k) + lane, weights);
    }
}

/// Which block each round of an epoch is about, -1 where that is not known yet; where blocks are chosen, of each the mean of what
/// it gained, where the last gain counts half, the one before a quarter, and for how many rounds it was not chosen.
struct Order {
    int64_t *block;
    double *gain;
    int64_t *waits;
    int64_t count;

    bool chooses() const { return gain != nullptr; }

    /// Whether every block has its round in this epoch.
    bool has_all() const {
        std::vector<bool> found((size_t)count);
        for (int64_t round = 0; round < count; round++)
            if (block[round] >= 0) found[(size_t)block[round]] = true;
        return std::find(found.begin(), found.end(), false) == found.end();
    }

    /// Notes what a round gained, and chooses the block of the round after the next.
    void after(int64_t round, double gained) {
        for (int64_t b = 0; b < count; b++) waits[b]++;
        int64_t own = block[round];
        double now = gained > 0 ? gained : 0;
        gain[own] = gain[own] < INFINITY ? 0.5 * (gain[own] + now) : now, waits[own] = 0;
        if (round + 2 < count && block[round + 2] < 0) block[round + 2] = best(block[round + 1]);
    }

    /// Begins an epoch: of all blocks in their order, where that is wished or little is known of some, else of its first two.
    void begin(bool all) {
        for (int64_t b = 0; b < count; b++) all |= !(gain[b] < INFINITY);
        for (int64_t b = 0; b < count; b++) block[b] = all ? b : -1;
        for (int64_t round = 0; round < 2 && round < count && !all; round++) block[round] = best(round ? block[0] : -1);
    }

  private:
    /// The block, other than the one whose round is next, of which most is expected: what it gained, for each round it waits.
    int64_t best(int64_t next) const {
        int64_t found = -1;
        double most = 0;
        for (int64_t b = 0; b < count; b++) {
            if (b == next && count > 1) continue;
            double expected = waits[b] > LATEST * count ? INFINITY : gain[b] * (double)(waits[b] + 1);
            if (found < 0 || expected > most || (expected == most && waits[b] > waits[found])) found = b, most = expected;
        }
        return found;
    }
};

} // namespace grouplearn::coordinate_descent
