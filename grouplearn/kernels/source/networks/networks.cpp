// Dense networks: minibatch Adam or SGD over the rows of a block, and predictions, for the configs of a pack one by one.
//
// No sum spans two networks, so the bits of one depend on no other. What they share is the order of the rows, the rows of
// some batches turned and filled up, and the numbers that dropout draws, which are those of a row and a unit.
#include "networks/descent.hpp"
#include "lanes/entry.hpp"
#include "rows/features.hpp"

namespace grouplearn::networks {
namespace {

/// Most numbers of rows that are laid out ahead of the networks' work on them.
constexpr int64_t AHEAD = 1 << 16;

/// The rows of a block: x (n, inputs), y and weight; `order` (n) is how they are visited.
struct Rows {
    Features x;
    const double *y, *weight;
    const int64_t *order;
    int64_t rows, batch_size;
    /// Labels are learnt as (y − mean)/scale, weights as w·`weighed`.
    double mean, scale, weighed;
    /// Of what dropout draws.
    uint64_t key;
};

/// How many rows the tile that begins at `start` has.
inline int64_t tile_rows(int64_t start, int64_t stop) { return stop - start < TILE_ROWS ? stop - start : TILE_ROWS; }

/// Rows laid out for networks of one shape.
template <class V> struct Layout {
    using Number = typename Lanes<V>::Number;
    const Shape shape;
    const Rows &rows;
    bool drops;

    /// Numbers per row of a tile, filling included.
    int64_t per_row() const { return 2 * filled<V>(shape.inputs()) + 2 + (drops ? shape.hidden() : 0); }
    /// Numbers of a batch of n rows.
    int64_t numbers(int64_t n) const { return (n / TILE_ROWS * TILE_ROWS + filled<V>(n % TILE_ROWS)) * per_row(); }

    Tile<Number> place(Number *at, int64_t n) const {
        int64_t width = filled<V>(n), stride = filled<V>(shape.inputs());
        Number *by_row = at + stride * width, *label = by_row + stride * width;
        return {n, width, at, by_row, label, label + width, label + 2 * width};
    }

    /// Lay n rows of the order from `start` out at `at`, as a part of a batch of `batch` rows.
    Tile<Number> lay(Number *at, int64_t start, int64_t n, int64_t batch) const {
        Tile<Number> tile = place(at, n);
        int64_t d = shape.inputs(), stride = filled<V>(d);
        memset(at, 0, (tile.draws - at) * sizeof(Number));
        for (int64_t i = 0; i < n; i++) {
            int64_t row = rows.order[start + i];
            Number *own = tile.by_row + i * stride;
            for (int64_t k = 0; k < d; k++) own[k] = (Number)rows.x[row * d + k];
            tile.label[i] = (Number)((rows.y[row] - rows.mean) / rows.scale);
            tile.weight[i] = (Number)(rows.weight[row] * rows.weighed / (double)batch);
        }
        turn<V>(tile.by_row, tile.width, stride, tile.width, tile.columns);
        if (drops) draw(start, tile);
        return tile;
    }

    void draw(int64_t start, const Tile<Number> &tile) const {
        uint32_t low[TILE_ROWS], high[TILE_ROWS];
        for (int64_t i = 0; i < tile.width; i++) {
            uint64_t own = mixed(rows.key ^ (uint64_t)(i < tile.rows ? rows.order[start + i] : 0));
            low[i] = (uint32_t)own;
            high[i] = (uint32_t)(own >> 32);
        }
        for (int64_t unit = 0; unit < shape.hidden(); unit++)
            for (int64_t i = 0; i < tile.width; i++)
                tile.draws[unit * tile.width + i] = (Number)uniform(low[i], high[i], (uint32_t)unit);
    }
};

inline bool any_drops(const Networks &networks) {
    for (int64_t c = 0; c < networks.configs; c++)
        if (networks.dropout[c] > 0) return true;
    return false;
}

/// The networks of a pack at work on rows; everything is in the caller's `room`.
template <class V> struct Training {
    using Number = typename Lanes<V>::Number;
    const Networks &networks;
    const Rows &rows;
    const Shape shape;
    const Layout<V> layout;
    const int64_t size, kept;
    Room<Number> room;
    Bench<V> bench;
    Number *gradient, *models, *laid;
    int64_t batches_ahead;
    Looks looks;

    Training(const Networks &networks, const Rows &rows, Number *base)
        : networks(networks), rows(rows), shape(networks.shape()), layout{shape, rows, any_drops(networks)},
          size(shape.template size<V>()), kept(shape.kept()), room{base}, bench(shape, room), gradient(room.take(size)),
          models(room.take(3 * size * networks.configs)) {
        int64_t batch = layout.numbers(rows.batch_size < rows.rows ? rows.batch_size : rows.rows);
        // A batch that is too large for it is laid out tile by tile, for each config anew.
        batches_ahead = batch ? AHEAD / batch : 0;
        laid = room.take(batches_ahead ? batches_ahead * batch : layout.numbers(TILE_ROWS));
    }

    Model<Number> model(int64_t config) const {
        Number *at = models + 3 * size * config;
        return {at, at + size, at + 2 * size};
    }
    void begin() {
        for (int64_t c = 0; c < networks.configs; c++) {
            Model<Number> own = model(c);
            shape.template spread<V>((const Number *)networks.parameters + c * kept, own.parameters);
            shape.template spread<V>((const Number *)networks.first + c * kept, own.first);
            shape.template spread<V>((const Number *)networks.second + c * kept, own.second);
        }
    }
    void finish() {
        for (int64_t c = 0; c < networks.configs; c++) {
            Model<Number> own = model(c);
            shape.template gather<V>(own.parameters, (Number *)networks.parameters + c * kept);
            shape.template gather<V>(own.first, (Number *)networks.first + c * kept);
            shape.template gather<V>(own.second, (Number *)networks.second + c * kept);
        }
    }

    /// Set the gradient of Σ weight·loss over the rows [start, stop) of a batch; return that sum. `at`: laid out there.
    double differentiate(int64_t config, int64_t start, int64_t stop, int64_t batch, Number *at) {
        D loss = zero<D>();
        for (int64_t from = start; from < stop; from += TILE_ROWS) {
            int64_t n = tile_rows(from, stop);
            if (looks.stop(n * (2 * shape.inputs() + 3 * shape.hidden()))) break;
            Tile<Number> tile = at ? layout.place(at, n) : layout.lay(laid, from, n, batch);
            at = at ? at + tile.width * layout.per_row() : nullptr;
            Number rate = (Number)networks.dropout[config];
            loss += learn<V>(shape, model(config).parameters, tile, rate, from > start, bench, gradient);
        }
        return sum(loss);
    }
    double descend(int64_t config) {
        return grouplearn::networks::descend<V>(networks, config, ++networks.step[config], gradient, model(config));
    }

    /// Visit all rows; `objective` sums that of the batches times their rows.
    void run(double *objective) {
        begin();
        int64_t b = rows.batch_size, ahead = b * (batches_ahead ? batches_ahead : 1);
        for (int64_t start = 0; start < rows.rows; start += ahead) {
            int64_t stop = start + ahead < rows.rows ? start + ahead : rows.rows;
            if (batches_ahead) lay_ahead(start, stop);
            for (int64_t c = 0; c < networks.configs; c++) {
                Number *at = batches_ahead ? laid : nullptr;
                for (int64_t from = start; from < stop; from += b) {
                    int64_t n = from + b < stop ? b : stop - from;
                    double loss = differentiate(c, from, from + n, n, at);
                    objective[c] += (loss + descend(c)) * (double)n;
                    at = at ? at + layout.numbers(n) : nullptr;
                }
            }
        }
        if (!stopped()) finish();
    }
    void lay_ahead(int64_t start, int64_t stop) {
        Number *at = laid;
        for (int64_t from = start; from < stop; from += rows.batch_size) {
            int64_t n = from + rows.batch_size < stop ? rows.batch_size : stop - from;
            for (int64_t tile = from; tile < from + n; tile += TILE_ROWS)
                at += layout.lay(at, tile, tile_rows(tile, from + n), n).width * layout.per_row();
        }
    }

    /// The gradients (configs, kept) of Σ weight·loss/batch over the rows [start, stop), which may be none, and those sums.
    void differentiate_all(int64_t start, int64_t stop, int64_t batch, Number *gradients, double *losses) {
        begin();
        for (int64_t c = 0; c < networks.configs; c++) {
            memset(gradient, 0, size * sizeof(Number));
            losses[c] = differentiate(c, start, stop, batch, nullptr);
            shape.template gather<V>(gradient, gradients + c * kept);
        }
    }
    /// Take one step by gradients (configs, kept); set the penalties before it.
    void descend_all(const Number *gradients, double *penalties) {
        begin();
        for (int64_t c = 0; c < networks.configs; c++) {
            shape.template spread<V>(gradients + c * kept, gradient);
            penalties[c] = descend(c);
        }
        if (!stopped()) finish();
    }
};

/// Predictions (n, configs, outputs) of rows x (n, inputs) by parameters (configs, kept), in double precision.
struct Predicting {
    const Shape shape;
    Room<double> room;
    Bench<D> bench;
    double *parameters, *columns, *by_row;

