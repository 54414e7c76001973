// Stochastic gradient descent of linear models, one batch of rows after another, for the lanes of a pack: a lane is one output of
// one config, and its bits depend on no other but those of its softmax.
//
// A batch touches the columns of its rows and nothing else: the penalty ½·ridge·w² shrinks a number that all weights of a lane
// are multiplied by (Bottou 2012), lasso·|w| is paid when a column is next seen.
#include "lanes/entry.hpp"
#include "lanes/memory.hpp"
#include "lanes/random.hpp"
#include "linear/stochastic_gradient.hpp"

namespace grouplearn::stochastic_gradient {
namespace {

/// The scale below which the weights of a lane are multiplied out: sums over steps lose its digits.
constexpr double SMALLEST_SCALE = 0x1p-10;

inline int64_t filled(int64_t lanes) { return (lanes + 7) / 8 * 8; }

/// The arrays of a number per lane that change, of which `scale` is the first.
constexpr int64_t CHANGING = 8;

/// Several epochs over one block of rows: what they need besides the models, and what they come to, arrays by config.
struct Course {
    int64_t first, count, made; // the number of the first epoch; how many there may be, and have been
    uint64_t seed, block;       // by which rows are ordered
    int64_t *order;             // of the rows
    double seen, weight;        // Σ weight of the rows as they are weighed, and as they are
    const double *tolerance;
    int64_t patience;
    double *best, *stalled, *curve, *done; // the curve has a row per epoch
    double *kept;                          // null, or the models after each epoch
};

/// v of one column, less what is owed to l1.
inline double paid_off(const Models &models, int64_t at, int64_t lane) {
    double v = models.unscaled[at], due = models.due[lane];
    if (!models.paid) return v;
    return shortened(Few<1>{{v}}, Few<1>{{due + models.paid[at]}}, Few<1>{{due - models.paid[at]}}).v[0];
}

/// The models at work on the rows of a block.
struct Training {
    const Models &models;
    const Rows &rows;
    const int64_t wide; // numbers per lane array
    Scratch<double> slopes, labels, losses, room, together, along, sooner, rate;
    Looks looks;
    uint64_t present = 0; // the losses of the lanes, where they differ: a bit each

    Training(const Models &models, const Rows &rows) : models(models), rows(rows), wide(filled(models.lanes)) {
        for (int64_t lane = 0; lane < models.lanes && models.loss < 0; lane++) present |= (uint64_t)1 << (int64_t)models.own_loss[lane];
    }

    bool reserve() {
        int64_t batch = rows.batch_size < rows.rows ? rows.batch_size : rows.rows;
        int64_t by_config = filled(models.lanes / models.outputs) * (models.outputs + 1);
        bool there = slopes.reserve(batch * wide + 8) && labels.reserve(wide) && losses.reserve(wide) && room.reserve(by_config) &&
                     together.reserve(wide) && along.reserve(wide) && sooner.reserve(wide) && rate.reserve(wide);
        if (there) {
            slopes.clear(batch * wide + 8);
            losses.clear(wide);
            along.clear(wide);
            sooner.clear(wide);
        }
        return there;
    }

