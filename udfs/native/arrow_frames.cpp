// Arrow arrays as bytes: the layout of Arrow's columnar format 1.5, without IPC's flatbuffers.
#include "arrow_frames.hpp"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "duckdb/common/arrow/arrow.hpp"

namespace grouplearn {
namespace {

constexpr uint64_t ABSENT = ~uint64_t(0);
constexpr size_t ALIGNMENT = 64;

size_t Bits(size_t count) {
	return (count + 7) / 8;
}

//! Bytes of a value of a type of fixed width, by Arrow's format string; 0 for all other types.
size_t Width(const char *format) {
	switch (format[0]) {
	case 'c':
	case 'C':
		return 1;
	case 's':
	case 'S':
	case 'e':
		return 2;
	case 'i':
	case 'I':
	case 'f':
		return 4;
	case 'l':
	case 'L':
	case 'g':
		return 8;
	case 'w':
		return std::strtoul(format + 2, nullptr, 10);
	case 'd': {
		auto comma = std::strrchr(format, ',');
		bool three = std::strchr(format, ',') != comma; // d:precision,scale[,bits]
		return three ? std::strtoul(comma + 1, nullptr, 10) / 8 : 16;
	}
	case 't':
		break;
	default:
		return 0;
	}
	switch (format[1]) {
	case 'd':
		return format[2] == 'D' ? 4 : 8;
	case 't':
		return format[2] == 's' || format[2] == 'm' ? 4 : 8;
	case 'i':
		return format[2] == 'M' ? 4 : format[2] == 'D' ? 8 : 16;
	default:
		return 8; // timestamps, durations
	}
}

template <class T>
size_t Last(const ArrowArray &array, size_t count) {
	auto offsets = static_cast<const T *>(array.buffers[1]);
	return offsets && count ? size_t(offsets[count]) : 0;
}

//! Bytes of the buffers after the validity of a type of variable width or of nested values.
size_t VariableBytes(const char *format, const ArrowArray &array, int64_t buffer, size_t count) {
	switch (format[0]) {
	case 'u':
	case 'z':
		return buffer == 1 ? (count + 1) * 4 : Last<int32_t>(array, count);
	case 'U':
	case 'Z':
		return buffer == 1 ? (count + 1) * 8 : Last<int64_t>(array, count);
	case 'v': // views: the views, the buffers they point into, the sizes of these
		if (buffer == 1) {
			return count * 16;
		}
		if (buffer == array.n_buffers - 1) {
			return size_t(array.n_buffers - 3) * 8;
		}
		return size_t(static_cast<const int64_t *>(array.buffers[array.n_buffers - 1])[buffer - 2]);
	case '+':
		switch (format[1]) {
		case 'L':
			return (count + 1) * 8;
		case 'v': // list views: offsets, then sizes
			return count * (format[2] == 'L' ? 8 : 4);
		default:
			return (count + 1) * 4; // lists and maps
		}
	default:
		throw Failure {"Not implemented", std::string("grouplearn: an Arrow type cannot be sent: ") + format};
	}
}

size_t BufferBytes(const char *format, const ArrowArray &array, int64_t buffer) {
	size_t count = size_t(array.length + array.offset);
	if (format[0] == '+' && format[1] == 'u') { // unions have no validity: type ids, then offsets of dense ones
		return buffer == 0 ? count : count * 4;
	}
	if (buffer == 0 || format[0] == 'b') {
		return Bits(count);
	}
	auto width = Width(format);
	return width ? width * count : VariableBytes(format, array, buffer, count);
}

size_t MetadataBytes(const char *metadata) {
	if (!metadata) {
		return 0;
	}
	auto at = metadata;
	auto number = [&at] {
		int32_t value;
		std::memcpy(&value, at, sizeof(value));
		at += sizeof(value);
		return value;
	};
	for (auto pairs = number(); pairs > 0; pairs--) {
		for (int part = 0; part < 2; part++) {
			auto size = number();
			at += size;
		}
	}
	return size_t(at - metadata);
}

struct Buffer {
	const void *data;
	size_t size;
	size_t position;
	//! Of values of fixed width among which there are NULLs: the width, the rows and their validity.
	size_t width;
	size_t rows;
	const uint8_t *validity;
};

//! Zeroes the values of NULLs, which the database leaves as its memory happens to be.
void Blank(char *values, const Buffer &buffer) {
	for (size_t row = 0; row < buffer.rows; row++) {
		if (!(buffer.validity[row / 8] >> (row % 8) & 1)) {
			std::memset(values + row * buffer.width, 0, buffer.width);
		}
	}
}

class Packing {
public:
	Writer header;
	std::vector<Buffer> pieces;
	size_t total = 0;

