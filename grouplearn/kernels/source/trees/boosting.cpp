// Small groups boosted by LightGBM one after another, without the interpreter: its C API is called by address.
//
// What it makes of a group is what it makes where Python calls the same functions in the same order (learners/trees/boosting.py):
// a group of which it refuses anything has no model here, and tells its reason when it trains alone.
#include "lanes/entry.hpp"
#include "trees/sums.hpp"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace grouplearn::boosting {
namespace {

/// Functions of LightGBM's c_api.h, in the order in which Python gives them. They return 0, or something is wrong.
struct Api {
    int (*dataset_of_matrix)(const void *x, int type, int32_t n, int32_t d, int by_row, const char *, const void *bins, void **);
    int (*set_field)(void *, const char *, const void *, int n, int type);
    int (*free_dataset)(void *);
    int (*booster_on)(const void *dataset, const char *, void **);
    int (*booster_of_text)(const char *, int *rounds, void **);
    int (*watch)(void *, const void *dataset);
    int (*update)(void *, int *stalled);
    int (*iterations)(void *, int *);
    int (*evaluate)(void *, int place, int *count, double *);
    int (*running)(void *, int place, int64_t *count, double *);
    int (*to_text)(void *, int first, int rounds, int importance, int64_t room, int64_t *length, char *);
    int (*predict)(void *, const void *x, int type, int32_t n, int32_t d, int by_row, int kind, int first, int rounds,
                   const char *, int64_t *count, double *);
    int (*free_booster)(void *);
};

enum Type { FLOAT32, FLOAT64 };
enum Predicted { RAW_SCORES = 1, LEAVES = 2 };
enum Watched { NOTHING, METRIC, PREDICTIONS };

/// What LightGBM made, which is let go of with this.
struct Made {
    int (*free)(void *);
    void *handle = nullptr;
    explicit Made(int (*free)(void *)) : free(free) {}
    ~Made() {
        if (handle) free(handle);
    }
    Made(const Made &) = delete;
};

/// Rows of groups one after another: x of single precision or of double, labels and weights as LightGBM holds them.
struct Rows {
    const float *x_single;
    const double *x;
    const float *label, *weight;
    const int64_t *start;

    int64_t count(int64_t group) const { return start[group + 1] - start[group]; }
    const void *at(int64_t group, int64_t d) const {
        return x ? (const void *)(x + start[group] * d) : (const void *)(x_single + start[group] * d);
    }
    int type() const { return x ? FLOAT64 : FLOAT32; }
};

/// What is trained: parameters before and after the seed, of the bins first and then of each booster. The configs of a booster
/// are its beginnings: those from ``first[f]`` on have ``limit`` rounds. It ``recovers`` if a round may follow one without a split.
struct Plan {
    int64_t groups, d, outputs, boosters, watched;
    const int64_t *seed;
    const char *const *head, *const *tail;
    const int64_t *first, *limit;
    const uint8_t *recovers;

    std::string parameters(int64_t place, int64_t group) const {
        char number[24];
        snprintf(number, sizeof number, "%lld", (long long)seed[group]);
        return std::string(head[place]) + number + tail[place];
    }
    int64_t configs() const { return first[boosters]; }
    int64_t rounds(int64_t booster) const {
        int64_t most = 0;
        for (int64_t c = first[booster]; c < first[booster + 1]; c++) most = most < limit[c] ? limit[c] : most;
        return most;
    }
};

/// Where results go. Per group and config: the rounds of the model, the end of its text among all, and its gains (d); per group
/// and booster the rounds that were run. ``watched`` are the numbers after each round, one group and booster after the other.
struct Found {
    int64_t *rounds, *text_end, *run;
    double *gain;
    uint8_t *sound;
};

/// Bytes that grow, kept by malloc: they outlive the call.
struct Grown {
    char *bytes = nullptr;
    size_t size = 0, room = 0;

