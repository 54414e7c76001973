// Dense networks: an epoch of minibatch Adam or SGD over the rows of a block, for the configs of a pack, one after another.
//
// A network's numbers are its own: no sum spans two of them, so its bits depend on no other. The configs share what they
// have in common: the order of the rows, a few batches of them turned and filled up, the numbers that dropout draws.
#include "entry.hpp"
#include "network.hpp"

namespace grouplearn {
namespace {

enum Optimizer { ADAM, SGD };

/// Adam's constants, as in Kingma & Ba (2015), algorithm 1.
constexpr double BETA1 = 0.9, BETA2 = 0.999, EPSILON = 1e-8;
/// Most numbers of rows that are turned ahead of the networks' work on them.
constexpr int64_t AHEAD = 1 << 16;

/// Networks of one shape, how they learn, and their state; arrays have one entry, or row, per config.
struct Networks {
    int64_t layers;
    const int64_t *widths;
    int64_t activation, task, optimizer, configs;
    const double *learning_rate, *momentum, *dropout;
    /// Penalties by the weight of all rows, on labels that are divided by `scale`; the last layer holds w/scale.
    const double *lasso, *ridge;
    double scale;
    void *parameters, *first, *second; // (configs, kept)
    int64_t *step;
    double *objective;

    Shape shape() const { return {layers, widths, activation, task}; }
};

/// The rows of a block: x (n, inputs), y and weight (n), and where they stand among the random numbers.
struct Rows {
    const double *x, *y, *weight;
    int64_t rows, batch_size;
    /// Labels are (y − mean)/scale, weights w·`weighed`.
    double mean, scale, weighed;
    uint64_t seed, epoch, block;
};

/// βᵗ by squaring: a function of t alone.
double power(double base, int64_t t) {
    double result = 1;
    for (; t; t >>= 1, base *= base)
        if (t & 1) result *= base;
    return result;
}

/// What a step moves by: Adam's θ −= m/(√v·root + floor), SGD's θ −= root·u.
template <class Number> struct Rates {
    Number root, floor, momentum;

    Rates(const Networks &networks, int64_t config, int64_t step) : floor(0), momentum((Number)networks.momentum[config]) {
        double rate = networks.learning_rate[config];
        if (networks.optimizer == SGD) {
            root = (Number)rate;
            return;
        }
        // η·m̂/(√v̂ + ε) with the corrections of both moments in two numbers.
        double most = sizeof(Number) == 4 ? 3.4028234663852886e38 : 1.7976931348623157e308;
        double per_rate = (1 - power(BETA1, step)) / rate, by_root = per_rate / __builtin_sqrt(1 - power(BETA2, step));
        double least = EPSILON * per_rate;
        root = (Number)(by_root < most ? by_root : most);
        floor = (Number)(least < most ? least : most);
    }
};

/// One network in the middle of its epoch.
template <class Number> struct Model {
    Number *parameters, *first, *second;
};

template <class V> struct Stepper {
    using Number = typename Lanes<V>::Number;
    V root, floor, momentum;
    bool adam;

    /// Move n numbers by their gradient.
    void move(int64_t n, Number *gradient, Number *parameters, Number *first, Number *second, V lasso, V ridge, D *penalty) const {
        bool penal = penalty != nullptr;
        for (int64_t i = 0; i < n; i += Lanes<V>::count) {
            V g = load(gradient + i), w = load(parameters + i);
            if (penal) {
                V sign = select(zero<V>() < w, all<V>(1), select(w < zero<V>(), all<V>(-1), zero<V>()));
                *penalty += doubles(w * fma(all<V>(0.5) * ridge, w, lasso * sign));
                g = fma(ridge, w, fma(lasso, sign, g));
            }
            if (adam) {
                V m = load(first + i), v = load(second + i);
                m = fma(all<V>(1 - BETA1), g - m, m);
                v = fma(all<V>(1 - BETA2) * g, g, v * all<V>(BETA2));
                store(first + i, m);
                store(second + i, v);
                store(parameters + i, w - m / fma(grouplearn::root(v), root, floor));
            } else {
                V u = fma(momentum, load(first + i), g);
                store(first + i, u);
                store(parameters + i, fnma(root, u, w));
            }
        }
    }
};

/// Take one step; return the penalty before it.
template <class V, class Number> double descend(const Networks &networks, int64_t config, int64_t step, Number *gradient, const Model<Number> &model) {
    Shape shape = networks.shape();
    Rates<Number> rates(networks, config, step);
    Stepper<V> stepper{all(rates.root), all(rates.floor), all(rates.momentum), networks.optimizer == ADAM};
    bool penal = networks.lasso[config] > 0 || networks.ridge[config] > 0;
    D penalty = zero<D>();
    Number *parameters = model.parameters, *first = model.first, *second = model.second;
    for (int64_t l = 0; l < shape.layers; l++) {
        double own = l == shape.layers - 1 ? networks.scale : 1;
        V lasso = all<V>(networks.lasso[config] * own), ridge = all<V>(networks.ridge[config] * own * own);
        int64_t weights = shape.weights_of<V>(l), size = shape.size_of<V>(l);
        stepper.move(weights, gradient, parameters, first, second, lasso, ridge, penal ? &penalty : nullptr);
        stepper.move(size - weights, gradient + weights, parameters + weights, first + weights, second + weights, lasso, ridge, nullptr);
        gradient += size, parameters += size, first += size, second += size;
    }
    return sum(penalty);
}

/// The tiles of some batches in a row, ready to be worked on.
template <class V> struct Desk {
    using Number = typename Lanes<V>::Number;
    const Shape shape;
    const Rows &rows;
    const int64_t *order;
    bool drops;
    Number *numbers;
    int64_t per_row;

    /// Numbers that a tile has for each of its rows.
    static int64_t row_numbers(const Shape &shape, bool drops) {
        return shape.inputs() + filled<V>(shape.inputs()) + 2 + (drops ? shape.hidden() : 0);
    }

    /// Lay the rows [start, stop) of the order out at `at`, as a part of a batch of `batch` rows.
    Tile<Number> tile(Number *at, int64_t start, int64_t stop, int64_t batch) const {
        int64_t n = stop - start, width = filled<V>(n), d = shape.inputs(), stride = filled<V>(d);
        Number *columns = at, *by_row = columns + d * width, *label = by_row + stride * width, *weight = label + width;
        Number *draws = weight + width;
        memset(at, 0, (draws - at) * sizeof(Number));
        for (int64_t i = 0; i < n; i++) {
            int64_t row = order[start + i];
            const double *x = rows.x + row * d;
            for (int64_t k = 0; k < d; k++) by_row[i * stride + k] = (Number)x[k];
            label[i] = (Number)((rows.y[row] - rows.mean) / rows.scale);
            weight[i] = (Number)(rows.weight[row] * rows.weighed / (double)batch);
        }
        for (int64_t k = 0; k < d; k++)
            for (int64_t i = 0; i < n; i++) columns[k * width + i] = by_row[i * stride + k];
        if (drops) draw(start, n, width, draws);
        return {n, width, columns, by_row, label, weight, draws};
    }

    void draw(int64_t start, int64_t n, int64_t width, Number *draws) const {
        uint32_t low[TILE_ROWS], high[TILE_ROWS];
        uint64_t key = stream(DROPOUT, rows.seed, rows.epoch, rows.block);
        for (int64_t i = 0; i < width; i++) {
            uint64_t own = mixed(key ^ (uint64_t)(i < n ? order[start + i] : 0));
            low[i] = (uint32_t)own;
            high[i] = (uint32_t)(own >> 32);
        }
        for (int64_t unit = 0; unit < shape.hidden(); unit++)
            for (int64_t i = 0; i < width; i++) draws[unit * width + i] = (Number)uniform(low[i], high[i], (uint32_t)unit);
    }
};

template <class V> struct Training {
    using Number = typename Lanes<V>::Number;
    const Networks &networks;
    const Rows &rows;
    const Shape shape;
    Room<Number> room;
    Bench<V> bench;
    Number *gradient, *models;
    int64_t size;
    bool drops;
    int64_t per_row, batches_ahead;
    Number *ahead;

    Training(const Networks &networks, const Rows &rows, Number *base)
        : networks(networks), rows(rows), shape(networks.shape()), room{base}, bench(shape, room), size(shape.template size<V>()), drops(false) {
        gradient = room.take(size);
        models = room.take(3 * size * networks.configs);
        for (int64_t c = 0; c < networks.configs; c++) drops |= networks.dropout[c] > 0;
        per_row = Desk<V>::row_numbers(shape, drops);
        int64_t batch = rows.batch_size < rows.rows ? rows.batch_size : rows.rows;
        int64_t batch_numbers = (batch + TILE_ROWS) / TILE_ROWS * TILE_ROWS * per_row; // room for its last tile's filling
        batch_numbers = (batch / TILE_ROWS * TILE_ROWS + filled<V>(batch % TILE_ROWS)) * per_row;
        batches_ahead = AHEAD / batch_numbers;
        // A batch too large for that is laid out tile by tile, for each config anew.
        ahead = room.take(batches_ahead ? batches_ahead * batch_numbers : TILE_ROWS * per_row);
    }

    Model<Number> model(int64_t config) const {
        Number *at = models + 3 * size * config;
        return {at, at + size, at + 2 * size};
    }

    void begin() {
        for (int64_t c = 0; c < networks.configs; c++) {
            Model<Number> own = model(c);
            int64_t kept = shape.kept(), at = c * kept;
            shape.template spread<V>((const Number *)networks.parameters + at, own.parameters);
            shape.template spread<V>((const Number *)networks.first + at, own.first);
            shape.template spread<V>((const Number *)networks.second + at, own.second);
        }
    }
    void finish() {
        for (int64_t c = 0; c < networks.configs; c++) {
            Model<Number> own = model(c);
            int64_t kept = shape.kept(), at = c * kept;
            shape.template gather<V>(own.parameters, (Number *)networks.parameters + at);
            shape.template gather<V>(own.first, (Number *)networks.first + at);
            shape.template gather<V>(own.second, (Number *)networks.second + at);
        }
    }

    /// One batch of a config, laid out at `laid` or, where that is nothing, tile by tile.
    void batch(int64_t config, const Desk<V> &desk, int64_t start, int64_t stop, Number *laid) {
        Model<Number> own = model(config);
        D loss = zero<D>();
        Number *at = laid;
        for (int64_t from = start; from < stop; from += TILE_ROWS) {
            int64_t to = from + TILE_ROWS < stop ? from + TILE_ROWS : stop;
            Tile<Number> tile;
            if (laid) {
                tile = view(at, to - from);
                at += tile.width * per_row;
            } else
                tile = desk.tile(ahead, from, to, stop - start);
            loss += learn<V>(shape, own.parameters, tile, (Number)networks.dropout[config], from > start, bench, gradient);
        }
        double penalty = descend<V>(networks, config, ++networks.step[config], gradient, own);
        networks.objective[config] += (sum(loss) + penalty) * (double)(stop - start);
    }

    /// A tile that was laid out before.
    Tile<Number> view(Number *at, int64_t n) const {
        int64_t width = filled<V>(n), d = shape.inputs(), stride = filled<V>(d);
        Number *by_row = at + d * width, *label = by_row + stride * width;
        return {n, width, at, by_row, label, label + width, label + 2 * width};
    }

    int run(int64_t *order) {
        shuffle(stream(SHUFFLE, rows.seed, rows.epoch, rows.block), rows.rows, order);
        begin();
        Desk<V> desk{shape, rows, order, drops, ahead, per_row};
        int64_t b = rows.batch_size;
        int64_t step = b * (batches_ahead ? batches_ahead : 1);
        for (int64_t start = 0; start < rows.rows; start += step) {
            int64_t stop = start + step < rows.rows ? start + step : rows.rows;
            if (batches_ahead) {
                Number *at = ahead;
                for (int64_t from = start; from < stop; from += b) {
                    int64_t to = from + b < stop ? from + b : stop;
                    for (int64_t t = from; t < to; t += TILE_ROWS)
                        at += desk.tile(at, t, t + TILE_ROWS < to ? t + TILE_ROWS : to, to - from).width * per_row;
                }
            }
            for (int64_t c = 0; c < networks.configs; c++) {
                Number *at = batches_ahead ? ahead : nullptr;
                for (int64_t from = start; from < stop; from += b) {
                    int64_t to = from + b < stop ? from + b : stop;
                    batch(c, desk, from, to, at);
                    if (at)
                        for (int64_t t = from; t < to; t += TILE_ROWS)
                            at += filled<V>(t + TILE_ROWS < to ? TILE_ROWS : to - t) * per_row;
                }
            }
        }
        finish();
        return 0;
    }
};

} // namespace
} // namespace grouplearn

GROUPLEARN_ENTRY int64_t networks_room_single(const Networks *networks, const Rows *rows) {
    return Training<F>(*networks, *rows, nullptr).room.used;
}
GROUPLEARN_ENTRY int64_t networks_room_double(const Networks *networks, const Rows *rows) {
    return Training<D>(*networks, *rows, nullptr).room.used;
}
GROUPLEARN_ENTRY void networks_train_single(const Networks *networks, const Rows *rows, float *room, int64_t *order) {
    Arithmetic arithmetic;
    Training<F>(*networks, *rows, room).run(order);
}
GROUPLEARN_ENTRY void networks_train_double(const Networks *networks, const Rows *rows, double *room, int64_t *order) {
    Arithmetic arithmetic;
    Training<D>(*networks, *rows, room).run(order);
}