    void run() {
        for (int64_t start = 0; start < rows.rows; start += rows.batch_size) {
            int64_t n = start + rows.batch_size < rows.rows ? rows.batch_size : rows.rows - start;
            pace();
            for (int64_t i = 0; i < n; i++) {
                int64_t row = rows.order[start + i];
                fetch(start + i);
                look(row, slopes + i * wide);
                if (looks.stop(work(row))) return;
            }
            step(start, n);
        }
    }
    /// Fetch what is needed soon, which lies anywhere: where a row begins, then what it holds, then the weights of its columns.
    void fetch(int64_t place) const {
        if (place + 16 < rows.rows) {
            int64_t row = rows.order[place + 16];
            __builtin_prefetch(rows.y + row);
            __builtin_prefetch(rows.weight + row);
            if (rows.start) __builtin_prefetch(rows.start + row);
        }
        if (place + 8 < rows.rows) fetch_row(rows.order[place + 8]);
        if (place + 2 < rows.rows && rows.start) fetch_weights(rows.order[place + 2]);
    }
    void fetch_row(int64_t row) const {
        if (rows.x_single) return lines(rows.x_single + row * rows.columns, rows.columns);
        if (rows.x_double) return lines(rows.x_double + row * rows.columns, rows.columns);
        int64_t first = rows.start[row], n = rows.start[row + 1] - first;
        lines(rows.values + first, n);
        lines(rows.column + first, n);
    }
    /// The first lines of memory with these n numbers: of many the processor sees by itself which follow.
    template <class Number> static void lines(const Number *at, int64_t n) {
        const char *first = (const char *)at, *last = (const char *)(at + n);
        for (int line = 0; line < 4 && first < last; line++, first += 64) __builtin_prefetch(first);
    }
    void fetch_weights(int64_t row) const {
        for (int64_t i = rows.start[row]; i < rows.start[row + 1]; i++) {
            int64_t at = rows.column[i] * models.stride;
            for (int64_t lane = 0; lane < models.stride; lane += 8) {
                __builtin_prefetch(models.unscaled + at + lane, 1);
                if (models.paid) __builtin_prefetch(models.paid + at + lane, 1);
                if (models.beyond) __builtin_prefetch(models.beyond + at + lane, 1);
            }
        }
    }
    int64_t work(int64_t row) const {
        int64_t values = rows.start ? rows.start[row + 1] - rows.start[row] : rows.columns;
        return (values * 4 + 64) * (wide / 8);
    }

    /// Set the slopes of a row's loss times its weight; count its losses.
    void look(int64_t row, double *slope) {
        with_row(rows, row, [&](const auto &x) {
            by_lanes_of(models, [&](auto v, auto n, int64_t lane) {
                using V = decltype(v);
                if (models.paid) scores_of<V, n.value, true>(x, models, lane, slope);
                else scores_of<V, n.value, false>(x, models, lane, slope);
            });
        });
        for (int64_t lane = 0; lane < wide; lane += 8)
            store(slope + lane, fma(load(models.scale + lane), load(slope + lane), load(models.intercept + lane)));
        slope_of(row, slope);
    }
    /// A lane has one loss: where they differ, each loss replaces the scores of its lanes, and leaves others as they are.
    void slope_of(int64_t row, double *slope) {
        if (models.loss >= 0) return losses::with((Loss)models.loss, [&](auto kind) { slope_by<decltype(kind), false>(row, slope, models.loss); });
        label(row);
        for (int64_t loss = 0; losses::name_of(loss); loss++)
            if (present >> loss & 1) losses::with((Loss)loss, [&](auto kind) { slope_by<decltype(kind), true>(row, slope, loss); });
    }
    DMask with_loss(int64_t loss, int64_t lane) const { return size(load(models.own_loss + lane) - all((double)loss)) < all(0.5); }
    template <class Kind, bool mixed> void slope_by(int64_t row, double *slope, int64_t loss) {
        D weight = all(rows.weight[row] * rows.weighed);
        double square = Kind::unbounded ? square_of(row) : 0.0, *score = slope;
        if constexpr (Kind::of_all_scores) {
            if (mixed) memcpy(score = together, slope, (size_t)wide * sizeof(double));
            Kind::of_row(models.outputs, models.lanes / models.outputs, (int64_t)rows.y[row], score, losses, room);
        } else if (!mixed) label(row);
        for (int64_t lane = 0; lane < wide; lane += 8) {
            DMask own = with_loss(loss, lane);
            if (mixed && !any(own)) continue;
            LossAndSlope found{load(losses + lane), load(score + lane)};
            if constexpr (!Kind::of_all_scores)
                found = Kind::of_row(load(score + lane), load(labels + lane), load(models.parameter + lane));
            D by = Kind::unbounded ? smaller(weight, most_weight(Kind::most_bend(found.slope, load(labels + lane)), lane, square)) : weight;
            D before = load(models.objective + lane), after = fma(weight, found.loss, before);
            store(models.objective + lane, mixed ? select(own, after, before) : after);
            store(slope + lane, mixed ? select(own, by * found.slope, load(slope + lane)) : by * found.slope);
        }
    }
    double square_of(int64_t row) const {
        double square = 0;
        with_row(rows, row, [&](const auto &x) { square = squared(x); });
        return square;
    }
    /// The weight by which a step moves the score of its row as far as Newton's would, had the loss everywhere the curvature that
    /// it has at the score or at its minimum, whichever is more: no farther than to the minimum, however steep exp(score) is.
    D most_weight(D curvature, int64_t lane, double square) const {
        return all(1.0) / (curvature * (load(rate + lane) * (load(models.with_intercept + lane) + all(square))));
    }
    /// The label of each lane: the row's, or of several outputs whether it is of the class of this one.
    void label(int64_t row) {
        int64_t configs = models.lanes / models.outputs;
        for (int64_t lane = 0; lane < wide; lane += 8) store(labels + lane, all(rows.y[row]));
        if (models.outputs > 1)
            for (int64_t lane = 0; lane < models.lanes; lane++) labels[lane] = (int64_t)rows.y[row] == lane / configs ? 1.0 : 0.0;
    }

