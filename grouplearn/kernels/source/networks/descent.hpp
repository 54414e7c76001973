// What a batch moves networks by: Adam (Kingma & Ba 2015, algorithm 1) and SGD with momentum, with penalties on the weights.
#pragma once
#include "networks/network.hpp"

namespace grouplearn::networks {

enum Optimizer { ADAM, SGD };
constexpr double BETA1 = 0.9, BETA2 = 0.999, EPSILON = 1e-8;

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

    Shape shape() const { return {layers, widths, activation, task}; }
};

/// βᵗ by squaring: a function of t alone.
inline double power(double base, int64_t t) {
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

/// What numbers are penalised by: nothing, ½·ridge·w², or lasso·|w| as well.
enum Penalty { FREE, RIDGE, LASSO };

/// A step of one network, in all lanes.
template <class V> struct Stepper {
    using Number = typename Lanes<V>::Number;
    V root, floor, momentum;
    bool adam;

    /// Move n numbers by their gradient; add what they are penalised by to `penalty`.
    template <Penalty which>
    void move(int64_t n, Number *gradient, Number *parameters, Number *first, Number *second, V lasso, V ridge,
              D &penalty) const {
        D sum = penalty; // of what lies elsewhere the compiler would write every term down
        V half = all<V>(0.5) * ridge;
        Looks looks;
        for (int64_t i = 0; i < n && !looks.stop(4); i += Lanes<V>::count) {
            V g = load(gradient + i), w = load(parameters + i);
            if constexpr (which == RIDGE) {
                sum += doubles(w * (half * w));
                g = fma(ridge, w, g);
            }
            if constexpr (which == LASSO) {
                V sign = select(zero<V>() < w, all<V>(1), select(w < zero<V>(), all<V>(-1), zero<V>()));
                sum += doubles(w * fma(half, w, lasso * sign));
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
        penalty = sum;
    }
};

template <class V, Penalty which, class Number>
double descend(const Networks &networks, int64_t config, int64_t step, Number *gradient, const Model<Number> &model) {
    Shape shape = networks.shape();
    Rates<Number> rates(networks, config, step);
    Stepper<V> stepper{all(rates.root), all(rates.floor), all(rates.momentum), networks.optimizer == ADAM};
    D penalty = zero<D>();
    Number *parameters = model.parameters, *first = model.first, *second = model.second;
    for (int64_t l = 0; l < shape.layers; l++) {
        double own = l == shape.layers - 1 ? networks.scale : 1;
        V lasso = all<V>(networks.lasso[config] * own), ridge = all<V>(networks.ridge[config] * own * own);
        int64_t weights = shape.weights_of<V>(l), size = shape.size_of<V>(l);
        stepper.template move<which>(weights, gradient, parameters, first, second, lasso, ridge, penalty);
        stepper.template move<FREE>(size - weights, gradient + weights, parameters + weights, first + weights, second + weights,
                                    lasso, ridge, penalty);
        gradient += size, parameters += size, first += size, second += size;
    }
    return sum(penalty);
}

/// Take one step; return the penalty before it.
template <class V, class Number>
double descend(const Networks &networks, int64_t config, int64_t step, Number *gradient, const Model<Number> &model) {
    if (networks.lasso[config] > 0) return descend<V, LASSO>(networks, config, step, gradient, model);
    if (networks.ridge[config] > 0) return descend<V, RIDGE>(networks, config, step, gradient, model);
    return descend<V, FREE>(networks, config, step, gradient, model);
}

} // namespace grouplearn::networks
