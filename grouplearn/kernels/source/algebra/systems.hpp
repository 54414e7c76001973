// Eight positive definite systems side by side, one per lane: their Cholesky factors, solutions and the traces of their inverses.
#pragma once
#include "algebra/matrices.hpp"

namespace grouplearn {

/// (A + l2·diag(inverse²)) v = right, for A (d, width) with rows in lanes; v goes to `solution` (width).
struct System {
    const double *matrix, *right, *inverse;
    double l2;
    double *solution;
};

#if defined(GROUPLEARN_AVX512) || defined(GROUPLEARN_NEON)
constexpr int SYSTEM_COLUMNS = 4; // what the registers hold; it is of no consequence for the sums
#else
constexpr int SYSTEM_COLUMNS = 2;
#endif

class SystemSolver {
  public:
    SystemSolver(int64_t d, int64_t width)
        : d(d), width(width), factor((d * (d + 1) / 2 + d + 1) * 8), scale((d + 1) * 8), column(4 * (d + 1) * 8) {}

    /// Solves up to eight systems. `regular` tells for each whether its pivots are above `least`, and `trace`, if it is
    /// wanted, the trace of the inverse, which is more than the inverse of the least eigenvalue.
    void solve(const System *systems, int count, double least, bool *regular, double *trace) {
        gather(systems, count);
        DMask sound = decompose(all(least));
        double lanes[8];
        store(lanes, select(sound, all(1.0), zero<D>()));
        for (int i = 0; i < count; i++) regular[i] = lanes[i] == 1;
        if (trace) {
            store(lanes, inverse_trace());
            for (int i = 0; i < count; i++) trace[i] = lanes[i];
        }
        substitute();
        for (int64_t j = 0; j < d; j += 8) {
            D turned[8];
            for (int k = 0; k < 8; k++) turned[k] = j + k < d ? load(row(d) + 8 * (j + k)) : zero<D>();
            turn(turned);
            for (int i = 0; i < count; i++) store(systems[i].solution + j, turned[i]);
        }
    }

  private:
    int64_t d, width;
    Numbers factor, scale, column;
    Looks looks;

    /// Row a of the lower triangle; row d is the right side.
    double *row(int64_t a) { return factor + a * (a + 1) / 2 * 8; }

    void gather(const System *systems, int count) {
        // Systems of one matrix stand beside each other: one number for all of them, and a choice of lanes for each further one.
        int first[9], runs = 0;
        for (int i = 0; i < count; i++)
            if (!i || systems[i].matrix != systems[i - 1].matrix || systems[i].right != systems[i - 1].right) first[runs++] = i;
        first[runs] = 8;
        DMask chosen[8];
        const double numbers[8] = {0, 1, 2, 3, 4, 5, 6, 7};
        for (int run = 1; run < runs; run++) chosen[run] = all(first[run] - 0.5) < load(numbers);
        double penalties[8];
        for (int i = 0; i < 8; i++) penalties[i] = systems[i < count ? i : count - 1].l2;
        D l2 = load(penalties);
        const System *of_run[8];
        for (int run = 0; run < runs; run++) of_run[run] = systems + first[run];
        if (runs == 1) fill<1>(of_run, chosen, 1, l2);
        else if (runs == 2) fill<2>(of_run, chosen, 2, l2);
        else fill<8>(of_run, chosen, runs, l2);
    }

    template <int most> void fill(const System *const *systems, const DMask *chosen, int runs, D l2) {
        const double *matrix[most], *right[most], *inverse[most];
        for (int run = 0; run < most && run < runs; run++) {
            matrix[run] = systems[run]->matrix, right[run] = systems[run]->right, inverse[run] = systems[run]->inverse;
        }
        auto pick = [&](const double *const *numbers, int64_t place) {
            D value = all(numbers[0][place]);
            for (int run = 1; run < most && run < runs; run++) value = select(chosen[run], all(numbers[run][place]), value);
            return value;
        };
        for (int64_t a = 0; a < d; a++) {
            double *to = row(a);
            for (int64_t b = 0; b < a; b++) store(to + 8 * b, pick(matrix, a * width + b));
            D scaled = pick(inverse, a);
            store(to + 8 * a, pick(matrix, a * width + a) + l2 * (scaled * scaled));
        }
        for (int64_t b = 0; b < d; b++) store(row(d) + 8 * b, pick(right, b));
    }