    /// Add Σ weight·∇loss over the rows to `gradient` (columns, stride) and `by_intercept`, all at the models as they are.
    void differentiate(double *gradient, double *by_intercept) {
        Models sums = models;
        sums.unscaled = gradient;
        pace();
        for (int64_t i = 0; i < rows.rows; i++) {
            int64_t row = rows.order[i];
            fetch(i);
            look(row, slopes);
            for (int64_t lane = 0; lane < wide; lane += 8)
                store(by_intercept + lane, load(by_intercept + lane) + load(slopes + lane));
            with_row(rows, row, [&](const auto &x) {
                by_lanes_of(sums, [&](auto v, auto n, int64_t lane) {
                    move_along<decltype(v), n.value, false>(x, sums, lane, slopes, nullptr);
                });
            });
            if (looks.stop(work(row))) return;
        }
    }

    /// Step against the mean slope of n rows.
    void step(int64_t start, int64_t n) {
        bool small = false;
        for (int64_t lane = 0; lane < wide; lane += 8) {
            D scale = load(models.scale + lane);
            scale = scale * larger(all(1.0) - load(rate + lane) * load(models.ridge + lane), zero<D>());
            store(models.scale + lane, scale);
            small = small || any(scale < all(SMALLEST_SCALE));
        }
        if (small) multiply_out();
        for (int64_t lane = 0; lane < wide; lane += 8) prepare(lane, n);
        for (int64_t i = 0; i < n; i++) move(rows.order[start + i], slopes + i * wide);
    }
    /// Set how long the next step is.
    void pace() {
        for (int64_t lane = 0; lane < wide; lane += 8) store(rate + lane, rate_of(lane));
    }
    D rate_of(int64_t lane) const {
        D slower = fma(load(models.decay + lane), load(models.step + lane), all(1.0));
        DMask rooted = zero<D>() < load(models.rooted + lane);
        if (any(rooted)) slower = select(rooted, root(slower), slower);
        return load(models.rate + lane) / slower;
    }
    /// What a slope is multiplied by, with all numbers of a lane but the weights moved on. `along` −η/(n·scale).
    void prepare(int64_t lane, int64_t n) {
        D t = load(models.step + lane), scale = load(models.scale + lane), total = load(models.total + lane);
        D by = minus(n == 1 ? load(rate + lane) : load(rate + lane) / all((double)n)), moved = zero<D>();
        for (int64_t i = 0; i < n; i++) moved += load(slopes + i * wide + lane);
        D intercept = fma(by * load(models.with_intercept + lane), moved, load(models.intercept + lane));
        D one = all(1.0) / scale;
        store(models.intercept + lane, intercept);
        D counts = t + all(1.0); // what a mean of the steps weighs this one (Lacoste-Julien, Schmidt & Bach 2012)
        store(models.intercept_sum + lane, fma(counts, intercept, load(models.intercept_sum + lane)));
        store(models.due + lane, fma(load(rate + lane) * load(models.lasso + lane), one, load(models.due + lane)));
        for (int64_t i = 0; i < n; i++) store(slopes + i * wide + lane, by * one * load(slopes + i * wide + lane));
        store(sooner + lane, total);
        store(models.total + lane, fma(counts, scale, total));
        store(models.counted + lane, load(models.counted + lane) + counts);
        store(models.step + lane, counts);
    }
    void move(int64_t row, const double *slope) {
        if (models.beyond)
            for (int64_t lane = 0; lane < wide; lane += 8) store(along + lane, load(sooner + lane) * load(slope + lane));
        with_row(rows, row, [&](const auto &x) {
            by_lanes_of(models, [&](auto v, auto n, int64_t lane) {
                using V = decltype(v);
                if (models.beyond) move_along<V, n.value, true>(x, models, lane, slope, along);
                else move_along<V, n.value, false>(x, models, lane, slope, along);
            });
        });
    }