    char *reserve(size_t more) {
        if (size + more > room) {
            room = 2 * room > size + more ? 2 * room : size + more;
            bytes = (char *)realloc(bytes, room);
            if (!bytes) abort();
        }
        return bytes + size;
    }
    void add(const void *values, size_t count) { memcpy(reserve(count), values, count), size += count; }
};

constexpr char TEXT_ENDS[] = "\npandas_categorical:null\n";
constexpr size_t TEXT_ROOM = 1 << 15;

/// Adds the text of the first iterations, as ``Booster.to_text`` has it.
bool add_text(const Api &api, void *booster, int iterations, Grown &texts) {
    size_t room = TEXT_ROOM;
    for (;;) {
        int64_t length = 0;
        char *text = texts.reserve(room);
        if (api.to_text(booster, 0, iterations, 0, (int64_t)room, &length, text)) return false;
        if (length > (int64_t)room) {
            room = (size_t)length;
            continue;
        }
        texts.size += strlen(text);
        texts.add(TEXT_ENDS, sizeof TEXT_ENDS - 1);
        return true;
    }
}

/// A number of a list, and where it ends. Up to 15 digits and powers of ten to 22 are exact in double precision.
double number(const char *&at) {
    static const double TENS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                  1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    const char *begin = at, *p = at;
    bool negative = *p == '-';
    p += negative;
    int64_t mantissa = 0;
    int digits = 0, power = 0;
    for (; *p >= '0' && *p <= '9'; p++, digits++) mantissa = digits < 16 ? 10 * mantissa + (*p - '0') : mantissa;
    if (*p == '.')
        for (p++; *p >= '0' && *p <= '9'; p++, digits++, power--) mantissa = digits < 16 ? 10 * mantissa + (*p - '0') : mantissa;
    if (*p == 'e') {
        char *end;
        power += (int)strtol(p + 1, &end, 10);
        p = end;
    }
    if (!digits || digits > 15 || power < -22 || power > 22) {
        char *end;
        double found = strtod(begin, &end);
        at = end;
        return found;
    }
    at = p;
    double found = power < 0 ? (double)mantissa / TENS[-power] : (double)mantissa * TENS[power];
    return negative ? -found : found;
}

/// Adds the gains of splits to those of their features (d), as LightGBM reads them from a text; false if a leaf is no number.
bool read_trees(const char *text, const char *end, int64_t d, double *gain) {
    auto begins = [](const char *line, const char *name) { return !strncmp(line, name, strlen(name)); };
    const char *feature = nullptr;
    for (const char *line = text; line < end && !begins(line, "end of trees");) {
        const char *next = (const char *)memchr(line, '\n', (size_t)(end - line));
        next = next ? next : end;
        if (begins(line, "leaf_value=") || begins(line, "leaf_const=") || begins(line, "leaf_coeff=")) {
            if (memchr(line + 11, 'n', (size_t)(next - line - 11))) return false; // nan, or inf
        } else if (begins(line, "split_feature=")) {
            feature = line + 14;
        } else if (feature && begins(line, "split_gain=")) {
            for (const char *at = line + 11; at < next; at++) {
                int64_t column = (int64_t)number(feature);
                double own = (double)(float)number(at);
                if (own > 0 && column >= 0 && column < d) gain[column] += own;
                feature++;
            }
        }
        line = next + 1;
    }
    return true;
}

/// The leaves of a text's trees.
class Leaves {
  public:
    void read(const char *text, const char *end) {
        values.clear(), first.clear();
        for (const char *line = text; line < end && strncmp(line, "end of trees", 12);) {
            const char *next = (const char *)memchr(line, '\n', (size_t)(end - line));
            next = next ? next : end;
            if (!strncmp(line, "leaf_value=", 11)) {
                first.push_back(values.size());
                for (const char *at = line + 11; at < next; at++) values.push_back(number(at));
            }
            line = next + 1;
        }
    }
    int64_t trees() const { return (int64_t)first.size(); }

    /// The sum over the trees of output ``k`` of ``factor`` times the leaf that a row comes to, which ``reached`` numbers.
    double sum(const double *reached, int64_t k, int64_t outputs, double factor) const {
        Sum<double> found{0, 0};
        for (int64_t tree = k; tree < trees(); tree += outputs)
            found.add(values[first[(size_t)tree] + (size_t)reached[tree]] * factor);
        return found.whole();
    }

