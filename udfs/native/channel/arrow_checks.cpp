#include "channel/arrow_checks.hpp"

#include <cstdint>
#include <cstring>
#include <string>

#include "channel/arrow_layout.hpp"
#include "duckdb/common/arrow/arrow.hpp"

namespace grouplearn {

void RefuseFrame(const char *why) {
	throw Failure {"IO", std::string("grouplearn: rows that are not what they say: ") + why};
}

namespace {

//! Lengths are added and multiplied by widths, of which none is greater, without an overflow.
constexpr int64_t LONGEST = INT32_MAX;

void Check(bool right, const char *why) {
	if (!right) {
		RefuseFrame(why);
	}
}

template <class T>
T At(const void *values, size_t place) {
	T value;
	std::memcpy(&value, static_cast<const char *>(values) + place * sizeof(T), sizeof(T));
	return value;
}

bool Is(const ArrowSchema &schema, const char *format) {
	return std::strcmp(schema.format, format) == 0;
}

bool IsAnyOf(const ArrowSchema &schema, const char *letters) {
	return std::strlen(schema.format) == 1 && std::strchr(letters, schema.format[0]);
}

bool Begins(const ArrowSchema &schema, const char *format) {
	return std::strncmp(schema.format, format, std::strlen(format)) == 0;
}

bool IsList(const ArrowSchema &schema) {
	return Is(schema, "+l") || Is(schema, "+L") || Is(schema, "+m");
}

bool IsFixedList(const ArrowSchema &schema) {
	return Begins(schema, "+w:");
}

bool IsUnion(const ArrowSchema &schema) {
	return Begins(schema, "+us:");
}

//! The format of a union whose members are numbered from 0, as DuckDB numbers them.
std::string UnionFormat(int64_t members) {
	std::string format = "+us:";
	for (int64_t member = 0; member < members; member++) {
		format += (member ? "," : "") + std::to_string(member);
	}
	return format;
}

//! The number after the prefix of a format.
int64_t Number(const char *digits) {
	int64_t number = 0;
	Check(*digits, "a type without its number");
	for (; *digits; digits++) {
		Check(*digits >= '0' && *digits <= '9' && number <= LONGEST / 10, "a type with a wrong number");
		number = 10 * number + (*digits - '0');
	}
	return number;
}

bool IsValid(const ArrowArray &array, size_t row) {
	auto validity = static_cast<const uint8_t *>(array.buffers[0]);
	return !array.null_count || !validity || (validity[row / 8] >> (row % 8) & 1);
}

size_t RowCount(const ArrowArray &array) {
	return size_t(array.length + array.offset);
}

//! Offsets that grow from 0 or more to no more than ``end``.
template <class T>
void CheckOffsets(const void *offsets, size_t rows, size_t end) {
	T before = 0;
	for (size_t place = 0; place <= rows; place++) {
		T offset = At<T>(offsets, place);
		Check(offset >= before, "offsets that do not grow");
		before = offset;
	}
	Check(uint64_t(before) <= end, "offsets past the end");
}

bool IsContinuation(unsigned char letter) {
	return (letter & 0xc0) == 0x80;
}

//! Bytes of the character that begins with ``first``, 0 if none does.
size_t CharacterBytes(unsigned char first) {
	return first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
}

//! https://www.unicode.org/versions/Unicode15.0.0/ch03.pdf, table 3-7.
bool IsUtf8(const unsigned char *at, size_t size) {
	for (auto end = at + size; at < end;) {
		auto bytes = CharacterBytes(*at);
		if (!bytes || bytes > size_t(end - at)) {
			return false;
		}
		for (size_t place = 1; place < bytes; place++) {
			if (!IsContinuation(at[place])) {
				return false;
			}
		}
		bool overlong = (at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xf0 && at[1] < 0x90);
		bool no_character = (at[0] == 0xed && at[1] > 0x9f) || (at[0] == 0xf4 && at[1] > 0x8f);
		if (overlong || no_character) {
			return false;
		}
		at += bytes;
	}
	return true;
}

template <class T>
void CheckTexts(const ArrowArray &array) {
	auto bytes = static_cast<const unsigned char *>(array.buffers[2]);
	for (size_t row = 0; row < RowCount(array); row++) {
		auto from = size_t(At<T>(array.buffers[1], row)), to = size_t(At<T>(array.buffers[1], row + 1));
		Check(!IsValid(array, row) || IsUtf8(bytes + from, to - from), "a text that is not UTF-8");
	}
}

template <class T>
void CheckVariable(const ArrowArray &array, const std::vector<size_t> &sizes, bool is_text) {
	if (!RowCount(array)) {
		return;
	}
	CheckOffsets<T>(array.buffers[1], RowCount(array), sizes[2]);
	if (is_text) {
		CheckTexts<T>(array);
	}
}

template <class T>
void CheckIndices(const ArrowArray &array) {
	for (size_t row = 0; row < RowCount(array); row++) {
		auto index = At<T>(array.buffers[1], row);
		bool inside = index >= 0 && uint64_t(index) < uint64_t(array.dictionary->length);
		Check(!IsValid(array, row) || inside, "an index that its dictionary does not have");
	}
}

void CheckDictionary(const ArrowSchema &schema, const ArrowArray &array) {
	switch (schema.format[0]) {
	case 'c':
		return CheckIndices<int8_t>(array);
	case 'C':
		return CheckIndices<uint8_t>(array);
	case 's':
		return CheckIndices<int16_t>(array);
	case 'S':
		return CheckIndices<uint16_t>(array);
	case 'i':
		return CheckIndices<int32_t>(array);
	case 'I':
		return CheckIndices<uint32_t>(array);
	case 'l':
		return CheckIndices<int64_t>(array);
	default:
		return CheckIndices<uint64_t>(array);
	}
}

//! The type ids are the places of the members, as the database has them.
void CheckUnion(const ArrowArray &array) {
	for (size_t row = 0; row < RowCount(array); row++) {
		auto id = At<int8_t>(array.buffers[0], row);
		Check(id >= 0 && id < array.n_children, "a member that its union does not have");
	}
}

void CheckChildren(const ArrowSchema &schema, const ArrowArray &array) {
	auto rows = RowCount(array);
	if (IsList(schema)) {
		auto length = size_t(array.children[0]->length);
		if (rows) {
			Is(schema, "+L") ? CheckOffsets<int64_t>(array.buffers[1], rows, length)
			                 : CheckOffsets<int32_t>(array.buffers[1], rows, length);
		}
		return;
	}
	auto needed = IsFixedList(schema) ? rows * size_t(Number(schema.format + 3)) : rows;
	for (int64_t child = 0; child < array.n_children; child++) {
		Check(size_t(array.children[child]->length) >= needed, "a child that is too short");
	}
	if (IsUnion(schema)) {
		CheckUnion(array);
	}
}

} // namespace

int64_t BufferCount(const ArrowSchema &schema) {
	if (Is(schema, "n")) {
		return 0;
	}
	if (Is(schema, "+s") || IsFixedList(schema) || IsUnion(schema)) {
		return 1;
	}
	if (IsAnyOf(schema, "uzUZ")) {
		return 3;
	}
	Check(IsList(schema) || Is(schema, "b") || FixedWidth(schema.format), "a type that is not taken");
	return 2;
}

void CheckSchema(const ArrowSchema &schema, const std::string &metadata) {
	Reader pairs(metadata);
	for (auto left = metadata.empty() ? 0 : 2 * int64_t(pairs.Number<int32_t>()); left > 0; left--) {
		auto size = pairs.Number<int32_t>();
		Check(size >= 0, "metadata with a wrong size");
		pairs.Take(size_t(size));
	}
	Check(*schema.format, "a type without a name");
	BufferCount(schema);
	bool one = IsList(schema) || IsFixedList(schema);
	bool some = Is(schema, "+s") || IsUnion(schema);
	Check(one ? schema.n_children == 1 : some ? schema.n_children > 0 : schema.n_children == 0, "a type with other children");
	Check(!IsUnion(schema) || UnionFormat(schema.n_children) == schema.format, "members that are not numbered from 0");
	if (Is(schema, "+m")) {
		auto &entry = *schema.children[0];
		Check(Is(entry, "+s") && entry.n_children == 2, "a map without keys and values");
	}
	Check(!schema.dictionary || IsAnyOf(schema, "cCsSiIlL"), "a dictionary without indices");
}

void CheckArray(const ArrowSchema &schema, const ArrowArray &array, const std::vector<size_t> &sizes) {
	for (int64_t buffer = 0; buffer < array.n_buffers; buffer++) {
		bool is_validity = buffer == 0 && !IsUnion(schema);
		// What the offsets of texts say of their bytes is checked with the offsets.
		auto needed = RowCount(array) && buffer < 2 ? BufferBytes(schema.format, array, buffer) : 0;
		bool absent = is_validity && !array.buffers[0] && array.null_count <= 0;
		Check(absent || sizes[size_t(buffer)] >= needed, "a buffer that is too short");
	}
	if (array.dictionary) {
		CheckDictionary(schema, array);
	} else if (IsAnyOf(schema, "uz")) {
		CheckVariable<int32_t>(array, sizes, schema.format[0] == 'u');
	} else if (IsAnyOf(schema, "UZ")) {
		CheckVariable<int64_t>(array, sizes, schema.format[0] == 'U');
	} else if (array.n_children) {
		CheckChildren(schema, array);
	}
}

} // namespace grouplearn