    /// Multiply small scales into the weights of their lanes; other lanes stay as they are.
    void multiply_out() {
        for (int64_t lane = 0; lane < models.stride; lane++) {
            double scale = models.scale[lane], total = models.total[lane];
            if (!(scale < SMALLEST_SCALE)) continue;
            for (int64_t j = 0; j < rows.columns && !looks.stop(2); j++) {
                int64_t at = j * models.stride + lane;
                if (models.beyond) models.beyond[at] = models.beyond[at] - total * models.unscaled[at];
                if (models.paid) models.paid[at] *= scale;
                models.unscaled[at] *= scale;
            }
            models.due[lane] *= scale;
            models.total[lane] = 0;
            models.scale[lane] = 1;
        }
    }
};

/// Σ|w| and Σw² over the columns, (2, filled lanes) each.
void norms_of(const Models &models, int64_t columns, double *norms) {
    Looks looks;
    int64_t wide = filled(models.lanes);
    memset(norms, 0, (size_t)(2 * wide) * sizeof(double));
    for (int64_t j = 0; j < columns && !looks.stop(wide / 2); j++)
        for (int64_t lane = 0; lane < models.lanes; lane++) {
            double w = paid_off(models, j * models.stride + lane, lane) * models.scale[lane];
            norms[lane] += __builtin_fabs(w);
            norms[wide + lane] = __builtin_fma(w, w, norms[wide + lane]);
        }
}

/// Where losses begin to be summed anew, and what is owed to l1 is paid or dropped.
void begin_epoch(const Models &models, int64_t columns) {
    Looks looks;
    for (int64_t j = 0; j < columns && models.paid && !looks.stop(models.lanes); j++)
        for (int64_t at = j * models.stride, lane = 0; lane < models.lanes; lane++) {
            models.unscaled[at + lane] = paid_off(models, at + lane, lane);
            models.paid[at + lane] = 0;
        }
    for (int64_t lane = 0; lane < models.lanes; lane++) {
        models.objective[lane] = 0;
        if (models.paid) models.due[lane] = 0;
    }
}

/// What an epoch has come to; whether a config is done: its loss is not finite, or has not fallen for `patience` epochs.
bool end_epoch(const Models &models, Course &course, const double *norms) {
    int64_t configs = models.lanes / models.outputs, wide = filled(models.lanes);
    bool ends = false;
    for (int64_t c = 0; c < configs; c++) {
        double losses = 0, absolute = 0, square = 0;
        bool sound = true;
        for (int64_t k = 0; k < models.outputs; k++) {
            int64_t lane = k * configs + c;
            losses = k ? losses + models.objective[lane] : models.objective[lane];
            absolute = k ? absolute + norms[lane] : norms[lane];
            square = k ? square + norms[wide + lane] : norms[wide + lane];
            sound = sound && __builtin_isfinite(models.objective[lane]) && __builtin_isfinite(models.intercept[lane]);
        }
        double objective = losses / course.seen + (models.lasso[c] * absolute + 0.5 * models.ridge[c] * square);
        sound = sound && __builtin_isfinite(objective);
        double loss = sound ? objective * course.weight : __builtin_nan("");
        bool lower = course.best[c] - loss > course.tolerance[c] * loss;
        if (sound) course.best[c] = lower ? loss : course.best[c], course.stalled[c] = lower ? 0 : course.stalled[c] + 1;
        course.curve[course.made * configs + c] = loss;
        bool stalls = course.tolerance[c] > 0 && course.stalled[c] >= (double)course.patience;
        course.done[c] = !__builtin_isfinite(loss) || stalls;
        ends = ends || course.done[c] != 0;
    }
    return ends;
}

/// Keep the models as they are, where they are asked for after each epoch.
void keep(const Models &models, int64_t columns, Course &course) {
    if (!course.kept) return;
    int64_t weights = columns * models.stride, wide = filled(models.lanes);
    double *to = course.kept + course.made * (3 * weights + CHANGING * wide);
    const double *wide_ones[] = {models.unscaled, models.paid, models.beyond};
    for (const double *from : wide_ones) {
        if (from) memcpy(to, from, (size_t)weights * sizeof(double));
        to += weights;
    }
    memcpy(to, models.scale, (size_t)(CHANGING * wide) * sizeof(double)); // one after the other, the scales first
}

} // namespace

/// Visit the rows once; −1 where there is no memory.
GROUPLEARN_ENTRY int stochastic_gradient_train(const Models *models, const Rows *rows) {
    Arithmetic arithmetic;
    Training training(*models, *rows);
    if (!training.reserve()) return -1;
    training.run();
    return 0;
}

/// Add gradients of the weighted losses; rows are visited one by one, what they owe is paid. −1 where there is no memory.
GROUPLEARN_ENTRY int stochastic_gradient_differentiate(const Models *models, const Rows *rows, double *gradient, double *by_intercept) {
    Arithmetic arithmetic;
    Training training(*models, *rows);
    if (!training.reserve()) return -1;
    training.differentiate(gradient, by_intercept);
    return 0;
}

/// Σ weight·‖x‖² of the rows, in their order.
GROUPLEARN_ENTRY double stochastic_gradient_squares(const Rows *rows) {
    Arithmetic arithmetic;
    Looks looks;
    double sum = 0;
    for (int64_t i = 0; i < rows->rows; i++)
        with_row(*rows, i, [&](const auto &row) {
            double square = squared(row);
            if (!looks.stop(row.size)) sum = __builtin_fma(rows->weight[i] * rows->weighed, square, sum);
        });
    return sum;
}

/// Σ|w| and Σw² over the columns, (2, filled lanes) each.
GROUPLEARN_ENTRY void stochastic_gradient_norms(const Models *models, int64_t columns, double *norms) {
    Arithmetic arithmetic;
    norms_of(*models, columns, norms);
}

/// Train epochs, in each of which the rows have another order, until one of the configs is done; −1 where there is no memory.
GROUPLEARN_ENTRY int stochastic_gradient_epochs(const Models *models, const Rows *rows, Course *course) {
    Arithmetic arithmetic;
    Scratch<double> norms;
    Training training(*models, *rows);
    if (!training.reserve() || !norms.reserve(2 * training.wide)) return -1;
    for (bool ends = false; course->made < course->count && !ends; course->made++) {
        begin_epoch(*models, rows->columns);
        shuffle(stream(SHUFFLE, course->seed, (uint64_t)(course->first + course->made), course->block), rows->rows, course->order);
        training.run();
        norms_of(*models, rows->columns, norms);
        if (stopped()) return 0;
        ends = end_epoch(*models, *course, norms);
        keep(*models, rows->columns, *course);
    }
    return 0;
}

} // namespace grouplearn::stochastic_gradient
