// SHA-256 (FIPS 180-4) of the numbers of models, one model in each lane: a call per model would take longer than its digest.
#include "lanes/entry.hpp"

namespace grouplearn::digests {
namespace {

// As many as a register holds: wider vectors compilers cut up by way of memory, which takes half as long again.
#if defined(GROUPLEARN_AVX512)
constexpr int LANES = 16;
#elif defined(GROUPLEARN_AVX2)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif
constexpr int BLOCK = 64, WORDS = 16;

/// The first 32 bits of the fractions of the cube roots of the first 64 primes.
constexpr uint32_t ROUNDS[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
    0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
    0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
    0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
/// Those of the square roots of the first 8.
constexpr uint32_t START[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                               0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

/// A word of each lane.
typedef uint32_t Word __attribute__((vector_size(4 * LANES)));

inline Word turned(Word a, int by) { return a >> by | a << (32 - by); }

/// Take in a block of each lane; `more` is all ones in lanes that still have one, whose state alone changes.
void compress(Word (&state)[8], Word (&w)[WORDS], Word more) {
    Word a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5], g = state[6], h = state[7];
    for (int i = 0; i < 64; i++) {
        Word &now = w[i % WORDS];
        if (i >= WORDS) {
            Word early = w[(i + 1) % WORDS], late = w[(i + 14) % WORDS];
            now += (turned(early, 7) ^ turned(early, 18) ^ early >> 3) + w[(i + 9) % WORDS] +
                   (turned(late, 17) ^ turned(late, 19) ^ late >> 10);
        }
        Word first = h + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + ((e & f) ^ (~e & g)) + ROUNDS[i] + now;
        Word second = (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
        h = g, g = f, f = e, e = d + first, d = c, c = b, b = a, a = first + second;
    }
    Word after[8] = {a, b, c, d, e, f, g, h};
    for (int i = 0; i < 8; i++) state[i] += after[i] & more;
}

/// The parts of a row: `first` bytes at `a`, then `second` at `b`.
struct Message {
    const uint8_t *a, *b;
    int64_t first, second;

    int64_t blocks() const { return (first + second + 8) / BLOCK + 1; }

    /// Write a block, which is zero, filled up behind the end as FIPS 180-4, 5.1.1 has it.
    void block(int64_t number, uint8_t *into) const {
        int64_t start = number * BLOCK, total = first + second;
        copy(a, first, -start, into);
        copy(b, second, first - start, into);
        if (total >= start && total < start + BLOCK) into[total - start] = 0x80;
        if (number == blocks() - 1)
            for (int i = 0; i < 8; i++) into[BLOCK - 1 - i] = (uint8_t)((uint64_t)total * 8 >> 8 * i);
    }

  private:
    static void copy(const uint8_t *from, int64_t size, int64_t at, uint8_t *into) {
        int64_t low = at < 0 ? 0 : at, high = at + size < BLOCK ? at + size : BLOCK;
        if (low < high) memcpy(into + low, from + (low - at), (size_t)(high - low));
    }
};

void hexadecimal(const Word (&state)[8], int lane, char *text) {
    for (int i = 0; i < 8; i++)
        for (int digit = 0; digit < 8; digit++) *text++ = "0123456789abcdef"[state[i][lane] >> (28 - 4 * digit) & 15];
}

} // namespace
} // namespace grouplearn::digests

/// Write the SHA-256, as 64 hexadecimal digits, of each of n rows: the bytes of its weights, then those of its intercepts, as
/// doubles of the processor; those of row i lie from place start[i] to start[i + 1].
GROUPLEARN_ENTRY void number_digests(const double *weights, const int64_t *weights_start, const double *intercept,
                                     const int64_t *intercept_start, int64_t n, char *out) {
    using namespace grouplearn::digests;
    grouplearn::Looks looks;
    for (int64_t from = 0; from < n; from += LANES) {
        int lanes = n - from < LANES ? (int)(n - from) : LANES;
        Message message[LANES] = {};
        int64_t blocks = 0;
        for (int lane = 0; lane < lanes; lane++) {
            const int64_t *w = weights_start + from + lane, *b = intercept_start + from + lane;
            message[lane] = {(const uint8_t *)(weights + w[0]), (const uint8_t *)(intercept + b[0]), (w[1] - w[0]) * 8,
                             (b[1] - b[0]) * 8};
            if (message[lane].blocks() > blocks) blocks = message[lane].blocks();
        }
        Word state[8];
        for (int i = 0; i < 8; i++) state[i] = Word{} + START[i];
        for (int64_t number = 0; number < blocks && !looks.stop(1000); number++) {
            alignas(64) uint32_t words[WORDS][LANES] = {}, more[LANES] = {};
            for (int lane = 0; lane < lanes; lane++) {
                if (number >= message[lane].blocks()) continue;
                uint8_t block[BLOCK] = {};
                message[lane].block(number, block);
                more[lane] = ~0u;
                for (int i = 0; i < WORDS; i++) {
                    uint32_t word;
                    memcpy(&word, block + 4 * i, 4);
                    words[i][lane] = __builtin_bswap32(word);
                }
            }
            Word w[WORDS], mask;
            memcpy(w, words, sizeof w);
            memcpy(&mask, more, sizeof mask);
            compress(state, w, mask);
        }
        for (int lane = 0; lane < lanes; lane++) hexadecimal(state, lane, out + 64 * (from + lane));
    }
}