  private:
    std::vector<double> values;
    std::vector<size_t> first; // of each tree
};

/// A dataset of a group's rows; false if LightGBM refuses it. Without weights where all are 1: it is faster so.
bool make(const Api &api, const Plan &plan, const Rows &rows, int64_t group, const char *parameters, const void *bins, Made &made) {
    int64_t n = rows.count(group), first = rows.start[group];
    if (api.dataset_of_matrix(rows.at(group, plan.d), rows.type(), (int32_t)n, (int32_t)plan.d, 1, parameters, bins, &made.handle))
        return false;
    if (api.set_field(made.handle, "label", rows.label + first, (int)n, FLOAT32)) return false;
    bool weighs = false;
    for (int64_t i = 0; i < n; i++) weighs |= rows.weight[first + i] != 1;
    return !weighs || !api.set_field(made.handle, "weight", rows.weight + first, (int)n, FLOAT32);
}

class Boosting {
  public:
    Boosting(const Api &api, const Plan &plan, const Rows &train, const Rows &valid, const Found &found)
        : api(api), plan(plan), train(train), valid(valid), found(found) {}
    Grown texts, watched;

    /// Boosts all configs of a group; false if LightGBM refuses anything of it.
    bool group(int64_t group) {
        std::string bins = plan.parameters(0, group);
        Made rows(api.free_dataset), held_out(api.free_dataset);
        if (!make(api, plan, train, group, bins.c_str(), nullptr, rows)) return false;
        if (plan.watched && !make(api, plan, valid, group, bins.c_str(), rows.handle, held_out)) return false;
        for (int64_t each = 0; each < plan.boosters; each++) {
            Made booster(api.free_booster);
            std::string parameters = plan.parameters(1 + each, group);
            if (api.booster_on(rows.handle, parameters.c_str(), &booster.handle)) return false;
            if (plan.watched && api.watch(booster.handle, held_out.handle)) return false;
            if (!boost(booster.handle, each, group) || !write(booster.handle, each, group)) return false;
        }
        return true;
    }

  private:
    const Api &api;
    const Plan &plan;
    const Rows &train, &valid;
    const Found &found;
    std::vector<int> trees; // after each round
    std::vector<double> predictions;

    /// Boosts up to the most rounds of a booster's configs, or until no round can add a tree.
    bool boost(void *booster, int64_t number, int64_t group) {
        trees.clear();
        for (int64_t round = plan.rounds(number); round > 0 && !stop(STRETCH); round--) {
            int stalled = 0, iterations = 0;
            if (api.update(booster, &stalled)) return false;
            if (stalled && !trees.empty() && !plan.recovers[number]) break;
            if (api.iterations(booster, &iterations)) return false;
            trees.push_back(iterations);
            if (plan.watched && !look(booster, group)) return false;
        }
        found.run[group * plan.boosters + number] = (int64_t)trees.size();
        return !stopped();
    }

    /// Notes the metric of the rows held out, or what is predicted for them.
    bool look(void *booster, int64_t group) {
        if (plan.watched == METRIC) {
            int count = 0;
            double value = 0;
            if (api.evaluate(booster, 1, &count, &value)) return false;
            watched.add(&value, sizeof value);
            return true;
        }
        int64_t count = valid.count(group) * plan.outputs, given = 0;
        predictions.resize((size_t)count);
        if (api.running(booster, 1, &given, predictions.data()) || given != count) return false;
        watched.add(predictions.data(), (size_t)count * sizeof(double));
        return true;
    }

    bool write(void *booster, int64_t number, int64_t group) {
        for (int64_t c = plan.first[number]; c < plan.first[number + 1]; c++) {
            int64_t run = (int64_t)trees.size(), rounds = plan.limit[c] < run ? plan.limit[c] : run;
            int64_t place = group * plan.configs() + c;
            size_t begin = texts.size;
            if (rounds < 1 || !add_text(api, booster, trees[(size_t)rounds - 1], texts)) return false;
            found.rounds[place] = rounds, found.text_end[place] = (int64_t)texts.size;
            double *gain = found.gain + place * plan.d;
            texts.reserve(1)[0] = 0; // a number at the end of a list has an end
            if (!read_trees(texts.bytes + begin, texts.bytes + texts.size, plan.d, gain)) return false;
        }
        return true;
    }
};

} // namespace

