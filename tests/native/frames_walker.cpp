// Unpacks mutated rows and reads all of those that are taken, each value through its offsets: a build with sanitizers ends where
// anything lies outside of the message. SEED ROUNDS; on stdin the rows: the size of a SCHEMA body and it, that of a BATCH and it.
// With "blank" instead: whether what is packed has nothing of the memory that stands in the place of a NULL and after the last row.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "channel/arrow_layout.cpp"
#include "channel/arrow_checks.cpp"
#include "channel/arrow_frames.cpp"

using namespace grouplearn;

namespace {

struct Rows {
	std::string schema;
	std::string batch;
};

std::vector<Rows> Read() {
	std::string all((std::istreambuf_iterator<char>(std::cin)), std::istreambuf_iterator<char>());
	Reader reader(all);
	std::vector<Rows> read;
	while (reader.Left()) {
		auto schema = reader.Text();
		read.push_back({schema, reader.Text()});
	}
	return read;
}

std::mt19937_64 random_numbers;

size_t Below(size_t end) {
	return end ? random_numbers() % end : 0;
}

//! Changes bytes or whole numbers, cuts the end off, or copies one part over another.
void Mutate(std::string &bytes) {
	static const uint64_t odd[] = {0,        1,           2,          3,           64,          65,         uint64_t(-1),      uint64_t(-2),
	                               1u << 31, 0x7fffffff,  0xffffffff, 1ull << 32, 1ull << 62, 1ull << 63, (1ull << 63) - 1, 2048, 1u << 20};
	for (auto changes = 1 + Below(3); changes--;) {
		auto at = Below(bytes.size());
		switch (Below(5)) {
		case 0:
			bytes[at] = char(random_numbers());
			break;
		case 1:
			bytes[at] ^= char(1 << Below(8));
			break;
		case 2: {
			auto number = odd[Below(sizeof(odd) / sizeof(*odd))];
			auto size = Below(2) ? 4 : 8;
			at -= at % 4;
			if (at + size <= bytes.size()) {
				std::memcpy(&bytes[at], &number, size);
			}
			break;
		}
		case 3:
			bytes.resize(Below(8) ? bytes.size() : at);
			break;
		default: {
			auto from = Below(bytes.size()), size = std::min({Below(40), bytes.size() - from, bytes.size() - at});
			std::memmove(&bytes[at], &bytes[from], size);
		}
		}
		if (bytes.empty()) {
			return;
		}
	}
}

uint64_t seen = 0;

void See(const void *from, size_t size) {
	for (size_t byte = 0; byte < size; byte++) {
		seen += static_cast<const unsigned char *>(from)[byte];
	}
}

template <class T>
T Load(const void *values, size_t place) {
	T value;
	std::memcpy(&value, static_cast<const char *>(values) + place * sizeof(T), sizeof(T));
	return value;
}

bool Valid(const ArrowArray &array, size_t row) {
	auto bits = array.n_buffers ? static_cast<const uint8_t *>(array.buffers[0]) : nullptr;
	return !array.null_count || !bits || (bits[row / 8] >> (row % 8) & 1);
}

void Walk(const ArrowSchema &schema, const ArrowArray &array, size_t from, size_t to);

template <class T>
void WalkRange(const ArrowSchema &schema, const ArrowArray &array, size_t row) {
	auto from = size_t(Load<T>(array.buffers[1], row)), to = size_t(Load<T>(array.buffers[1], row + 1));
	if (array.n_children) {
		Walk(*schema.children[0], *array.children[0], from, to);
	} else {
		See(static_cast<const char *>(array.buffers[2]) + from, to - from);
	}
}

int64_t Index(const char *format, const void *values, size_t row) {
	switch (FixedWidth(format)) {
	case 1:
		return Load<uint8_t>(values, row);
	case 2:
		return Load<uint16_t>(values, row);
	case 4:
		return Load<uint32_t>(values, row);
	}
	return Load<int64_t>(values, row);
}

void WalkRow(const ArrowSchema &schema, const ArrowArray &array, size_t row) {
	std::string format = schema.format;
	if (format.compare(0, 4, "+us:") == 0) {
		auto member = Load<int8_t>(array.buffers[0], row);
		return Walk(*schema.children[member], *array.children[member], row, row + 1);
	}
	if (!Valid(array, row)) {
		return;
	}
	if (array.dictionary) {
		auto index = size_t(Index(schema.format, array.buffers[1], row));
		return Walk(*schema.dictionary, *array.dictionary, index, index + 1);
	}
	if (format == "+s") {
		for (int64_t child = 0; child < array.n_children; child++) {
			Walk(*schema.children[child], *array.children[child], row, row + 1);
		}
	} else if (format.compare(0, 3, "+w:") == 0) {
		auto width = size_t(std::stoul(format.substr(3)));
		Walk(*schema.children[0], *array.children[0], row * width, (row + 1) * width);
	} else if (format == "u" || format == "z" || format == "+l" || format == "+m") {
		WalkRange<int32_t>(schema, array, row);
	} else if (format == "U" || format == "Z" || format == "+L") {
		WalkRange<int64_t>(schema, array, row);
	} else if (format == "b") {
		See(static_cast<const char *>(array.buffers[1]) + row / 8, 1);
	} else if (array.n_buffers) {
		See(static_cast<const char *>(array.buffers[1]) + row * FixedWidth(schema.format), FixedWidth(schema.format));
	}
}

//! Rows are counted from an array's offset; in those below it they are counted from its beginning and their own offsets.
void Walk(const ArrowSchema &schema, const ArrowArray &array, size_t from, size_t to) {
	for (auto row = from; row < to; row++) {
		WalkRow(schema, array, row + size_t(array.offset));
	}
}

//! Whether the rows are taken.
bool Take(const Rows &rows) {
	ArrowSchema schema = {};
	ArrowArray array = {};
	bool taken = true;
	try {
		Reader reader(rows.schema);
		UnpackSchema(reader, schema);
		UnpackArray(rows.batch, schema, array);
		Walk(schema, array, 0, size_t(array.length));
		See(PackArray(schema, array).data(), 8);
	} catch (const Failure &) {
		taken = false;
	}
	if (schema.release) {
		schema.release(&schema);
	}
	if (array.release) {
		array.release(&array);
	}
	return taken;
}

//! Whether three values of which the second is NULL are packed with a byte of what was in its place, or a bit of what came after.
bool Leaks(const char *format, const void *values) {
	const uint8_t validity = 0xfd;
	const void *buffers[] = {&validity, values};
	ArrowSchema schema = {}, *columns[] = {&schema}, row = {};
	ArrowArray array = {}, *arrays[] = {&array}, rows = {};
	const void *none[] = {nullptr};
	schema.format = format;
	row.format = "+s";
	row.n_children = rows.n_children = 1;
	row.children = columns;
	array.length = rows.length = 3;
	array.null_count = 1;
	array.n_buffers = 2;
	array.buffers = buffers;
	rows.n_buffers = 1;
	rows.buffers = none;
	rows.children = arrays;
	auto packed = PackArray(row, rows);
	auto start = packed.substr(Load<uint64_t>(packed.data(), 0));
	bool bits = uint8_t(start[0]) != 5 || (*format == 'b' && start[64] & ~5);
	return bits || packed.find('\xaa') != std::string::npos;
}

bool LeaksAnything() {
	const uint32_t numbers[] = {1, 0xaaaaaaaa, 3};
	const char ids[] = "1234567812345678\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa" "8765432187654321";
	const uint8_t flags = 0xaf;
	return Leaks("i", numbers) || Leaks("w:16", ids) || Leaks("b", &flags);
}

} // namespace

int main(int, char **arguments) {
	if (std::strcmp(arguments[1], "blank") == 0) {
		return LeaksAnything();
	}
	random_numbers.seed(std::strtoull(arguments[1], nullptr, 10));
	auto given = Read();
	size_t untouched = 0, taken = 0, refused = 0;
	for (auto &rows : given) {
		untouched += Take(rows);
	}
	for (auto round = std::strtoull(arguments[2], nullptr, 10); round--;) {
		auto rows = given[Below(given.size())];
		Mutate(Below(3) ? rows.batch : rows.schema);
		(Take(rows) ? taken : refused)++;
	}
	std::printf("%zu %zu %zu\n", untouched, taken, refused);
	return seen == 1; // so that nothing of it is left out
}