    Predicting(const Shape &shape, int64_t configs, double *base)
        : shape(shape), room{base}, bench(shape, room), parameters(room.take(configs * shape.size<D>())),
          columns(room.take(TILE_ROWS * filled<D>(shape.inputs()))), by_row(room.take(TILE_ROWS * filled<D>(shape.inputs()))) {}

    void run(int64_t configs, const double *kept, const Features &x, int64_t n, double *found) {
        int64_t d = shape.inputs(), stride = filled<D>(d), outputs = shape.outputs(), size = shape.size<D>();
        for (int64_t c = 0; c < configs; c++) shape.spread<D>(kept + c * shape.kept(), parameters + c * size);
        Looks looks;
        for (int64_t start = 0; start < n && !looks.stop(TILE_ROWS * (d + configs * outputs)); start += TILE_ROWS) {
            int64_t rows = tile_rows(start, n), width = filled<D>(rows);
            memset(by_row, 0, width * stride * sizeof(double));
            for (int64_t i = 0; i < rows; i++) x.read((start + i) * d, d, by_row + i * stride);
            turn<D>(by_row, width, stride, width, columns);
            Tile<double> tile{rows, width, columns, by_row, nullptr, nullptr, nullptr};
            for (int64_t c = 0; c < configs; c++) {
                forward<D>(shape, parameters + c * size, tile, 0.0, false, bench);
                link<D>(shape, width, bench.scores);
                double *to = found + (start * configs + c) * outputs;
                for (int64_t i = 0; i < rows; i++)
                    for (int64_t k = 0; k < outputs; k++) to[i * configs * outputs + k] = one_nan(bench.scores[k * width + i]);
            }
        }
    }
};

} // namespace

#define GROUPLEARN_NETWORKS(kind, V, Number)                                                                              \
    GROUPLEARN_ENTRY int64_t networks_room_##kind(const Networks *networks, const Rows *rows) {                           \
        return Training<V>(*networks, *rows, nullptr).room.used;                                                          \
    }                                                                                                                     \
    GROUPLEARN_ENTRY void networks_train_##kind(const Networks *networks, const Rows *rows, Number *room,                 \
                                                double *objective) {                                                      \
        Arithmetic arithmetic;                                                                                            \
        Training<V>(*networks, *rows, room).run(objective);                                                               \
    }                                                                                                                     \
    GROUPLEARN_ENTRY void networks_gradients_##kind(const Networks *networks, const Rows *rows, Number *room,             \
                                                    int64_t start, int64_t stop, int64_t batch, Number *gradients,        \
                                                    double *losses) {                                                     \
        Arithmetic arithmetic;                                                                                            \
        Training<V>(*networks, *rows, room).differentiate_all(start, stop, batch, gradients, losses);                     \
    }                                                                                                                     \
    GROUPLEARN_ENTRY void networks_descend_##kind(const Networks *networks, const Rows *rows, Number *room,               \
                                                  const Number *gradients, double *penalties) {                           \
        Arithmetic arithmetic;                                                                                            \
        Training<V>(*networks, *rows, room).descend_all(gradients, penalties);                                            \
    }
