// One dense network on a tile of rows: its scores, its loss, and the gradient; rows in the lanes.
//
// Hidden values lie unit by unit, (units, rows) with the rows filled up to whole lanes, so that a layer of any width costs
// no more than its products. Weights lie as (outputs, inputs), each output's filled up to whole lanes with zeros.
#pragma once
#include "networks/activations.hpp"
#include "algebra/products.hpp"
#include "lanes/random.hpp"

namespace grouplearn::networks {

/// Most rows of a tile: the values of a few hidden layers stay near the processor.
constexpr int64_t TILE_ROWS = 64;

enum Task { REGRESSION, BINARY, MULTICLASS };

/// Numbers handed out one run after the other; without a base it only counts how many there will be.
template <class Number> struct Room {
    Number *base;
    int64_t used = 0;
    Number *take(int64_t n) {
        Number *here = base ? base + used : nullptr;
        used += (n + 15) / 16 * 16;
        return here;
    }
};

template <class V> constexpr int64_t filled(int64_t n) {
    return (n + Lanes<V>::count - 1) / Lanes<V>::count * Lanes<V>::count;
}

/// The shape of a network: the features, the units of each hidden layer, the outputs.
struct Shape {
    int64_t layers;
    const int64_t *widths;
    int64_t activation, task;

