// Small dense matrices in double precision: memory for them, products of columns, orthogonal directions, triangles.
#pragma once
#include "lanes/lanes.hpp"
#include "lanes/looks.hpp"
#include <cstdlib>

namespace grouplearn {

/// Zeros (or, where each is written before it is read, whatever there is), aligned for lanes, freed at the end of the scope.
class Numbers {
  public:
    explicit Numbers(int64_t count, bool zeros = true) {
        size_t bytes = ((size_t)(count > 0 ? count : 1) * sizeof(double) + 63) / 64 * 64;
        memory = (double *)aligned_alloc(64, bytes);
        if (!memory) abort();
        if (zeros) memset(memory, 0, bytes);
    }
    ~Numbers() { free(memory); }
    Numbers(const Numbers &) = delete;
    operator double *() { return memory; }
    const double *start() const { return memory; }

  private:
    double *memory;
};

/// The least multiple of 8 that is no less: the length of a column in lanes, padded with zeros.
inline int64_t in_lanes(int64_t count) { return (count + 7) / 8 * 8; }

/// Σ aᵢbᵢ of columns of a length in lanes: four sums of every fourth run of lanes.
inline double dot(const double *a, const double *b, int64_t length) {
    D sums[4] = {zero<D>(), zero<D>(), zero<D>(), zero<D>()};
    int64_t i = 0;
    for (; i + 32 <= length; i += 32)
        for (int k = 0; k < 4; k++) sums[k] = fma(load(a + i + 8 * k), load(b + i + 8 * k), sums[k]);
    for (int k = 0; i < length; i += 8, k++) sums[k] = fma(load(a + i), load(b + i), sums[k]);
    return sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

/// y + factor·x in place of y.
inline void add_multiple(double *y, double factor, const double *x, int64_t length) {
    D f = all(factor);
    for (int64_t i = 0; i < length; i += 8) store(y + i, fma(f, load(x + i), load(y + i)));
}

/// y − Σ vᵢ·rowᵢ in place of y, for `blocks` blocks of eight columns of rows (count, width).
template <int blocks>
inline void subtract_some(double *y, const double *v, const double *rows, int64_t count, int64_t width) {
    D part[blocks];
    for (int b = 0; b < blocks; b++) part[b] = load(y + 8 * b);
    for (int64_t i = 0; i < count; i++) {
        if (v[i] == 0) continue;
        D factor = all(v[i]);
        for (int b = 0; b < blocks; b++) part[b] = fnma(factor, load(rows + i * width + 8 * b), part[b]);
    }
    for (int b = 0; b < blocks; b++) store(y + 8 * b, part[b]);
}

inline void subtract_rows(double *y, const double *v, const double *rows, int64_t count, int64_t width) {
    int64_t column = 0;
    for (; column + 64 <= width; column += 64) subtract_some<8>(y + column, v, rows + column, count, width);
    for (; column + 32 <= width; column += 32) subtract_some<4>(y + column, v, rows + column, count, width);
    for (; column < width; column += 8) subtract_some<1>(y + column, v, rows + column, count, width);
}

/// (a, b) turned: a·cosine − b·sine and a·sine + b·cosine.
inline void turn(double *a, double *b, double cosine, double sine, int64_t length) {
    D c = all(cosine), s = all(sine);
    for (int64_t i = 0; i < length; i += 8) {
        D x = load(a + i), y = load(b + i);
        store(a + i, fnma(s, y, c * x));
        store(b + i, fma(s, x, c * y));
    }
}

inline void exchange(double *a, double *b, int64_t length) {
    if (a == b) return;
    for (int64_t i = 0; i < length; i += 8) {
        D x = load(a + i);
        store(a + i, load(b + i));
        store(b + i, x);
    }
}

/// The square of a column's length after it has changed by so much; added up anew where most digits are gone.
inline double shortened(double square, double change, const double *column, int64_t length) {
    double now = square + change;
    return now > 0.1 * square ? now : dot(column, column, length);
}

/// One-sided Jacobi (Hestenes 1958; de Rijk 1989): turns the `count` columns (of `length` in lanes) until they are orthogonal,
/// the longest first, and those of `basis` (`basis_length` in lanes) with them. A column's length is then a singular value, and
/// the column of the basis, if there is one and it was the identity, the direction of it.
inline void orthogonalise(double *columns, int64_t length, double *basis, int64_t basis_length, int64_t count) {
    const double negligible = 4.4e-16 * __builtin_sqrt((double)length);
    Numbers squares(count);
    Looks looks;
    for (int sweep = 0; sweep < 40; sweep++) {
        bool turned = false;
        for (int64_t p = 0; p < count; p++) squares[p] = dot(columns + p * length, columns + p * length, length);
        for (int64_t p = 0; p < count - 1; p++) {
            double *one = columns + p * length, *own = basis + p * basis_length;
            int64_t longest = p;
            if (looks.stop((count - p) * (length + basis_length) / 2)) return;
            for (int64_t q = p + 1; q < count; q++)
                if (squares[q] > squares[longest]) longest = q;
            exchange(one, columns + longest * length, length);
            exchange(own, basis + longest * basis_length, basis_length); // of no length where there is none
            double first = squares[longest];
            squares[longest] = squares[p];
            for (int64_t q = p + 1; q < count; q++) {
                double *other = columns + q * length, second = squares[q], product = dot(one, other, length);
                if (!(__builtin_fabs(product) > negligible * __builtin_sqrt(first) * __builtin_sqrt(second))) continue;
                double ratio = (second - first) / (2 * product);
                double tangent = 1 / (__builtin_fabs(ratio) + __builtin_sqrt(__builtin_fma(ratio, ratio, 1)));
                if (ratio < 0) tangent = -tangent;
                if (tangent == 0) continue;
                double cosine = 1 / __builtin_sqrt(__builtin_fma(tangent, tangent, 1));
                turn(one, other, cosine, cosine * tangent, length);
                turn(own, basis + q * basis_length, cosine, cosine * tangent, basis_length);
                first = shortened(first, -tangent * product, one, length);
                squares[q] = shortened(second, tangent * product, other, length);
                turned = true;
            }
            squares[p] = first;
        }
        if (!turned) return;
    }
}

/// Sets `basis` to the columns of the identity and turns `columns`; writes the lengths of these, and returns the largest.
inline double directions(double *columns, int64_t length, double *basis, int64_t count, double *values) {
    int64_t basis_length = in_lanes(count);
    memset(basis, 0, count * basis_length * sizeof(double));
    for (int64_t i = 0; i < count; i++) basis[i * basis_length + i] = 1;
    orthogonalise(columns, length, basis, basis_length, count);
    double largest = 0;
    for (int64_t i = 0; i < count; i++) {
        values[i] = __builtin_sqrt(dot(columns + i * length, columns + i * length, length));
        if (values[i] > largest) largest = values[i];
    }
    return largest;
}

/// An entry of a direction below it, times how many there are, is rounding.
constexpr double NO_SHARE = 4.4e-16;
/// From this ratio of the sizes of columns on, directions that are kept say too little of weights.
constexpr double UNEQUAL = 1e5;

/// Takes from a direction (count) what is rounding of it, which may be more than the rest where columns are of other sizes. Of a
/// Schur complement it is that of `columns`, those that were eliminated included.
inline void clean_direction(double *direction, int64_t count, int64_t columns) {
    for (int64_t j = 0; j < count; j++)
        if (!(__builtin_fabs(direction[j]) > NO_SHARE * (double)columns)) direction[j] = 0;
}

inline void clean_direction(double *direction, int64_t count) { clean_direction(direction, count, count); }

/// Whether columns, of sizes inverse to `scale` (0 of one that is constant), differ so much.
inline bool are_unequal(const double *scale, int64_t count) {
    double least = INFINITY, largest = 0;
    for (int64_t j = 0; j < count; j++) {
        if (scale[j] > largest) largest = scale[j];
        if (scale[j] > 0 && scale[j] < least) least = scale[j];
    }
    return largest > UNEQUAL * least;
}

/// Makes columns (of `width` in lanes) orthogonal and of length 1, and returns how many there are: what is rounding of others goes.
inline int64_t make_orthonormal(double *columns, int64_t width, int64_t count) {
    Numbers basis(count * in_lanes(count)), lengths(count);
    double largest = directions(columns, width, basis, count, lengths);
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!(lengths[i] > 2.220446049250313e-16 * (double)width * largest)) continue;
        for (int64_t j = 0; j < width; j++) columns[kept * width + j] = columns[i * width + j] / lengths[i];
        kept++;
    }
    return kept;
}

