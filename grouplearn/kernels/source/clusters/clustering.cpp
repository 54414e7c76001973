// k-means: of one group pass by pass, of many groups in one call, and the nearest centroids of rows.
#include "clusters/clustering_passes.hpp"
#include "clusters/clustering_seeds.hpp"
#include "lanes/entry.hpp"
#include <algorithm>
#include <memory>
#include <vector>

namespace grouplearn::clustering {
namespace {

/// The finished models of a group. `centroids` (K, d), `clusters` (K, 2) weight and rows, K the clusters of all configs; per config
/// `inertia`, `passes` and `phase`.
struct Found {
    double *centroids, *clusters, *inertia;
    int64_t *passes, *phase;
};

/// Seeds of every model, from a sample that is laid out.
void draw_seeds(const Plan &plan, Laid &laid, uint64_t seed, double *centroids) {
    Seeding seeding(laid);
    for (int64_t chain = 0; chain < plan.chains && !stopped(); chain++) {
        Numbers seeds(plan.chain_length[chain] * plan.d);
        uint64_t key = stream(SEEDS, seed, plan.chain_seed[chain], (uint64_t)plan.chain_restart[chain]);
        seeding.draw(key, plan.chain_length[chain], plan.chain_trials[chain], seeds);
        for (int64_t m = 0; m < plan.models; m++)
            if (plan.chain[m] == chain) memcpy(centroids + plan.first[m] * plan.d, seeds, plan.k(m) * plan.d * sizeof(double));
    }
}

void begin(const Plan &plan, const State &state, int64_t phase) {
    for (int64_t m = 0; m < plan.models; m++) state.passes[m] = 0, state.phase[m] = phase, state.inertia[m] = (double)NAN;
    memset(state.clusters, 0, plan.centroids() * 2 * sizeof(double));
}

/// Sums over rows that are laid out some at a time.
void sum_block(Pass &pass, const Rows &rows, const Frame &frame, int64_t number, Laid &room, int64_t at_a_time) {
    pass.begin();
    for (int64_t from = 0; from < rows.count && !stopped(); from += at_a_time) {
        int64_t count = rows.count - from < at_a_time ? rows.count - from : at_a_time;
        room.lay({rows.x, rows.weight, rows.d, rows.first + from, count}, frame);
        pass.add(room, number + from);
    }
}

/// The sums of blocks, merged as train.block_sums has it: those of two halves, wherever there is a whole subtree.
class Tree {
  public:
    explicit Tree(const Plan &plan) : plan(plan) {}

    /// Room for the sums of the next block.
    Sums next() {
        if (used == (int64_t)room.size()) room.push_back(std::make_unique<Numbers>(Sums::size(plan)));
        return at(used++);
    }
    /// After they are there.
    void grow(int64_t block) {
        for (; block & 1; block >>= 1, used--) merge(at(used - 2), at(used - 1), plan);
    }
    Sums total() {
        for (int64_t i = 1; i < used; i++) merge(at(0), at(i), plan);
        used = 0;
        return at(0);
    }

  private:
    const Plan &plan;
    std::vector<std::unique_ptr<Numbers>> room;
    int64_t used = 0;
    Sums at(int64_t place) { return Sums::in(*room[place], plan); }
};

/// The best model of each config, its clusters by weight, the heaviest first, and then by centroid.
void finish(const Plan &plan, const State &state, const Frame &frame, const Found &found) {
    const int64_t d = plan.d;
    std::vector<int64_t> order;
    int64_t out = 0;
    for (int64_t config = 0; config < plan.configs; config++) {
        int64_t best = plan.start[config];
        for (int64_t m = best + 1; m < plan.start[config + 1]; m++)
            if (state.inertia[m] < state.inertia[best]) best = m;
        bool known = state.phase[best] != FAILED && frame.scale > 0;
        found.inertia[config] = known ? state.inertia[best] / frame.scale / frame.scale : (double)NAN;
        found.passes[config] = state.passes[best];
        found.phase[config] = known ? state.phase[best] : (int64_t)FAILED;
        const double *centroids = state.centroids + plan.first[best] * d, *clusters = state.clusters + plan.first[best] * 2;
        int64_t k = plan.k(best);
        order.resize(k);
        for (int64_t c = 0; c < k; c++) order[c] = c;
        std::stable_sort(order.begin(), order.end(), [&](int64_t one, int64_t other) {
            if (clusters[one * 2] != clusters[other * 2]) return clusters[one * 2] > clusters[other * 2];
            const double *left = centroids + one * d, *right = centroids + other * d;
            return clusters[one * 2] > 0 && std::lexicographical_compare(left, left + d, right, right + d);
        });
        for (int64_t c = 0; c < k; c++, out++) {
            int64_t from = order[c];
            bool has_rows = known && clusters[from * 2 + 1] > 0;
            for (int e = 0; e < 2; e++) found.clusters[out * 2 + e] = has_rows ? clusters[from * 2 + e] : 0;
            for (int64_t j = 0; j < d; j++)
                found.centroids[out * d + j] = has_rows ? frame.origin[j] + centroids[from * d + j] / frame.scale : (double)NAN;
        }
    }
}

/// How the configs of a group came to their models: `curve` (configs, limit) the inertia after each pass while a config trained,
/// how many `epochs` these were, and which `converged`.
struct Course {
    double *curve;
    int64_t *epochs;
    uint8_t *converged;
};

/// Starts that have come to rest on a part of the rows go on with all of them.
void move_on(const Plan &plan, const State &state) {
    for (int64_t m = 0; m < plan.models; m++)
        if (state.phase[m] == LAST_LOOK || state.phase[m] == CONVERGED) state.phase[m] = MOVING;
}

/// One group after the other.
class Solver {
  public:
    Solver(const Plan &plan, const Features &x, const double *weight, int64_t block_rows, int64_t sampled, int64_t limit)
        : plan(plan), x(x), weight(weight), block_rows(block_rows), sampled(sampled), limit(limit), centroids(plan.centroids() * plan.d),
          clusters(plan.centroids() * 2), inertia(plan.models), origin(plan.d), low(plan.d), high(plan.d), passes(plan.models),
          phase(plan.models), state{centroids, clusters, inertia, passes.data(), phase.data()}, pass(plan, state), tree(plan),
          some(plan.d, AT_A_TIME) {}