/// Boosts groups. ``grown`` are their texts one after another, as long as the last ``text_end`` says, and the numbers after each
/// round: the caller's to ``free_grown``. A group that is not ``sound`` has neither.
GROUPLEARN_ENTRY void boost_groups(const Api *api, const Plan *plan, const Rows *train, const Rows *valid, const Found *found,
                                   void **grown) {
    Boosting boosting(*api, *plan, *train, *valid, *found);
    int64_t configs = plan->configs();
    for (int64_t group = 0; group < plan->groups && !stop(STRETCH); group++) {
        size_t texts = boosting.texts.size, watched = boosting.watched.size;
        found->sound[group] = boosting.group(group);
        if (found->sound[group]) continue;
        boosting.texts.size = texts, boosting.watched.size = watched;
        for (int64_t c = 0; c < configs; c++) found->text_end[group * configs + c] = (int64_t)texts;
        for (int64_t each = 0; each < plan->boosters; each++) found->run[group * plan->boosters + each] = 0;
    }
    grown[0] = boosting.texts.bytes, grown[1] = boosting.watched.bytes;
}

GROUPLEARN_ENTRY void free_grown(void *bytes) { free(bytes); }

/// What of a config's texts cannot be read off their trees: LightGBM multiplies scores by ``factor`` in the logistic function, and
/// of a forest it takes the mean of trees. Leaves that are ``linear`` functions only it knows.
struct Scale {
    const double *factor;
    const uint8_t *mean, *linear;
};

/// Scores of the models of groups for rows of these (n, C, outputs): texts one after another, model m from ``start[m]`` on. Which
/// leaf a row comes to LightGBM says; they are added here, as the kernel of predictions does (scoring/trees.cpp).
/// Returns 0, or 1 where LightGBM refuses anything: it knows why.
GROUPLEARN_ENTRY int predict_groups(const Api *api, const Plan *plan, const Rows *rows, const char *texts, const int64_t *start,
                                    const Scale *scale, double *scores) {
    Arithmetic arithmetic;
    int64_t configs = plan->configs(), outputs = plan->outputs;
    std::vector<double> own;
    std::string text;
    Leaves leaves;
    for (int64_t group = 0; group < plan->groups; group++) {
        int64_t n = rows->count(group), first = rows->start[group];
        if (!n) continue;
        for (int64_t c = 0; c < configs && !stop(STRETCH); c++) {
            int64_t place = group * configs + c, count = 0;
            int rounds = 0;
            Made booster(api->free_booster);
            text.assign(texts + start[place], (size_t)(start[place + 1] - start[place]));
            if (api->booster_of_text(text.c_str(), &rounds, &booster.handle)) return 1;
            bool linear = scale->linear[c];
            leaves.read(text.c_str(), text.c_str() + text.size());
            int64_t numbers = linear ? outputs : leaves.trees();
            own.resize((size_t)(n * numbers));
            if (api->predict(booster.handle, rows->at(group, plan->d), rows->type(), (int32_t)n, (int32_t)plan->d, 1,
                             linear ? RAW_SCORES : LEAVES, 0, -1, "num_threads=1", &count, own.data()) ||
                count != n * numbers)
                return 1;
            double factor = scale->factor[c] / (double)(scale->mean[c] ? leaves.trees() / outputs : 1);
            for (int64_t i = 0; i < n; i++) {
                double *to = scores + ((first + i) * configs + c) * outputs;
                const double *of_row = own.data() + i * numbers;
                for (int64_t k = 0; k < outputs; k++)
                    to[k] = linear ? of_row[k] * factor : leaves.sum(of_row, k, outputs, factor);
            }
        }
        if (stopped()) return 0;
    }
    return 0;
}

} // namespace grouplearn::boosting
