// Every metric of every config of a group, from its models or from scores, eight configs at a time, one per lane.
//
// Sums over rows are of runs of 128 rows, each added up in order. Areas of small groups count pairs; those of others sort.
#include "lanes/entry.hpp"
#include "lanes/links.hpp"
#include "algebra/matrices.hpp"
#include "metrics/ranking.hpp"
#include <vector>

namespace grouplearn::metrics {
namespace {

constexpr double TINY = 2.220446049250313e-16;
constexpr int64_t METRIC_RUN = 128;

enum Task { VALUES, LOG_VALUES, BINARY, CLASSES };
enum Metric { RMSE, MAE, R2, MAPE, LOG_LOSS, AUC, ACCURACY, F1, PRECISION, RECALL, BALANCED_ACCURACY, PR_AUC, BRIER, METRICS };

struct Rows {
    const float *x_single; // or x, or scores
    const double *x, *y, *weight, *scores;
    int64_t d;
};

struct Shape {
    int64_t task, configs, outputs, classes, unseen;
};

/// Σ over rows of a run added to the whole at its end.
struct Sum {
    D part = zero<D>(), whole = zero<D>();
    void add(D weight, D value) { part = fma(weight, value, part); }
    void end_run() { whole += part, part = zero<D>(); }
};

/// What is to be known of labels: their weighted mean, Σw(y - mean)², the least and the greatest.
struct LabelSums {
    double mean = 0, spread = 0, low = INFINITY, high = -INFINITY;

    LabelSums(const double *label, const double *weight, int64_t n, double total) {
        in_pieces(n, 1, [&](int64_t first, int64_t last) {
            for (int64_t i = first; i < last; i++) mean = __builtin_fma(weight[i], label[i], mean);
        });
        mean = total > 0 ? mean / total : 0;
        in_pieces(n, 1, [&](int64_t first, int64_t last) {
            for (int64_t i = first; i < last; i++) {
                if (!(weight[i] > 0)) continue;
                double y = label[i];
                spread = __builtin_fma(weight[i], (y - mean) * (y - mean), spread);
                if (y < low) low = y;
                if (y > high) high = y;
            }
        });
    }
};

/// What metrics of numbers add up.
struct ErrorSums {
    Sum square, absolute, relative;
    void add(D predicted, double y, double weight, bool with_relative) {
        double size_of = __builtin_fabs(y) > TINY ? __builtin_fabs(y) : TINY;
        D error = predicted - all(y), w = all(weight);
        square.add(w, error * error);
        absolute.add(w, size(error));
        if (with_relative) relative.add(w, size(error) / all(size_of));
    }
    void end_run() { square.end_run(), absolute.end_run(), relative.end_run(); }
};

/// What metrics of classes add up: log loss, squared errors, and by class the weight of it, of those said to be it, and of
/// those of them that are.
struct ClassSums {
    const Shape &shape;
    bool with_loss;
    Sum loss, brier;
    std::vector<Sum> said, hit;
    std::vector<double> actual;
    DMask broken = !(zero<D>() <= zero<D>());

    ClassSums(const Shape &shape, bool with_loss) : shape(shape), with_loss(with_loss) {
        int64_t every = shape.classes + shape.unseen;
        said.resize(every), hit.resize(every), actual.resize(every);
    }

    /// Adds a row, whose probabilities are ``at(output)``.
    template <class At> void add(double label, double weight, At at) {
        if (!(weight > 0)) return;
        int64_t own_class = (int64_t)label;
        D w = all(weight), one = all(1.0), own = zero<D>(), squares = zero<D>();
        actual[own_class] += weight;
        if (shape.task == BINARY) {
            D p = at(0);
            own = own_class == 1 ? p : one - p;
            D error = own_class == 1 ? p - one : p;
            squares = error * error;
            if (own_class > 1) squares = all(0.5) * (p * p + (one - p) * (one - p) + one);
            D taken = select(all(0.5) < p, one, zero<D>());
            said[1].add(w, taken), said[0].add(w, one - taken);
            if (own_class == 1) hit[1].add(w, taken);
            if (own_class == 0) hit[0].add(w, one - taken);
            broken = broken | !(p <= p);
        } else {
            D most = at(0), which = zero<D>();
            for (int64_t k = 0; k < shape.outputs; k++) {
                D p = at(k);
                DMask more = most < p;
                most = select(more, p, most);
                which = select(more, all((double)k), which);
                squares = fma(p, p, squares);
                broken = broken | !(p <= p);
            }
            if (own_class < shape.classes) own = at(own_class);
            squares = (one - own) * (one - own) + squares - own * own;
            for (int64_t k = 0; k < shape.outputs; k++) {
                D place = all((double)k), taken = select((which <= place) & (place <= which), one, zero<D>());
                said[k].add(w, taken);
                if (k == own_class) hit[k].add(w, taken);
            }
        }
        if (own_class >= shape.classes) own = zero<D>();
        if (with_loss) loss.add(w, minus(logarithm(larger(smaller(own, all(1 - TINY)), all(TINY)))));
        brier.add(w, squares);
    }