/// Takes from `weights` (width) what they have in common with `count` columns of length 1 that are orthogonal.
inline void take_out(double *weights, const double *columns, int64_t width, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        const double *column = columns + i * width;
        add_multiple(weights, -dot(column, weights, width), column, width);
    }
}

/// Solves Mv ≈ right by least squares, given M's `count` columns (overwritten): directions with no more than `tolerance` of the
/// largest singular value say nothing. Of many solutions it takes that with the smallest weights, which are `scale`·v.
/// `solution` and `weights` are in lanes. After it, `solution` is v.
inline void smallest_solution(double *columns, int64_t length, int64_t count, const double *right, double tolerance,
                              const double *scale, double *solution, double *weights) {
    int64_t width = in_lanes(count);
    Numbers basis(count * width), values(count), null(count * width);
    double largest = directions(columns, length, basis, count, values);
    memset(solution, 0, width * sizeof(double));
    int64_t lost = 0;
    for (int64_t i = 0; i < count; i++) {
        double value = values[i];
        if (value > tolerance * largest)
            add_multiple(solution, dot(columns + i * length, right, length) / value / value, basis + i * width, width);
        else {
            clean_direction(basis + i * width, count);
            for (int64_t j = 0; j < count; j++) null[lost * width + j] = scale[j] * basis[i * width + j];
            lost++;
        }
    }
    memset(weights, 0, width * sizeof(double));
    for (int64_t j = 0; j < count; j++) weights[j] = scale[j] * solution[j];
    if (!lost) return;
    take_out(weights, null, width, make_orthonormal(null, width, lost));
    for (int64_t j = 0; j < count; j++)
        if (scale[j] > 0) solution[j] = weights[j] / scale[j];
}