    void solve(int64_t first, int64_t count, uint64_t seed, const Found &found, const Course &course) {
        Rows rows{x, weight, plan.d, first, count};
        bool held = count <= block_rows && count * Laid::numbers(plan.d) <= HELD;
        Frame frame = {origin, 0};
        std::unique_ptr<Laid> drawn_rows, own;
        Laid *whole = nullptr;
        double share = 1;
        if (survey(rows, low, high)) {
            std::vector<Drawn> drawn = sample(weight + first, count, 0, seed, sampled);
            int64_t n = (int64_t)drawn.size();
            Numbers values(n * plan.d, false), weights(n, false);
            for (int64_t i = 0; i < n; i++) {
                x.read((first + drawn[i].row) * plan.d, plan.d, values + i * plan.d);
                weights[i] = weight[first + drawn[i].row];
            }
            frame.scale = clustering::frame(values, n, plan.d, low, high, origin);
            if (stopped()) return;
            begin(plan, state, frame.scale > 0 ? MOVING : FAILED);
            if (frame.scale > 0) {
                drawn_rows = std::make_unique<Laid>(plan.d, n);
                drawn_rows->lay({{nullptr, values}, weights, plan.d, 0, n}, frame);
                draw_seeds(plan, *drawn_rows, seed, centroids);
                if (held && n == count) whole = drawn_rows.get(); // what is sampled is all there is
                if (n < count) share = sum_of(weight + first, count) / sum_of(weights, n);
            }
        } else begin(plan, state, FAILED);
        if (held && !whole && frame.scale > 0) {
            own = std::make_unique<Laid>(plan.d, count);
            own->lay(rows, frame);
            whole = own.get();
        }
        for (int64_t c = 0; c < plan.configs; c++) course.epochs[c] = 0, course.converged[c] = 0;
        for (int64_t epoch = 0; epoch < limit && some_train() && !stopped(); epoch++) {
            // The first pass is one of the rows that seeds are from.
            Sums sums = !epoch ? sums_of(*drawn_rows) : whole ? sums_of(*whole) : sums_of(rows, frame);
            Step step(plan, state, sums);
            for (int64_t m = 0; m < plan.models; m++) step.take(m);
            if (!epoch && drawn_rows->count >= sampled) move_on(plan, state);
            note(epoch, (epoch ? 1 : share) / frame.scale / frame.scale, course);
        }
        if (!stopped()) finish(plan, state, frame, found);
    }

  private:
    static constexpr int64_t AT_A_TIME = 128, HELD = 1 << 20;
    const Plan &plan;
    Features x;
    const double *weight;
    int64_t block_rows, sampled, limit;
    Numbers centroids, clusters, inertia, origin, low, high;
    std::vector<int64_t> passes, phase;
    State state;
    Pass pass;
    Tree tree;
    Laid some;

    bool some_train() const {
        for (int64_t each : phase)
            if (trains(each)) return true;
        return false;
    }

    static double sum_of(const double *numbers, int64_t count) {
        double sum = 0;
        for (int64_t i = 0; i < count; i++) sum += numbers[i];
        return sum;
    }

    /// The least inertia of each config that trained in this pass, and whether it does no more.
    void note(int64_t epoch, double factor, const Course &course) const {
        for (int64_t c = 0; c < plan.configs; c++) {
            if (course.converged[c]) continue;
            double least = (double)NAN;
            bool rests = true;
            for (int64_t m = plan.start[c]; m < plan.start[c + 1]; m++) {
                if (!(state.inertia[m] >= least)) least = state.inertia[m] == state.inertia[m] ? state.inertia[m] : least;
                rests = rests && !trains(state.phase[m]);
            }
            course.curve[c * limit + epoch] = least * factor;
            course.epochs[c] = epoch + 1;
            course.converged[c] = rests;
        }
    }