    void end_run() {
        loss.end_run(), brier.end_run();
        for (Sum &each : said) each.end_run();
        for (Sum &each : hit) each.end_run();
    }
};

class Measurer {
  public:
    Measurer(const Rows &rows, const Shape &shape, const uint8_t *wanted) : rows(rows), shape(shape), wanted(wanted) {}

    /// Measures configs of the rows `numbers` by models (C, k, d) and (C, k), or by scores, into `found` (METRICS, C).
    void measure(const std::vector<int64_t> &numbers, const double *weights, const double *intercept, double *found) {
        n = (int64_t)numbers.size();
        gather(numbers);
        scores.resize(8 * n * shape.outputs);
        for (int64_t first = 0; first < shape.configs; first += 8) {
            int64_t here = shape.configs - first < 8 ? shape.configs - first : 8;
            if (rows.scores) copy_scores(numbers, first, here);
            else {
                const double *own = weights + first * shape.outputs * rows.d, *offsets = intercept + first * shape.outputs;
                rows.x ? score(rows.x, numbers, own, offsets, here) : score(rows.x_single, numbers, own, offsets, here);
            }
            for (D &each : result) each = all((double)NAN);
            if (stopped()) return;
            if (total > 0) shape.task < BINARY ? of_values() : of_classes();
            double lanes[8];
            for (int metric = 0; metric < METRICS; metric++) {
                store(lanes, result[metric]);
                for (int64_t i = 0; i < here; i++) found[metric * shape.configs + first + i] = lanes[i] == lanes[i] ? lanes[i] : NAN;
            }
        }
    }

  private:
    Rows rows;
    Shape shape;
    const uint8_t *wanted;
    int64_t n = 0, weighted = 0;
    double total = 0;
    bool equal_weights = true;
    std::vector<double> label, weight, scores, turned;
    Scratch<Keyed> ranked, spare;
    Scratch<uint64_t> keys, other;
    Wins wins;
    D result[METRICS];

    D at(int64_t output, int64_t row) { return load(&scores[8 * (output * n + row)]); }

    void gather(const std::vector<int64_t> &numbers) {
        label.resize(n), weight.resize(n);
        total = 0, weighted = 0, equal_weights = true;
        double first = 0;
        for (int64_t i = 0; i < n; i++) {
            label[i] = rows.y[numbers[i]], weight[i] = rows.weight[numbers[i]];
            total += weight[i];
            if (!(weight[i] > 0)) continue;
            if (!weighted++) first = weight[i];
            equal_weights &= weight[i] == first;
        }
    }

    void copy_scores(const std::vector<int64_t> &numbers, int64_t first, int64_t here) {
        int64_t outputs = shape.outputs;
        Looks looks;
        for (int64_t i = 0; i < n && !looks.stop(4 * outputs); i++)
            for (int64_t k = 0; k < outputs; k++)
                for (int64_t c = 0; c < 8; c++)
                    scores[8 * (k * n + i) + c] =
                        c < here ? rows.scores[(numbers[i] * shape.configs + first + c) * outputs + k] : 0;
    }

    /// Scores of the models of eight configs, eight rows at a time, whose numbers are widened first.
    template <class Number> void score(const Number *x, const std::vector<int64_t> &numbers, const double *weights, const double *intercept, int64_t here) {
        int64_t d = rows.d, outputs = shape.outputs;
        turned.resize(8 * (d + 1));
        for (int64_t k = 0; k < outputs; k++) {
            for (int64_t c = 0; c < 8; c++) {
                for (int64_t j = 0; j < d; j++) turned[8 * j + c] = c < here ? weights[(c * outputs + k) * d + j] : 0;
                turned[8 * d + c] = c < here ? intercept[c * outputs + k] : 0;
            }
            D offset = load(&turned[8 * d]);
            double *to = scores.data() + 8 * k * n;
            in_pieces(n, d + 2, [x, d, to, offset, n = n, own = turned.data(), places = numbers.data()](int64_t first, int64_t last) {
                for (int64_t i = first; i < last; i += 8) {
                    const Number *row[8];
                    D part[8];
                    for (int r = 0; r < 8; r++) row[r] = x + places[i + r < n ? i + r : n - 1] * d, part[r] = zero<D>();
                    for (int64_t j = 0; j < d; j++) {
                        D w = load(own + 8 * j);
                        for (int r = 0; r < 8; r++) part[r] = fma(all((double)row[r][j]), w, part[r]);
                    }
                    for (int r = 0; r < 8 && i + r < n; r++) store(to + 8 * (i + r), part[r] + offset);
                }
            });
        }
        link();
    }

