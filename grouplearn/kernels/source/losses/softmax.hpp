// The log-loss of classes, one score each: log Σ e^score − the score of the label.
#pragma once
#include "losses/loss.hpp"

namespace grouplearn::losses {

struct Softmax : Usual {
    static constexpr bool of_all_scores = true;

    static double start(double share) { return logarithm_of(within_shares(share)); }

    /// The weighted loss of one row; ``score`` (outputs) becomes its weighted derivatives, ``bend``, if any, the second ones, and to
    /// ``trace`` those of each score by itself are added.
    template <class V> static V newton(int64_t outputs, V label, V weight, Number<V> *score, Number<V> *bend, V &trace) {
        constexpr int width = Lanes<V>::count;
        auto hit = [label](int64_t c) { return select(size(label - all<V>((double)c)) < all<V>(0.5), all<V>(1), zero<V>()); };
        V most = load(score), total = zero<V>(), own = zero<V>();
        for (int64_t c = 1; c < outputs; c++) most = larger(load(score + c * width), most);
        for (int64_t c = 0; c < outputs; c++) {
            V below = load(score + c * width) - most, e = exponential(below);
            own = fma(hit(c), below, own);
            total += e;
            store(score + c * width, e);
        }
        V inverse = all<V>(1) / total;
        for (int64_t c = 0; c < outputs; c++) {
            V share = load(score + c * width) * inverse;
            store(score + c * width, share);
            V weighted = weight * share;
            trace = fma(weighted, all<V>(1) - share, trace);
            if (!bend) continue;
            for (int64_t other = 0; other < c; other++, bend += width) store(bend, minus(weighted * load(score + other * width)));
            store(bend, weighted * (all<V>(1) - share));
            bend += width;
        }
        for (int64_t c = 0; c < outputs; c++) store(score + c * width, weight * (load(score + c * width) - hit(c)));
        return weight * (logarithm(total) - own);
    }

    /// Weighted slopes, bends and, if asked for, losses of scores that stand ``apart`` from each other, as do their results. Second
    /// derivatives are at most twice their diagonal, p·(1 − p), which bends as a logistic function of the class against the others
    /// does; they may all move, so that it comes twice as near.
    static void within(int64_t outputs, int64_t apart, D label, D weight, const double *score, const double *reaches, double *slope, double *bend,
                       double *loss) {
        D one = all(1.0), most = load(score), reach = load(reaches), total = zero<D>(), own = zero<D>();
        auto hit = [label](int64_t k) { return size(label - all((double)k)) < all(0.5); };
        for (int64_t k = 1; k < outputs; k++) {
            most = larger(load(score + k * apart), most);
            reach = larger(load(reaches + k * apart), reach);
        }
        for (int64_t k = 0; k < outputs; k++) {
            D below = load(score + k * apart) - most, e = exponential(below);
            own = select(hit(k), below, own), total += e;
            store(slope + k * apart, e);
        }
        D nearer = exponential(reach + reach);
        for (int64_t k = 0; k < outputs; k++) {
            D e = load(slope + k * apart), others = total - e, share = e / total;
            D odds = larger(smaller(e, others) / larger(e, others), all(0x1p-53)); // what is lost in the total, too
            D bends = bend_of_odds(odds, nearer);
            store(slope + k * apart, weight * (share - select(hit(k), one, zero<D>())));
            store(bend + k * apart, weight * (bends + bends));
            if (loss) store(loss + k * apart, k ? zero<D>() : weight * (logarithm(total) - own));
        }
    }

    /// Slopes in place of the scores of ``configs`` models (outputs, configs), whose losses are in the places of their first outputs;
    /// ``room`` has place for one output more, configs in whole lanes.
    static void of_row(int64_t outputs, int64_t configs, int64_t label, double *scores, double *losses, double *room) {
        int64_t wide = (configs + 7) / 8 * 8;
        for (int64_t k = 0; k < outputs; k++)
            for (int64_t c = 0; c < wide; c++) room[k * wide + c] = c < configs ? scores[k * configs + c] : 0.0;
        for (int64_t c = 0; c < wide; c += 8) {
            D most = load(room + c), own = load(room + label * wide + c), total = zero<D>();
            for (int64_t k = 1; k < outputs; k++) most = larger(load(room + k * wide + c), most);
            for (int64_t k = 0; k < outputs; k++) {
                D e = exponential(load(room + k * wide + c) - most);
                total += e;
                store(room + k * wide + c, e);
            }
            for (int64_t k = 0; k < outputs; k++) {
                D share = load(room + k * wide + c) / total;
                store(room + k * wide + c, k == label ? share - all(1.0) : share);
            }
            store(room + outputs * wide + c, most + logarithm(total) - own);
        }
        for (int64_t k = 0; k < outputs; k++)
            for (int64_t c = 0; c < configs; c++) {
                scores[k * configs + c] = room[k * wide + c];
                losses[k * configs + c] = k ? 0.0 : room[outputs * wide + c];
            }
    }
};

} // namespace grouplearn::losses