	void Add(const ArrowSchema &schema, const ArrowArray &array) {
		header.Number<int64_t>(array.length).Number<int64_t>(array.null_count).Number<int64_t>(array.offset);
		header.Number<int64_t>(array.n_buffers).Number<int64_t>(array.n_children);
		header.Number<int64_t>(array.dictionary ? 1 : 0);
		for (int64_t buffer = 0; buffer < array.n_buffers; buffer++) {
			AddBuffer(schema.format, array, buffer);
		}
		for (int64_t child = 0; child < array.n_children; child++) {
			Add(*schema.children[child], *array.children[child]);
		}
		if (array.dictionary) {
			Add(*schema.dictionary, *array.dictionary);
		}
	}

private:
	void AddBuffer(const char *format, const ArrowArray &array, int64_t buffer) {
		auto data = array.buffers[buffer];
		auto size = data ? BufferBytes(format, array, buffer) : 0;
		header.Number<uint64_t>(data ? total : ABSENT).Number<uint64_t>(size);
		if (data) {
			auto width = buffer == 1 ? Width(format) : 0;
			auto validity = width && array.null_count ? static_cast<const uint8_t *>(array.buffers[0]) : nullptr;
			pieces.push_back({data, size, total, width, validity ? size / width : 0, validity});
			total += (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
		}
	}
};

//! What an unpacked tree owns: the root's holder frees everything.
struct Holder {
	std::string bytes;
	std::vector<std::unique_ptr<ArrowArray>> arrays;
	std::vector<std::vector<ArrowArray *>> children;
	std::vector<std::vector<const void *>> buffers;
};

void ReleaseChild(ArrowArray *array) {
	array->release = nullptr;
}

void ReleaseRoot(ArrowArray *array) {
	delete static_cast<Holder *>(array->private_data);
	array->release = nullptr;
}

void UnpackNode(Holder &holder, Reader &header, const char *data, ArrowArray &array) {
	array = {};
	array.length = header.Number<int64_t>();
	array.null_count = header.Number<int64_t>();
	array.offset = header.Number<int64_t>();
	array.n_buffers = header.Number<int64_t>();
	array.n_children = header.Number<int64_t>();
	bool dictionary = header.Number<int64_t>() != 0;
	array.release = ReleaseChild;
	std::vector<const void *> buffers;
	for (int64_t buffer = 0; buffer < array.n_buffers; buffer++) {
		auto position = header.Number<uint64_t>();
		header.Number<uint64_t>();
		buffers.push_back(position == ABSENT ? nullptr : data + position);
	}
	holder.buffers.push_back(std::move(buffers));
	array.buffers = holder.buffers.back().data();
	auto make = [&] {
		holder.arrays.emplace_back(new ArrowArray());
		auto made = holder.arrays.back().get();
		UnpackNode(holder, header, data, *made);
		return made;
	};
	std::vector<ArrowArray *> children;
	for (int64_t child = 0; child < array.n_children; child++) {
		children.push_back(make());
	}
	holder.children.push_back(std::move(children));
	array.children = holder.children.back().data();
	array.dictionary = dictionary ? make() : nullptr;
}

void ReleaseSchema(ArrowSchema *schema) {
	for (int64_t child = 0; child < schema->n_children; child++) {
		ReleaseSchema(schema->children[child]);
		delete schema->children[child];
	}
	delete[] schema->children;
	if (schema->dictionary) {
		ReleaseSchema(schema->dictionary);
		delete schema->dictionary;
	}
	std::free(const_cast<char *>(schema->format));
	std::free(const_cast<char *>(schema->name));
	std::free(const_cast<char *>(schema->metadata));
	schema->release = nullptr;
}

char *Copied(const std::string &text) {
	auto copy = static_cast<char *>(std::malloc(text.size() + 1));
	std::memcpy(copy, text.c_str(), text.size() + 1);
	return copy;
}

} // namespace

void PackSchema(const ArrowSchema &schema, Writer &into) {
	into.Text(schema.format).Text(schema.name ? schema.name : "");
	into.Text(std::string(schema.metadata ? schema.metadata : "", MetadataBytes(schema.metadata)));
	into.Number<int64_t>(schema.flags).Number<int64_t>(schema.n_children).Number<int64_t>(schema.dictionary ? 1 : 0);
	for (int64_t child = 0; child < schema.n_children; child++) {
		PackSchema(*schema.children[child], into);
	}
	if (schema.dictionary) {
		PackSchema(*schema.dictionary, into);
	}
}

std::string PackArray(const ArrowSchema &schema, const ArrowArray &array) {
	Packing packing;
	packing.Add(schema, array);
	auto start = (sizeof(uint64_t) + packing.header.bytes.size() + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	std::string packed(start + packing.total, '\0');
	uint64_t begin = start;
	std::memcpy(&packed[0], &begin, sizeof(begin));
	std::memcpy(&packed[sizeof(begin)], packing.header.bytes.data(), packing.header.bytes.size());
	for (auto &piece : packing.pieces) {
		std::memcpy(&packed[start + piece.position], piece.data, piece.size);
		Blank(&packed[start + piece.position], piece);
	}
	return packed;
}

void UnpackSchema(Reader &from, ArrowSchema &schema) {
	schema = {};
	schema.format = Copied(from.Text());
	schema.name = Copied(from.Text());
	auto metadata = from.Text();
	schema.metadata = metadata.empty() ? nullptr : Copied(metadata);
	schema.flags = from.Number<int64_t>();
	auto children = from.Number<int64_t>();
	bool dictionary = from.Number<int64_t>() != 0;
	schema.release = ReleaseSchema;
	schema.children = new ArrowSchema *[size_t(children)];
	for (; schema.n_children < children; schema.n_children++) {
		schema.children[schema.n_children] = new ArrowSchema();
		UnpackSchema(from, *schema.children[schema.n_children]);
	}
	if (dictionary) {
		schema.dictionary = new ArrowSchema();
		UnpackSchema(from, *schema.dictionary);
	}
}

void UnpackArray(std::string bytes, ArrowArray &array) {
	std::unique_ptr<Holder> holder(new Holder());
	holder->bytes = std::move(bytes);
	Reader header(holder->bytes);
	auto start = header.Number<uint64_t>();
	UnpackNode(*holder, header, holder->bytes.data() + start, array);
	array.private_data = holder.release();
	array.release = ReleaseRoot;
}

} // namespace grouplearn