GROUPLEARN_NETWORKS(single, F, float)
GROUPLEARN_NETWORKS(double, D, double)

GROUPLEARN_ENTRY int64_t networks_predict_room(const Networks *networks) {
    return Predicting(networks->shape(), networks->configs, nullptr).room.used;
}
GROUPLEARN_ENTRY void networks_predict(const Networks *networks, const float *x_single, const double *x_double, int64_t n, double *room,
                                       double *found) {
    Arithmetic arithmetic;
    Predicting(networks->shape(), networks->configs, room)
        .run(networks->configs, (const double *)networks->parameters, {x_single, x_double}, n, found);
}

/// The same of runs of rows x one after another, run r from start[r] on by the parameters numbered model[r]: (n, outputs).
GROUPLEARN_ENTRY void networks_predict_runs(const Networks *networks, const double *x, const int64_t *start, const int64_t *model,
                                            int64_t runs, double *room, double *found) {
    Arithmetic arithmetic;
    Shape shape = networks->shape();
    Predicting predicting(shape, 1, room);
    Looks looks;
    for (int64_t r = 0; r < runs && !looks.stop((1 + start[r + 1] - start[r]) * shape.kept()); r++)
        predicting.run(1, (const double *)networks->parameters + model[r] * shape.kept(), {nullptr, x + start[r] * shape.inputs()},
                       start[r + 1] - start[r], found + start[r] * shape.outputs());
}

/// The order in which an epoch visits the rows of a block, and the key of what dropout draws there.
GROUPLEARN_ENTRY void visiting_order(uint64_t seed, uint64_t epoch, uint64_t block, int64_t n, int64_t *order) {
    shuffle(stream(SHUFFLE, seed, epoch, block), n, order);
}
GROUPLEARN_ENTRY uint64_t dropout_key(uint64_t seed, uint64_t epoch, uint64_t block) {
    return stream(DROPOUT, seed, epoch, block);
}
/// n numbers in [0, 1), multiples of 2⁻⁵³, for what begins as random: those of a tensor.
GROUPLEARN_ENTRY void starting_numbers(uint64_t seed, uint64_t tensor, int64_t n, double *numbers) {
    uint64_t key = stream(START, seed, tensor, 0);
    grouplearn::Looks looks;
    for (int64_t i = 0; i < n && !looks.stop(2); i++) numbers[i] = (double)(int64_t)(mixed(key + (uint64_t)i) >> 11) * 0x1p-53;
}

} // namespace grouplearn::networks
