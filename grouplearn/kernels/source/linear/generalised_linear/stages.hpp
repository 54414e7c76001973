// What Newton's method knows of a model in training that is not in lanes, and the limits by which it goes on, is damped or ends.
#pragma once
#include "lanes/elementary.hpp"
#include <cmath>
#include <cstdint>
#include <cstring>

namespace grouplearn::generalised_linear {
namespace {

/// Share of the predicted fall that a step must reach (Armijo).
constexpr double sufficient = 1e-4;
/// The most lanes there are.
constexpr int most_lanes = 16;
/// A column is constant when its variance is below this share of its squared mean.
constexpr double constant_below = 1e-24;
/// Rows per parameter that the second derivatives are taken from at first, and the fewest.
constexpr int64_t sampled_per_parameter = 16, fewest_sampled = 2048;
/// Of a loss that bends for few rows they are that many times as many: so much by the number of parameters, and no more.
constexpr int64_t few_of_which_bend = 128, most_more = 16;
/// How often its steps are shortened before they are given up, in double precision.
constexpr int far_retries = 60;
/// The same by second derivatives of some rows, which may not have seen a rare category: then they are taken anew, of more rows.
constexpr int few_retries = 8;
/// After so many times the next steps are damped, whatever the loss: second derivatives of rows that are wrong and sure of it are next
/// to nothing (a logistic one is e^-40 there), and a step by them leads far beyond.
constexpr int shortened_much = 8;
/// The same of a step that promised much, by second derivatives in double precision.
constexpr int hopeless_retries = 11;
/// What part of the damping is left after a whole step, and the share of the sum of second derivatives that is none.
constexpr double eased = 0.25, least_damping = 1e-12;
/// What is left of it where damped steps promise next to nothing.
constexpr double doubted = 1e-3;
/// The sum of its losses, of rows that weigh about 1, where all are beyond their margin but for rounding.
constexpr double no_loss = 1e-20;
/// How far a smooth loss is from one with a kink at first and at last, and what is left of that from one to the next. A row adds that
/// much, at most, to what is left to gain: the gap between the objective and its dual (Boyd & Vandenberghe 2004, section 11.2).
constexpr double first_smoothing = 1, least_smoothing = 1e-14, smoother = 0.1;
/// The gain, as a share of the smoothing, below which a smooth loss leads no farther; the share of the objective that rounding hides.
constexpr double level = 1, unseen = 1e-13;
/// What is left of a step that is shortened: half, or less where the smoothing has changed.
constexpr double shorter = 0.5, much_shorter = 0.25;

/// How a stage ends a model, relative to its objective, and what rounding and failures it allows for.
struct Stage {
    double tolerance, rounding, ridge, model_share, curved;
    int retries, model_rounds;
};
constexpr Stage single_stage = {1, 4e-7, 1e-6, 1e-3, 1e-5, 6, 12};
constexpr Stage double_stage = {1e-2, 1e-14, 1e-12, 1e-9, 1e-10, 40, 200};
/// A factor in single precision with a smaller share of a diagonal left says little of that direction.
constexpr double least_share = 1e-3;
/// Penalties beyond this are alike in the curvature.
constexpr double largest_ridge = 1e30;
/// How many weights are made zero, one after the other, before the others have a round of their own.
constexpr int most_cut = 8;
/// A step beyond this is none.
constexpr double farthest = 1e30;
/// Steps after which second derivatives are taken anew: of all rows they take the time of a pass for every four columns.
constexpr int patience = 4;
/// The most steps that are remembered, those of both stages.
constexpr int most_steps = 2 * patience;
/// Second derivatives are taken anew, too, where their sum has become that many times as large or as small.
constexpr double other_bend = 3;
/// The same where they jump: what is left of their sum is of other rows.
constexpr double jumped_bend = 1.1;

/// Share of its first diagonal that the second derivatives of a model of many parameters have left at least.
constexpr double least_diagonal = 1e-9;
/// Where all that the gradient says is that so much of the objective may be left, a model of a matrix that is guessed is not called finished:
/// it promises nothing beside rows that outweigh all others, or where columns say nearly the same. With l1 that holds most weights a small
/// ridge says less of what is left.
constexpr double unproven = 1e-3, unproven_sparse = 1e-2;
/// Where steps promise nothing by a matrix that is guessed, the last must have fallen by less than that many times what ends training.
constexpr double slow = 10;

/// Every how many rows second derivatives are taken from in the given iteration, for ``least`` of them in the first ones.
inline int64_t stride_at(int64_t rows, int64_t size, int64_t iteration, int64_t least) {
    int64_t wanted = sampled_per_parameter * size;
    if (wanted < least) wanted = least;
    for (int64_t later = iteration; later >= 8 && wanted < rows; later -= 6) wanted *= 4;
    return rows / wanted > 1 ? rows / wanted : 1;
}

/// 1/spread of a column with this sum of squares about ``centre``, of rows that weigh ``total``; 0 of one that is constant.
inline double inverse_spread(double square, double total, double centre) {
    bool varies = square > 0 && square > constant_below * total * centre * centre;
    return varies ? __builtin_sqrt(total) / __builtin_sqrt(square) : 0;
}

/// A power of two near a positive number.
inline double power_of_two_near(double a) {
    uint64_t bits;
    memcpy(&bits, &a, sizeof bits);
    bits &= 0x7ff0000000000000ULL;
    memcpy(&a, &bits, sizeof bits);
    return a;
}

/// Whether there are second derivatives at ``trial``: never, for who asks, or already.
enum class Bends { none, asked_for, known };

/// A model in training that is not in the lanes of a register.
struct Model {
    double value = 0, reached = 0, fall = 0, descent = 0, length = 1;
    double objective = 0; // the value, but of a loss with a kink as it is
    bool anew = false;    // whether it stays where it is, to be evaluated by another loss
    bool stuck = false;   // whether no step from there goes down
    double bend = 0, bend_then = 0; // the sum of second derivatives by scores, now and where ``chol`` is from
    bool active = false, accepted = false, converged = false, failed = false, sparse = false, uncounted = true;
    bool trusted = false, doubtful = false, shortened = false, judged = false;
    Bends bends = Bends::asked_for;
    double damping = 0;  // what is added to second derivatives, that steps stay where these hold
    bool damped = false; // whether ``chol`` has some of it
    bool sampled = false; // whether it is of some rows only
    bool few = false;     // whether it is of so few rows that another method may have it
    bool open = false, left = false; // whether its quadratic model was not minimised, and whether it was left for that
    double tolerance = 0, dropped = 0, begins = 1; // what ends it, by how much its last step fell, the length of the next
    int64_t passes = 0;
    int retries = 0, age = 0, steps = 0; // steps since ``chol`` of this stage, and those that are remembered
};

} // namespace
} // namespace grouplearn::generalised_linear