    void link() {
        if (shape.task == VALUES) return;
        Looks looks;
        for (int64_t i = 0; i < n && !looks.stop(16 * shape.outputs); i++) {
            if (shape.task == CLASSES) {
                shares<D>(&scores[8 * i], 8 * n, shape.outputs);
            } else if (shape.task == BINARY) {
                store(&scores[8 * i], probability(at(0, i)));
            } else {
                store(&scores[8 * i], exponential(at(0, i)));
            }
        }
    }

    void of_values() {
        ErrorSums sums;
        for (int64_t i = 0; i < n; i++) {
            if (weight[i] > 0) sums.add(at(0, i), label[i], weight[i], wanted[MAPE]);
            if (i % METRIC_RUN != METRIC_RUN - 1) continue;
            sums.end_run();
            if (stop(16 * METRIC_RUN)) return;
        }
        sums.end_run();
        D weights = all(total);
        result[RMSE] = root(sums.square.whole / weights);
        result[MAE] = sums.absolute.whole / weights;
        result[MAPE] = sums.relative.whole / weights;
        if (weighted < 2) return;
        LabelSums labels(label.data(), weight.data(), n, total);
        double spread = labels.spread, low = labels.low, high = labels.high;
        // Of a label that is constant but for rounding 1 if it is predicted exactly.
        double largest = __builtin_fabs(low) > __builtin_fabs(high) ? __builtin_fabs(low) : __builtin_fabs(high);
        if (spread > 0 && high - low > 4 * TINY * largest) result[R2] = all(1.0) - sums.square.whole / all(spread);
        else result[R2] = select(result[MAE] <= all(1e-13 * largest), all(1.0), zero<D>());
    }

    void of_classes() {
        ClassSums sums(shape, wanted[LOG_LOSS]);
        for (int64_t i = 0; i < n; i++) {
            sums.add(label[i], weight[i], [&](int64_t output) { return at(output, i); });
            if (i % METRIC_RUN != METRIC_RUN - 1 && i != n - 1) continue;
            sums.end_run();
            if (stop((16 + 8 * shape.outputs) * METRIC_RUN)) return;
        }
        const std::vector<Sum> &said = sums.said, &hit = sums.hit;
        const std::vector<double> &actual = sums.actual;
        DMask broken = sums.broken;
        D weights = all(total), nothing = all((double)NAN), right = zero<D>();
        for (const Sum &each : hit) right += each.whole;
        result[LOG_LOSS] = select(broken, nothing, sums.loss.whole / weights);
        result[BRIER] = sums.brier.whole / weights;
        result[ACCURACY] = right / weights;
        share_of(F1, said, hit, actual), share_of(PRECISION, said, hit, actual), share_of(RECALL, said, hit, actual);
        share_of(BALANCED_ACCURACY, said, hit, actual);
        if (wanted[AUC]) result[AUC] = select(broken, nothing, areas(actual, false));
        if (wanted[PR_AUC]) result[PR_AUC] = select(broken, nothing, areas(actual, true));
    }

    /// hit / counted, 0 where nothing is counted, of the positive class, or its mean over the classes that occur.
    void share_of(Metric metric, const std::vector<Sum> &said, const std::vector<Sum> &hit, const std::vector<double> &actual) {
        D shares = zero<D>(), occurring = zero<D>(), none = zero<D>();
        for (size_t each = 0; each < hit.size(); each++) {
            D is = all(actual[each]), either = is + said[each].whole;
            D counted = metric == F1 ? all(0.5) * either : metric == PRECISION ? said[each].whole : is;
            D occurs = metric == BALANCED_ACCURACY ? is : either;
            D share = select(none < counted, hit[each].whole / counted, none);
            if (shape.task == BINARY && metric != BALANCED_ACCURACY) {
                if (each == 1) result[metric] = share;
                continue;
            }
            shares += share;
            occurring += select(none < occurs, all(1.0), none);
        }
        if (shape.task != BINARY || metric == BALANCED_ACCURACY) result[metric] = shares / occurring;
    }