    int64_t inputs() const { return widths[0]; }
    int64_t outputs() const { return widths[layers]; }
    int64_t hidden() const {
        int64_t units = 0;
        for (int64_t l = 1; l < layers; l++) units += widths[l];
        return units;
    }
    int64_t widest() const {
        int64_t most = 0;
        for (int64_t l = 1; l <= layers; l++) most = widths[l] > most ? widths[l] : most;
        return most;
    }
    /// Parameters of a network as it is kept, without filling.
    int64_t kept() const {
        int64_t n = 0;
        for (int64_t l = 0; l < layers; l++) n += widths[l + 1] * (widths[l] + 1);
        return n;
    }
    template <class V> int64_t weights_of(int64_t layer) const { return widths[layer + 1] * filled<V>(widths[layer]); }
    template <class V> int64_t size_of(int64_t layer) const { return weights_of<V>(layer) + filled<V>(widths[layer + 1]); }
    template <class V> int64_t size() const {
        int64_t n = 0;
        for (int64_t l = 0; l < layers; l++) n += size_of<V>(l);
        return n;
    }
    /// Copy parameters between how they are kept and how they are worked on.
    template <class V, class Number> void spread(const Number *from, Number *to) const {
        memset(to, 0, size<V>() * sizeof(Number));
        for (int64_t l = 0; l < layers; l++) {
            int64_t stride = filled<V>(widths[l]);
            for (int64_t u = 0; u < widths[l + 1]; u++, from += widths[l])
                memcpy(to + u * stride, from, widths[l] * sizeof(Number));
            memcpy(to + weights_of<V>(l), from, widths[l + 1] * sizeof(Number));
            from += widths[l + 1];
            to += size_of<V>(l);
        }
    }
    template <class V, class Number> void gather(const Number *from, Number *to) const {
        for (int64_t l = 0; l < layers; l++) {
            int64_t stride = filled<V>(widths[l]);
            for (int64_t u = 0; u < widths[l + 1]; u++)
                for (int64_t k = 0; k < widths[l]; k++) *to++ = one_nan(from[u * stride + k]);
            for (int64_t u = 0; u < widths[l + 1]; u++) *to++ = one_nan(from[weights_of<V>(l) + u]);
            from += size_of<V>(l);
        }
    }
};

/// Rows as networks read them: by column, and (where they are learnt from) by row.
template <class Number> struct Tile {
    int64_t rows, width;     // width: rows filled up to whole lanes
    Number *columns;         // (inputs, width)
    Number *by_row;          // (rows, inputs filled up)
    Number *label;           // (width): the value or the number of the class
    Number *weight;          // (width): 0 beyond the rows
    Number *draws;           // (hidden units, width): what is below the dropout rate is dropped
};

/// Where a network works.
template <class V> struct Bench {
    using Number = typename Lanes<V>::Number;
    Number *values, *slopes; // (hidden units, TILE_ROWS)
    Number *scores;          // (outputs, TILE_ROWS)
    Number *delta, *before;  // (widest, TILE_ROWS)
    Number *turned;          // (TILE_ROWS, widest filled up)

    Bench(const Shape &shape, Room<Number> &room)
        : values(room.take(shape.hidden() * TILE_ROWS)), slopes(room.take(shape.hidden() * TILE_ROWS)),
          scores(room.take(shape.outputs() * TILE_ROWS)), delta(room.take(shape.widest() * TILE_ROWS)),
          before(room.take(shape.widest() * TILE_ROWS)), turned(room.take(TILE_ROWS * filled<V>(shape.widest()))) {}
};

template <Activation which, class V, class Number> inline void activate(int64_t n, Number *values, Number *slopes) {
    for (int64_t i = 0; i < n; i += Lanes<V>::count) {
        ValueAndSlope<V> found = activated<which>(load(values + i));
        store(values + i, found.value);
        if (slopes) store(slopes + i, found.slope);
    }
}

/// Put the activation in place of `values`, and its slope where it is wanted.
template <class V, class Number> void activate(int64_t which, int64_t n, Number *values, Number *slopes) {
    if (which == RELU) activate<RELU, V>(n, values, slopes);
    if (which == TANH) activate<TANH, V>(n, values, slopes);
    if (which == GELU) activate<GELU, V>(n, values, slopes);
    if (which == LOGISTIC) activate<LOGISTIC, V>(n, values, slopes);
}

/// Leave units out whose draw is below `rate`; the others count for more.
template <class V, class Number> void drop(int64_t n, const Number *draws, Number rate, Number *values, Number *slopes) {
    V dropped = zero<V>(), kept = all(Number(1) / (Number(1) - rate)), below = all(rate);
    for (int64_t i = 0; i < n; i += Lanes<V>::count) {
        V factor = select(load(draws + i) < below, dropped, kept);
        store(values + i, load(values + i) * factor);
        store(slopes + i, load(slopes + i) * factor);
    }
}

/// Set the scores (outputs, width); with `learns` also what the gradient needs.
template <class V, class Number>
void forward(const Shape &shape, const Number *parameters, const Tile<Number> &tile, Number rate, bool learns,
             const Bench<V> &bench) {
    const Number *below = tile.columns, *draws = tile.draws;
    Number *values = bench.values, *slopes = bench.slopes;
    for (int64_t l = 0; l < shape.layers; l++) {
        int64_t inputs = shape.widths[l], outputs = shape.widths[l + 1], n = outputs * tile.width;
        bool last = l == shape.layers - 1;
        Number *out = last ? bench.scores : values;
        multiply<V>(Product<Number>{parameters, filled<V>(inputs), 1, below, tile.width, out, tile.width, outputs,
                                    tile.width / Lanes<V>::count, inputs, parameters + shape.weights_of<V>(l)});
        if (last) break;
        activate<V>(shape.activation, n, values, learns ? slopes : (Number *)nullptr);
        if (learns && rate > 0) {
            drop<V>(n, draws, rate, values, slopes);
            draws += n;
        }
        below = values;
        values += n;
        slopes += n;
        parameters += shape.size_of<V>(l);
    }
}

inline D doubles(F a) { return low(a) + high(a); }
inline D doubles(D a) { return a; }

/// Turn scores into predictions; multiclass: eˢ of s less the largest, divided by their sum.
template <class V, class Number> void link(const Shape &shape, int64_t width, Number *scores) {
    int64_t outputs = shape.outputs();
    if (shape.task == REGRESSION) return;
    for (int64_t at = 0; at < width; at += Lanes<V>::count) {
        if (shape.task == BINARY) {
            store(scores + at, logistic(load(scores + at)));
            continue;
        }
        shares<V>(scores + at, width, outputs);
    }
}

/// Return Σ weight·loss, per lane, and put the derivative by each score into `delta`.
template <class V, class Number> D losses(const Shape &shape, const Tile<Number> &tile, Number *scores, Number *delta) {
    D total = zero<D>();
    int64_t outputs = shape.outputs(), width = tile.width;
    for (int64_t at = 0; at < width; at += Lanes<V>::count) {
        V weight = load(tile.weight + at), label = load(tile.label + at), z = load(scores + at), loss;
        auto counts = zero<V>() < weight;
        if (shape.task == REGRESSION) {
            V apart = z - label;
            loss = all<V>(0.5) * apart * apart;
            store(delta + at, select(counts, apart * weight, zero<V>()));
        } else if (shape.task == BINARY) {
            V e = exponential(minus(size(z))), inverse = all<V>(1) / (all<V>(1) + e);
            V p = select(z < zero<V>(), e * inverse, inverse);
            loss = log_of_one_plus(e) + larger(zero<V>(), z) - label * z;
            store(delta + at, select(counts, (p - label) * weight, zero<V>()));
        } else {
            V most = z, sum = zero<V>(), own = zero<V>();
            for (int64_t k = 1; k < outputs; k++) most = larger(most, load(scores + k * width + at));
            for (int64_t k = 0; k < outputs; k++) {
                V s = load(scores + k * width + at) - most, e = exponential(s), number = all<V>((double)k);
                own = select((label <= number) & (number <= label), s, own);
                sum += e;
                store(delta + k * width + at, e);
            }
            for (int64_t k = 0; k < outputs; k++) {
                V number = all<V>((double)k), p = load(delta + k * width + at) / sum;
                p = select((label <= number) & (number <= label), p - all<V>(1), p);
                store(delta + k * width + at, select(counts, p * weight, zero<V>()));
            }
            loss = logarithm(sum) - own;
        }
        total += doubles(select(counts, loss * weight, zero<V>()));
    }
    return total;
}

/// Turn (lines, width) into (width, stride), both widths whole lanes; what is beyond the lines is 0.
template <class V, class Number> void turn(const Number *from, int64_t lines, int64_t width, int64_t stride, Number *to) {
    constexpr int n = Lanes<V>::count;
    for (int64_t line = 0; line < stride; line += n)
        for (int64_t at = 0; at < width; at += n) {
            V block[n];
            for (int i = 0; i < n; i++) block[i] = line + i < lines ? load(from + (line + i) * width + at) : zero<V>();
            turn(block);
            for (int i = 0; i < n; i++) store(to + (at + i) * stride + line, block[i]);
        }
}

/// The sums over the rows of each line (lines, width).
template <class V, class Number> void sum_lines(const Number *from, int64_t lines, int64_t width, bool adds, Number *to) {
    constexpr int n = Lanes<V>::count;
    for (int64_t line = 0; line < lines; line += n) {
        V totals[n];
        for (int i = 0; i < n; i++) {
            totals[i] = zero<V>();
            for (int64_t at = 0; at < width && line + i < lines; at += n) totals[i] += load(from + (line + i) * width + at);
        }
        V found = sums(totals);
        store(to + line, adds ? load(to + line) + found : found);
    }
}

/// Set, or add to, the gradient of Σ weight·loss of a tile; return that sum per lane.
template <class V, class Number>
D learn(const Shape &shape, const Number *parameters, const Tile<Number> &tile, Number rate, bool adds, const Bench<V> &bench,
        Number *gradient) {
    forward<V>(shape, parameters, tile, rate, true, bench);
    Number *delta = bench.delta, *before = bench.before;
    D loss = losses<V>(shape, tile, bench.scores, delta);
    int64_t width = tile.width, units = shape.hidden();
    const Number *weights = parameters + shape.size<V>();
    gradient += shape.size<V>();
    for (int64_t l = shape.layers - 1; l >= 0; l--) {
        int64_t inputs = shape.widths[l], outputs = shape.widths[l + 1], stride = filled<V>(inputs);
        weights -= shape.size_of<V>(l);
        gradient -= shape.size_of<V>(l);
        units -= l ? inputs : 0;
        const Number *by_row = tile.by_row;
        if (l) {
            turn<V>(bench.values + units * width, inputs, width, stride, bench.turned);
            by_row = bench.turned;
        }
        multiply<V>(Product<Number>{delta, width, 1, by_row, stride, gradient, stride, outputs, stride / Lanes<V>::count,
                                    tile.rows, nullptr, adds});
        sum_lines<V>(delta, outputs, width, adds, gradient + shape.weights_of<V>(l));
        if (!l) break;
        multiply<V>(Product<Number>{weights, 1, stride, delta, width, before, width, inputs, width / Lanes<V>::count, outputs});
        const Number *slopes = bench.slopes + units * width;
        for (int64_t i = 0; i < inputs * width; i += Lanes<V>::count) store(before + i, load(before + i) * load(slopes + i));
        Number *kept = delta;
        delta = before;
        before = kept;
    }
    return loss;
}

} // namespace grouplearn::networks
