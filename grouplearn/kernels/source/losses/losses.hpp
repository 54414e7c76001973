// The list of losses of linear models: a new one is a header and a line here, and a declaration in ``learners/losses``.
#pragma once
#include "losses/hinge.hpp"
#include "losses/logistic.hpp"
#include "losses/poisson.hpp"
#include "losses/softmax.hpp"
#include "losses/squared_hinge.hpp"
#include "losses/squares.hpp"

namespace grouplearn::losses {

/// Each loss by its type and its name.
#define GROUPLEARN_LOSSES(each)                                                                                                            \
    each(Squares, squares)                                                                                                                 \
    each(Logistic, logistic)                                                                                                               \
    each(Softmax, softmax)                                                                                                                 \
    each(Poisson, poisson)                                                                                                                 \
    each(Hinge, hinge)                                                                                                                     \
    each(SquaredHinge, squared_hinge)

enum class Loss : int64_t {
#define GROUPLEARN_NAMED(Kind, name) name,
    GROUPLEARN_LOSSES(GROUPLEARN_NAMED)
#undef GROUPLEARN_NAMED
};

/// The name of a loss; null after the last.
inline const char *name_of(int64_t number) {
#define GROUPLEARN_NAME(Kind, name) #name,
    static const char *const names[] = {GROUPLEARN_LOSSES(GROUPLEARN_NAME) nullptr};
#undef GROUPLEARN_NAME
    return names[number];
}

/// ``work`` with the loss of that name; every loss gives a result of the same type.
template <class Work> inline auto with(Loss loss, Work work) {
    switch (loss) {
#define GROUPLEARN_CASE(Kind, name)                                                                                                        \
    case Loss::name: return work(Kind());
        GROUPLEARN_LOSSES(GROUPLEARN_CASE)
#undef GROUPLEARN_CASE
    }
    __builtin_unreachable(); // Python gives no other
}

inline bool jumps(Loss loss) {
    return with(loss, [](auto kind) { return decltype(kind)::jumps; });
}
inline bool has_kink(Loss loss) {
    return with(loss, [](auto kind) { return decltype(kind)::with_kink; });
}
inline bool has_constant(Loss loss) {
    return with(loss, [](auto kind) { return decltype(kind)::with_constant; });
}
inline bool of_slack(Loss loss) {
    return with(loss, [](auto kind) { return decltype(kind)::of_slack; });
}
inline bool begins_single(Loss loss) {
    return with(loss, [](auto kind) { return decltype(kind)::begins_single; });
}
inline bool of_all_scores(Loss loss) {
    return with(loss, [](auto kind) { return decltype(kind)::of_all_scores; });
}

/// What a loss adds whatever the score, of ``rows`` labels; ``constant`` has room up to a multiple of 8.
inline void constants(Loss loss, const double *label, int64_t rows, double *constant) {
    for (int64_t i = 0; i < (rows + 7) / 8 * 8; i++) constant[i] = i < rows ? label[i] : 1;
    with(loss, [&](auto kind) {
        for (int64_t i = 0; i < rows; i += 8) store(constant + i, decltype(kind)::constant(load(constant + i)));
    });
}

} // namespace grouplearn::losses