/// Cholesky's factor of a positive semidefinite matrix (count, width) with the largest pivot first, as columns L with A = LL', of
/// which it returns how many there are: what is left then is rounding.
inline int64_t pivoted_factor(const double *matrix, int64_t count, int64_t width, double *columns) {
    Numbers left(width), diagonal(width);
    double largest = 0;
    for (int64_t j = 0; j < count; j++) diagonal[j] = matrix[j * width + j];
    Looks looks;
    for (int64_t rank = 0; rank < count; rank++) {
        int64_t pivot = 0;
        if (looks.stop((rank + 4) * width / 8)) return rank;
        for (int64_t j = 1; j < count; j++)
            if (diagonal[j] > diagonal[pivot]) pivot = j;
        if (!rank) largest = diagonal[pivot];
        if (!(diagonal[pivot] > 2.220446049250313e-16 * (double)count * largest)) return rank;
        memcpy(left, matrix + pivot * width, width * sizeof(double));
        for (int64_t k = 0; k < rank; k++) add_multiple(left, -columns[k * width + pivot], columns + k * width, width);
        double *column = columns + rank * width, root = __builtin_sqrt(diagonal[pivot]);
        for (int64_t j = 0; j < width; j++) column[j] = left[j] / root;
        // What was a pivot has nothing left.
        for (int64_t j = 0; j < count; j++) {
            if (diagonal[j] == 0) column[j] = 0;
            diagonal[j] = diagonal[j] - column[j] * column[j];
        }
        column[pivot] = root;
        diagonal[pivot] = 0;
    }
    return count;
}

/// The eigenvalues of a positive semidefinite matrix (count, width) that are more than rounding, and their vectors as columns, and
/// how many there are.
inline int64_t eigenvectors(const double *matrix, int64_t count, int64_t width, double *columns, double *values) {
    int64_t rank = pivoted_factor(matrix, count, width, columns);
    orthogonalise(columns, width, nullptr, 0, rank);
    for (int64_t i = 0; i < rank; i++) {
        double *column = columns + i * width;
        values[i] = dot(column, column, width);
        double length = __builtin_sqrt(values[i]);
        for (int64_t j = 0; j < width; j++) column[j] /= length;
    }
    return rank;
}