    /// Rows a to a + rows of the factor, columns b to b + columns, all left of the diagonal.
    template <int rows, int columns> void left_of_diagonal(int64_t a, int64_t b) {
        D part[rows][columns];
        double *mine[rows];
        const double *other[columns];
        for (int r = 0; r < rows; r++) mine[r] = row(a + r);
        for (int c = 0; c < columns; c++) other[c] = row(b + c);
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < columns; c++) part[r][c] = load(mine[r] + 8 * (b + c));
        for (int64_t k = 0; k < b; k++) {
            D right[columns];
            for (int c = 0; c < columns; c++) right[c] = load(other[c] + 8 * k);
            for (int r = 0; r < rows; r++) {
                D left = load(mine[r] + 8 * k);
                for (int c = 0; c < columns; c++) part[r][c] = fnma(left, right[c], part[r][c]);
            }
        }
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < columns; c++) {
                for (int before = 0; before < c; before++)
                    part[r][c] = fnma(part[r][before], load(other[c] + 8 * (b + before)), part[r][c]);
                part[r][c] = part[r][c] * load(scale + 8 * (b + c));
                store(mine[r] + 8 * (b + c), part[r][c]);
            }
    }

    /// The block of rows a to a + rows on the diagonal.
    template <int rows> DMask diagonal(int64_t a, D least, DMask sound) {
        D part[rows][rows];
        for (int r = 0; r < rows; r++)
            for (int c = 0; c <= r && a + c < d; c++) part[r][c] = load(row(a + r) + 8 * (a + c));
        for (int64_t k = 0; k < a; k++) {
            D mine[rows];
            for (int r = 0; r < rows; r++) mine[r] = load(row(a + r) + 8 * k);
            for (int r = 0; r < rows; r++)
                for (int c = 0; c <= r; c++) part[r][c] = fnma(mine[r], mine[c], part[r][c]);
        }
        for (int r = 0; r < rows; r++)
            for (int c = 0; c <= r && a + c < d; c++) {
                for (int before = 0; before < c; before++) part[r][c] = fnma(part[r][before], part[c][before], part[r][c]);
                if (c < r) {
                    part[r][c] = part[r][c] * load(scale + 8 * (a + c));
                } else {
                    DMask here = least < part[r][r];
                    sound = sound & here;
                    D root_of = root(select(here, part[r][r], all(1.0)));
                    store(scale + 8 * (a + r), all(1.0) / root_of);
                    part[r][r] = root_of;
                }
                store(row(a + r) + 8 * (a + c), part[r][c]);
            }
        return sound;
    }

    template <int rows> DMask some_rows(int64_t a, D least, DMask sound) {
        if (looks.stop(rows * a * a / 2)) return sound;
        for (int64_t b = 0; b < a; b += SYSTEM_COLUMNS) left_of_diagonal<rows, SYSTEM_COLUMNS>(a, b);
        return diagonal<rows>(a, least, sound);
    }

    DMask decompose(D least) {
        DMask sound = zero<D>() <= zero<D>();
        for (int64_t a = 0; a <= d; a += 4) switch (d + 1 - a) {
            case 1: sound = some_rows<1>(a, least, sound); break;
            case 2: sound = some_rows<2>(a, least, sound); break;
            case 3: sound = some_rows<3>(a, least, sound); break;
            default: sound = some_rows<4>(a, least, sound);
            }
        return sound;
    }

    /// Columns a to a + columns of the factor's transpose.
    template <int columns> void substitute(int64_t a) {
        double *x = row(d);
        D part[columns];
        for (int c = 0; c < columns; c++) part[c] = load(x + 8 * (a + c));
        for (int64_t k = d - 1; k >= a + columns; k--) {
            D value = load(x + 8 * k);
            const double *left = row(k) + 8 * a;
            for (int c = 0; c < columns; c++) part[c] = fnma(value, load(left + 8 * c), part[c]);
        }
        for (int c = columns - 1; c >= 0; c--) {
            part[c] = part[c] * load(scale + 8 * (a + c));
            store(x + 8 * (a + c), part[c]);
            const double *left = row(a + c) + 8 * a;
            for (int before = 0; before < c; before++) part[before] = fnma(part[c], load(left + 8 * before), part[before]);
        }
    }

    void substitute() {
        int64_t a = d;
        for (; a >= 4; a -= 4) substitute<4>(a - 4);
        for (; a > 0; a--) substitute<1>(a - 1);
    }

    /// The sum of the squares of the inverse factor, four columns at a time.
    D inverse_trace() {
        D total = zero<D>();
        for (int64_t j = 0; j < d && !looks.stop(2 * (d - j) * (d - j)); j += 4) {
            for (int64_t i = j; i < d; i++) {
                const double *left = row(i);
                D part[4];
                for (int c = 0; c < 4; c++) part[c] = j + c == i ? all(1.0) : zero<D>();
                for (int64_t k = j; k < i; k++) {
                    D value = load(left + 8 * k);
                    for (int c = 0; c < 4; c++) part[c] = fnma(value, load(column + (c * d + k) * 8), part[c]);
                }
                D own = load(scale + 8 * i);
                for (int c = 0; c < 4; c++) {
                    part[c] = part[c] * own;
                    store(column + (c * d + i) * 8, part[c]);
                    total = fma(part[c], part[c], total);
                }
            }
        }
        return total;
    }
};

} // namespace grouplearn