    /// The area of the positive class, or its mean over the classes that have one.
    D areas(const std::vector<double> &actual, bool precision) {
        if (shape.task == BINARY) return area_of(0, 1, precision);
        D sum_of = zero<D>(), defined = zero<D>();
        for (int64_t k = 0; k < (int64_t)actual.size(); k++) {
            double share = actual[k] / total;
            D found = all(precision ? share : 0.5);
            if (!(share > 0) || (!precision && !(share < 1))) continue;
            if (k < shape.classes) found = area_of(k, k, precision);
            D is = select(found <= found, all(1.0), zero<D>());
            sum_of += select(found <= found, found, zero<D>());
            defined += is;
        }
        return select(zero<D>() < defined, sum_of / defined, all((double)NAN));
    }

    D area_of(int64_t output, int64_t positive, bool precision) {
        if (!precision && weighted <= PAIRS) return pairs(output, (double)positive);
        double found[8];
        for (int lane = 0; lane < 8; lane++) found[lane] = sorted_area(output, lane, (double)positive, precision);
        return load(found);
    }

    double counted(int64_t i) const { return equal_weights ? (weight[i] > 0 ? 1.0 : 0.0) : weight[i]; }

    /// Σ over pairs of w⁺w⁻·([s⁺ > s⁻] + ½[s⁺ = s⁻]) / (Σw⁺·Σw⁻); NaN where one side has no weight.
    D pairs(int64_t output, double positive) {
        D won = zero<D>();
        double up = 0, down = 0;
        for (int64_t i = 0; i < n; i++) (label[i] == positive ? up : down) += counted(i);
        for (int64_t i = 0; i < n; i++) {
            if (label[i] != positive || !(weight[i] > 0)) continue;
            D mine = at(output, i), less = zero<D>(), no_more = zero<D>();
            for (int64_t j = 0; j < n; j++) {
                if (label[j] == positive) continue;
                D other = at(output, j), w = all(counted(j));
                less += select(other < mine, w, zero<D>());
                no_more += select(other <= mine, w, zero<D>());
            }
            won = fma(all(0.5 * counted(i)), less + no_more, won);
        }
        return up > 0 && down > 0 ? won / all(up * down) : all((double)NAN);
    }

    /// The same of one lane by ranks, or the average precision.
    double sorted_area(int64_t output, int lane, double positive, bool precision) {
        const double *own = scores.data() + 8 * output * n + lane;
        int64_t here = 0;
        if (equal_weights && !precision) {
            if (!keys.reserve(n) || !other.reserve(n) || !wins.reserve()) abort();
            uint64_t up = 0;
            for (int64_t i = 0; i < n; i++) {
                keys[here] = ranking_key(own[8 * i], label[i] == positive);
                up += weight[i] > 0 && label[i] == positive;
                here += weight[i] > 0;
            }
            return wins.area(keys, other, here, up);
        }
        if (!ranked.reserve(n) || !spare.reserve(n)) abort();
        for (int64_t i = 0; i < n; i++)
            if (weight[i] > 0) ranked[here++] = weighed(own[8 * i], label[i] == positive, counted(i), precision);
        return WeighedArea(precision).of(ranked, spare, here);
    }
};

} // namespace


/// Metrics (METRICS, groups, parts, C) of groups of rows, `start` (groups + 1), where `part` (n) may say which of `parts` a row is
/// in: of models (groups, models, C, k, d) and (groups, models, C, k), of which those of a part come at its place, or, where there
/// are none, of scores (n, C, k). `sizes`: d, groups, parts, models, task, C, k, classes, unseen.
GROUPLEARN_ENTRY void row_metrics(const int64_t *sizes, const float *x_single, const double *x, const double *y, const double *weight,
                                  const double *scores, const int64_t *start, const int16_t *part, const double *weights,
                                  const double *intercept, const uint8_t *wanted, double *out) {
    Arithmetic arithmetic;
    int64_t d = sizes[0], groups = sizes[1], parts = sizes[2], models = sizes[3];
    Shape shape{sizes[4], sizes[5], sizes[6], sizes[7], sizes[8]};
    Measurer measurer({x_single, x, y, weight, scores, d}, shape, wanted);
    std::vector<std::vector<int64_t>> numbers(parts);
    std::vector<double> found(METRICS * shape.configs);
    for (int64_t g = 0; g < groups; g++) {
        for (auto &each : numbers) each.clear();
        for (int64_t i = start[g]; i < start[g + 1]; i++) numbers[part ? part[i] : 0].push_back(i);
        for (int64_t p = 0; p < parts; p++) {
            if (stop((int64_t)numbers[p].size())) return;
            int64_t place = (g * models + p) * shape.configs * shape.outputs;
            measurer.measure(numbers[p], scores ? nullptr : weights + place * d, scores ? nullptr : intercept + place,
                             found.data());
            for (int metric = 0; metric < METRICS; metric++)
                if (wanted[metric])
                    memcpy(out + ((metric * groups + g) * parts + p) * shape.configs, &found[metric * shape.configs],
                           shape.configs * sizeof(double));
        }
    }
}

/// Σw, the weighted mean of labels y (n), Σw(y - mean)², and the least and the greatest y of rows that weigh anything.
GROUPLEARN_ENTRY void label_sums(const double *y, const double *weight, int64_t n, double *out) {
    Arithmetic arithmetic;
    double total = 0;
    in_pieces(n, 1, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; i++) total += weight[i];
    });
    LabelSums sums(y, weight, n, total);
    out[0] = total, out[1] = sums.mean, out[2] = sums.spread, out[3] = sums.low, out[4] = sums.high;
}