    Sums sums_of(Laid &whole) {
        pass.begin();
        pass.add(whole, 0);
        pass.write(tree.next());
        return tree.total();
    }

    Sums sums_of(const Rows &rows, const Frame &frame) {
        for (int64_t block = 0; block * block_rows < rows.count && !stopped(); block++) {
            int64_t from = block * block_rows, count = std::min(block_rows, rows.count - from);
            sum_block(pass, {x, weight, plan.d, rows.first + from, count}, frame, from, some, AT_A_TIME);
            pass.write(tree.next());
            tree.grow(block);
        }
        return tree.total();
    }
};

} // namespace

/// The least and the largest numbers of rows with weight, (d) each; returns how many there are.
GROUPLEARN_ENTRY int64_t survey_rows(const float *x_single, const double *x_double, int64_t d, const double *weight, int64_t count,
                                     double *low, double *high) {
    Arithmetic arithmetic;
    return survey({{x_single, x_double}, weight, d, 0, count}, low, high);
}

/// Which rows with weight are in a sample of at most `most`, and what they drew; returns how many. The first row has number `first`.
GROUPLEARN_ENTRY int64_t sample_rows(const double *weight, int64_t count, int64_t first, uint64_t seed, int64_t most, int64_t *row,
                                     double *draw) {
    Arithmetic arithmetic;
    int64_t found = 0;
    for (const Drawn &each : sample(weight, count, first, seed, most)) row[found] = each.row, draw[found++] = (double)each.draw;
    return found;
}

/// Where rows are measured from and how they are scaled, and the seeds of every model, from a sample (count, d) of the group.
GROUPLEARN_ENTRY void start_clustering(const Plan *plan, const double *values, const double *weight, int64_t count, const double *low,
                                       const double *high, uint64_t seed, double *origin, double *scale, State *state) {
    Arithmetic arithmetic;
    *scale = count ? frame(values, count, plan->d, low, high, origin) : 0;
    begin(*plan, *state, *scale > 0 ? MOVING : FAILED);
    if (!(*scale > 0)) return;
    Laid laid(plan->d, count);
    laid.lay({{nullptr, values}, weight, plan->d, 0, count}, {origin, *scale});
    draw_seeds(*plan, laid, seed, state->centroids);
}

/// What a pass over a block sums, of the models that train; its first row has number `first`.
GROUPLEARN_ENTRY void sum_clusters(const Plan *plan, const State *state, const float *x_single, const double *x_double,
                                   const double *weight, int64_t count, int64_t first, const double *origin, double scale,
                                   const Sums *sums) {
    Arithmetic arithmetic;
    Pass pass(*plan, *state);
    Laid room(plan->d, 128);
    sum_block(pass, {{x_single, x_double}, weight, plan->d, 0, count}, {origin, scale}, first, room, 128);
    pass.write(*sums);
}

/// The step of every model that trains after a pass, whose sums it uses up.
GROUPLEARN_ENTRY void step_clusters(const Plan *plan, State *state, const Sums *sums) {
    Arithmetic arithmetic;
    Step step(*plan, *state, *sums);
    for (int64_t m = 0; m < plan->models && !stop(plan->k(m) * plan->d); m++) step.take(m);
}

/// The finished models of a group.
GROUPLEARN_ENTRY void finish_clusters(const Plan *plan, const State *state, const double *origin, double scale, const Found *found) {
    Arithmetic arithmetic;
    if (!stop(plan->centroids() * plan->d)) finish(*plan, *state, {origin, scale}, *found);
}

/// Train every config on every group, rows `start` (groups + 1) each with a `seed` of its own, in `limit` passes at most: 0 when
/// done, 1 when `watch`, which hears of the passes of all configs, said stop. Blocks of so many rows are summed at a time. `found`
/// and `course` are those of the first group.
GROUPLEARN_ENTRY int solve_clusters(const Plan *plan, const float *x_single, const double *x_double, const double *weight,
                                    const int64_t *start, const uint64_t *seed, int64_t groups, int64_t block_rows, int64_t sampled,
                                    int64_t limit, const Found *found, const Course *course, Watch watch) {
    Arithmetic arithmetic;
    Solver solver(*plan, {x_single, x_double}, weight, block_rows, sampled, limit);
    int64_t clusters = 0;
    for (int64_t config = 0; config < plan->configs; config++) clusters += plan->k(plan->start[config]);
    for (int64_t g = 0; g < groups; g++) {
        int64_t at = g * clusters, trial = g * plan->configs;
        Found own{found->centroids + at * plan->d, found->clusters + at * 2, found->inertia + trial, found->passes + trial,
                  found->phase + trial};
        Course to{course->curve + trial * limit, course->epochs + trial, course->converged + trial};
        solver.solve(start[g], start[g + 1] - start[g], seed[g], own, to);
        if (stopped()) return 1;
        int64_t passes = 0;
        for (int64_t c = 0; c < plan->configs; c++) passes += to.epochs[c];
        if (watch(passes)) return 1;
    }
    return 0;
}

} // namespace grouplearn::clustering
