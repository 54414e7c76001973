// Numbers for texts in the order in which they are met. The table is the caller's, who makes it larger.
#include "rows/rows.hpp"

namespace grouplearn {
namespace {

inline uint64_t mixed(uint64_t a, uint64_t b) {
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/// What tells texts apart: up to 8 bytes are there as they are, of longer ones their hash.
struct Text {
    const uint8_t *begin;
    int64_t length;
    uint64_t sign;

    Text(const uint8_t *begin, int64_t length) : begin(begin), length(length), sign(0) {
        const uint8_t *text = begin;
        int64_t left = length;
        uint64_t part;
        for (; left > 8; text += 8, left -= 8) {
            memcpy(&part, text, 8);
            sign = mixed(sign ^ part ^ 0x9E3779B97F4A7C15u, 0xBF58476D1CE4E5B9u);
        }
        part = 0;
        if (left == 8)
            memcpy(&part, text, 8);
        else
            for (int64_t i = 0; i < left; i++) part |= (uint64_t)text[i] << 8 * i;
        sign = length > 8 ? mixed(sign ^ part, 0x94D049BB133111EBu) : part;
    }
    bool is_short() const { return length <= 8; }
    /// Half of a slot: the length of a short text, which tells it from one with a 0 at the end.
    uint32_t kind() const { return is_short() ? (uint32_t)length : 9; }
};

/// A place of a table of 2^n of them. Numbers are counted from 1; 0 is an empty place.
struct Slot {
    uint64_t sign;
    uint32_t kind, number;
};

struct Known {
    Slot *slots;
    uint64_t last; // of the slots
    int64_t *ends;
    uint8_t *texts;
    int64_t count;

    uint64_t first_place(const Text &text) const { return mixed(text.sign + text.kind(), 0xD6E8FEB86659FD93u) & last; }

    /// The slot of the text, or the empty one where it belongs.
    Slot *find(const Text &text) const {
        for (uint64_t place = first_place(text);; place = (place + 1) & last) {
            Slot &slot = slots[place];
            if (!slot.number) return &slot;
            if (slot.sign != text.sign || slot.kind != text.kind()) continue;
            int64_t begin = ends[slot.number - 1], length = ends[slot.number] - begin;
            if (text.is_short() || (length == text.length && !memcmp(texts + begin, text.begin, length))) return &slot;
        }
    }
};

/// Rows whose slots are asked for before the first of them is read.
constexpr int64_t AHEAD = 32;

template <class Offset>
int64_t numbered(const Offset *offsets, int64_t width, const uint8_t *content, const uint8_t *valid, int64_t first,
                 int64_t n_rows, Known &known, int64_t room, int32_t *numbers) {
    auto text_at = [=](int64_t row) {
        int64_t place = first + row, begin = offsets ? (int64_t)offsets[place] : place * width;
        return Text(content + begin, offsets ? (int64_t)offsets[place + 1] - begin : width);
    };
    alignas(Text) uint8_t held[AHEAD * sizeof(Text)];
    Text *texts = (Text *)held;
    Looks looks;
    for (int64_t low = 0; low < n_rows; low += AHEAD) {
        if (looks.stop(16 * AHEAD)) return low;
        int64_t count = low + AHEAD < n_rows ? AHEAD : n_rows - low;
        for (int64_t i = 0; i < count; i++) {
            if (valid && !bit(valid, first + low + i)) {
                texts[i].length = -1;
                continue;
            }
            texts[i] = text_at(low + i);
            __builtin_prefetch(known.slots + known.first_place(texts[i]));
        }
        for (int64_t i = 0; i < count; i++) {
            const Text &text = texts[i];
            if (text.length < 0) {
                numbers[low + i] = -1;
                continue;
            }
            Slot *slot = known.find(text);
            if (!slot->number) {
                int64_t begin = known.ends[known.count];
                if (2 * (uint64_t)known.count > known.last || begin + text.length > room) return low + i;
                if (text.length) memcpy(known.texts + begin, text.begin, text.length);
                known.ends[known.count + 1] = begin + text.length;
                *slot = {text.sign, text.kind(), (uint32_t)++known.count};
            }
            numbers[low + i] = (int32_t)(slot->number - 1);
        }
    }
    return n_rows;
}

} // namespace
} // namespace grouplearn

using namespace grouplearn;

/// Numbers the texts of rows [first, first + n_rows) of an Arrow column, -1 where they are NULL: of 4 or 8 bytes an offset,
/// or without any of ``width`` bytes each. Text k lies in ``texts`` from ends[k] to ends[k + 1]; a table of n_slots takes
/// half as many. Returns how many rows are numbered: it stops at a new text for which there is no room.
GROUPLEARN_ENTRY int64_t number_texts(const void *offsets, int64_t width, const uint8_t *content, const uint8_t *valid,
                                      int64_t first, int64_t n_rows, void *slots, int64_t n_slots, int64_t *ends,
                                      uint8_t *texts, int64_t room, int64_t *n_known, int32_t *numbers) {
    Known known{(Slot *)slots, (uint64_t)n_slots - 1, ends, texts, *n_known};
    int64_t done = offsets && width == 4
                       ? numbered((const int32_t *)offsets, 0, content, valid, first, n_rows, known, room, numbers)
                       : numbered((const int64_t *)offsets, width, content, valid, first, n_rows, known, room, numbers);
    *n_known = known.count;
    return done;
}

/// Fills a larger table, whose slots are 0, with texts that differ.
GROUPLEARN_ENTRY void fill_slots(int64_t *ends, uint8_t *texts, int64_t n_known, void *slots, int64_t n_slots) {
    Known known{(Slot *)slots, (uint64_t)n_slots - 1, ends, texts, n_known};
    Looks looks;
    for (int64_t number = 0; number < n_known && !looks.stop(32); number++) {
        Text text(texts + ends[number], ends[number + 1] - ends[number]);
        *known.find(text) = {text.sign, text.kind(), (uint32_t)number + 1};
    }
}