/// Σwe², Σw|e| and Σw|e|/|y| (3, C) of the errors e of predictions (n, C) of labels y (n).
GROUPLEARN_ENTRY void error_sums(const double *predicted, const double *y, const double *weight, int64_t n, int64_t configs,
                                double *out) {
    Arithmetic arithmetic;
    for (int64_t first = 0; first < configs; first += 8) {
        int64_t here = configs - first < 8 ? configs - first : 8;
        ErrorSums sums;
        double lanes[8] = {};
        for (int64_t i = 0; i < n; i++) {
            const double *row = predicted + i * configs + first;
            if (here < 8) memcpy(lanes, row, here * sizeof(double)), row = lanes;
            sums.add(load(row), y[i], weight[i], true);
            if (i % METRIC_RUN != METRIC_RUN - 1) continue;
            sums.end_run();
            if (stop(16 * METRIC_RUN)) return;
        }
        sums.end_run();
        const Sum *each[] = {&sums.square, &sums.absolute, &sums.relative};
        for (int k = 0; k < 3; k++) {
            store(lanes, each[k]->whole);
            memcpy(out + k * configs + first, lanes, here * sizeof(double));
        }
    }
}

/// What metrics of classes add up of rows with probabilities (n, C, k): Σw·log loss, Σw·squared error, the weight of each class,
/// that of those said to be it, and of those of them that are, (2 + 3K, C), K classes with scores and without. `sizes`: n, task,
/// C, k, classes, unseen.
GROUPLEARN_ENTRY void class_sums(const int64_t *sizes, const double *scores, const double *y, const double *weight, double *out) {
    Arithmetic arithmetic;
    int64_t n = sizes[0];
    Shape shape{sizes[1], sizes[2], sizes[3], sizes[4], sizes[5]};
    int64_t configs = shape.configs, outputs = shape.outputs, every = shape.classes + shape.unseen;
    std::vector<double> lanes(8 * outputs);
    for (int64_t first = 0; first < configs; first += 8) {
        int64_t here = configs - first < 8 ? configs - first : 8;
        ClassSums sums(shape, true);
        for (int64_t i = 0; i < n; i++) {
            const double *row = scores + (i * configs + first) * outputs;
            for (int64_t c = 0; c < here; c++)
                for (int64_t k = 0; k < outputs; k++) lanes[8 * k + c] = row[c * outputs + k];
            sums.add(y[i], weight[i], [&](int64_t output) { return load(&lanes[8 * output]); });
            if (i % METRIC_RUN != METRIC_RUN - 1) continue;
            sums.end_run();
            if (stop((16 + 8 * outputs) * METRIC_RUN)) return;
        }
        sums.end_run();
        auto give = [&](int64_t place, D values) {
            double found[8];
            store(found, values);
            memcpy(out + place * configs + first, found, here * sizeof(double));
        };
        give(0, select(sums.broken, all((double)NAN), sums.loss.whole));
        give(1, sums.brier.whole);
        for (int64_t k = 0; k < every; k++) {
            give(2 + k, all(sums.actual[k]));
            give(2 + every + k, sums.said[k].whole), give(2 + 2 * every + k, sums.hit[k].whole);
        }
    }
}

} // namespace grouplearn::metrics