/// Solves Av = right for a positive semidefinite A (count, width): directions with no more than `tolerance` of the largest
/// eigenvalue say nothing, and of many solutions it takes that with the smallest weights w = scale·v. `solution` and `weights`
/// (width) are v and w.
inline void smallest_of_gram(const double *matrix, int64_t count, int64_t width, const double *right, double tolerance,
                             const double *scale, double *solution, double *weights) {
    Numbers columns(count * width), values(count);
    if (are_unequal(scale, count)) {
        memcpy(columns, matrix, count * width * sizeof(double));
        return smallest_solution(columns, width, count, right, tolerance, scale, solution, weights);
    }
    int64_t rank = eigenvectors(matrix, count, width, columns, values), kept = 0;
    double largest = 0;
    for (int64_t i = 0; i < rank; i++)
        if (values[i] > largest) largest = values[i];
    memset(solution, 0, width * sizeof(double));
    memset(weights, 0, width * sizeof(double));
    for (int64_t i = 0; i < rank; i++) {
        if (!(values[i] > tolerance * largest)) continue;
        double share = dot(columns + i * width, right, width) / values[i];
        add_multiple(solution, share, columns + i * width, width);
        memmove(columns + kept * width, columns + i * width, width * sizeof(double));
        values[kept++] = share;
    }
    if (kept == count) {
        for (int64_t j = 0; j < count; j++) weights[j] = scale[j] * solution[j];
        return;
    }
    Looks looks;
    // The least w with uᵢ'(w/scale) as found for each direction: along the columns uᵢ/scale, made orthogonal one by one.
    for (int64_t i = 0; i < kept; i++) {
        double *column = columns + i * width, wanted = values[i];
        if (looks.stop(i * width / 2)) return;
        for (int64_t j = 0; j < count; j++) column[j] = scale[j] > 0 ? column[j] / scale[j] : 0;
        for (int again = 0; again < 2; again++)
            for (int64_t k = 0; k < i; k++) {
                double share = dot(column, columns + k * width, width);
                add_multiple(column, -share, columns + k * width, width);
                wanted -= share * values[k];
            }
        double length = __builtin_sqrt(dot(column, column, width));
        values[i] = length > 0 ? wanted / length : 0;
        for (int64_t j = 0; j < count; j++) column[j] = length > 0 ? column[j] / length : 0;
        add_multiple(weights, values[i], column, width);
    }
    for (int64_t j = 0; j < count; j++)
        if (scale[j] > 0) solution[j] = weights[j] / scale[j];
}

/// Householder's QR of `count` columns (of `length` in lanes, overwritten); the triangle R goes to `triangle` (count, count) by
/// rows, with zeros where there are fewer rows than columns.
inline void triangle_of(double *columns, int64_t length, int64_t count, double *triangle) {
    Numbers mirror(length);
    memset(triangle, 0, count * count * sizeof(double));
    for (int64_t i = 0; i < count && i < length; i++) {
        double *column = columns + i * length;
        int64_t from = i / 8 * 8;
        memcpy(mirror + from, column + from, (length - from) * sizeof(double));
        for (int64_t k = from; k < i; k++) mirror[k] = 0;
        double norm = __builtin_sqrt(dot(mirror + from, mirror + from, length - from));
        if (stop((count - i) * (length - from) / 4)) return;
        if (norm > 0) {
            double diagonal = column[i] > 0 ? -norm : norm;
            mirror[i] -= diagonal;
            double square = dot(mirror + from, mirror + from, length - from);
            for (int64_t j = i + 1; j < count; j++) {
                double *other = columns + j * length;
                double share = 2 * dot(mirror + from, other + from, length - from) / square;
                add_multiple(other + from, -share, mirror + from, length - from);
            }
            column[i] = diagonal;
        }
        for (int64_t j = i; j < count; j++) triangle[i * count + j] = columns[j * length + i];
    }
}

} // namespace grouplearn
