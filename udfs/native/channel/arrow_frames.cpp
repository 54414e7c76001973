// Arrow arrays as bytes: the layout of Arrow's columnar format 1.5, without IPC's flatbuffers.
#include "channel/arrow_frames.hpp"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "channel/arrow_checks.hpp"
#include "channel/arrow_layout.hpp"
#include "duckdb/common/arrow/arrow.hpp"

namespace grouplearn {
namespace {

constexpr uint64_t ABSENT = ~uint64_t(0);
constexpr size_t ALIGNMENT = 64;

void CheckDepth(int depth) {
	if (depth > DEEPEST) {
		throw Failure {"Invalid Input", "grouplearn: a type is nested more than " + std::to_string(DEEPEST) + " levels deep"};
	}
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
	//! Of values of fixed width: the width, 0 of bits; their rows and, if there are NULLs among them, their validity.
	size_t width;
	size_t rows;
	const uint8_t *validity;
};

//! Zeroes what the database leaves as its memory happens to be: the values of NULLs, and bits after the last row.
void Blank(char *values, const Buffer &buffer) {
	if (!buffer.width && buffer.rows % 8) {
		values[buffer.rows / 8] &= char((1 << buffer.rows % 8) - 1);
	}
	if (!buffer.validity) {
		return;
	}
	if (!buffer.width) {
		for (size_t byte = 0; byte < buffer.size; byte++) {
			values[byte] &= char(buffer.validity[byte]);
		}
		return;
	}
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

	void Add(const ArrowSchema &schema, const ArrowArray &array, int depth = 1) {
		CheckDepth(depth);
		header.Number<int64_t>(array.length).Number<int64_t>(array.null_count).Number<int64_t>(array.offset);
		header.Number<int64_t>(array.n_buffers).Number<int64_t>(array.n_children);
		header.Number<int64_t>(array.dictionary ? 1 : 0);
		for (int64_t buffer = 0; buffer < array.n_buffers; buffer++) {
			AddBuffer(schema.format, array, buffer);
		}
		for (int64_t child = 0; child < array.n_children; child++) {
			Add(*schema.children[child], *array.children[child], depth + 1);
		}
		if (array.dictionary) {
			Add(*schema.dictionary, *array.dictionary, depth + 1);
		}
	}

private:
	void AddBuffer(const char *format, const ArrowArray &array, int64_t buffer) {
		auto data = array.buffers[buffer];
		auto size = data ? BufferBytes(format, array, buffer) : 0;
		header.Number<uint64_t>(data ? total : ABSENT).Number<uint64_t>(size);
		if (data) {
			auto rows = size_t(array.length + array.offset);
			bool is_union = format[0] == '+' && format[1] == 'u', is_bits = format[0] == 'b' || (buffer == 0 && !is_union);
			auto width = buffer == 1 ? FixedWidth(format) : 0;
			bool has_nulls = buffer == 1 && array.null_count && (width || is_bits);
			auto validity = has_nulls ? static_cast<const uint8_t *>(array.buffers[0]) : nullptr;
			pieces.push_back({data, size, total, width, width || is_bits ? rows : 0, validity});
			total += (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
		}
	}
};

//! Where the buffers of a BATCH lie.
struct Data {
	const char *begin;
	size_t size;

	const char *Found(uint64_t position, uint64_t bytes) const {
		if (position > size || bytes > size - position || position % alignof(uint64_t)) {
			RefuseFrame("a buffer outside of the message");
		}
		return begin + position;
	}
};

//! What an unpacked tree owns.
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
	delete static_cast<std::shared_ptr<Holder> *>(array->private_data);
	array->release = nullptr;
}

int64_t Count(Reader &header, int64_t least) {
	auto count = header.Number<int64_t>();
	if (count < least || count > INT32_MAX) {
		RefuseFrame("a wrong count");
	}
	return count;
}

void UnpackNode(Holder &holder, Reader &header, const Data &data, const ArrowSchema &schema, ArrowArray &array) {
	array = {};
	array.release = ReleaseChild;
	array.length = Count(header, 0);
	array.null_count = Count(header, -1);
	array.offset = Count(header, 0);
	array.n_buffers = Count(header, 0);
	array.n_children = Count(header, 0);
	bool dictionary = header.Number<int64_t>() != 0;
	if (array.null_count > array.length || array.n_buffers != BufferCount(schema) || array.n_children != schema.n_children ||
	    dictionary != (schema.dictionary != nullptr)) {
		RefuseFrame("an array of another type");
	}
	std::vector<const void *> buffers;
	std::vector<size_t> sizes;
	for (int64_t buffer = 0; buffer < array.n_buffers; buffer++) {
		auto position = header.Number<uint64_t>(), size = header.Number<uint64_t>();
		bool absent = position == ABSENT;
		buffers.push_back(absent ? nullptr : data.Found(position, size));
		sizes.push_back(absent ? 0 : size);
	}
	holder.buffers.push_back(std::move(buffers));
	array.buffers = holder.buffers.back().data();
	auto make = [&](const ArrowSchema &of) {
		holder.arrays.emplace_back(new ArrowArray());
		auto made = holder.arrays.back().get();
		UnpackNode(holder, header, data, of, *made);
		return made;
	};
	std::vector<ArrowArray *> children;
	for (int64_t child = 0; child < array.n_children; child++) {
		children.push_back(make(*schema.children[child]));
	}
	holder.children.push_back(std::move(children));
	array.children = holder.children.back().data();
	array.dictionary = dictionary ? make(*schema.dictionary) : nullptr;
	CheckArray(schema, array, sizes);
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

void UnpackSchema(Reader &from, ArrowSchema &schema, int depth) {
	CheckDepth(depth);
	schema = {};
	schema.release = ReleaseSchema;
	schema.format = Copied(from.Text());
	schema.name = Copied(from.Text());
	auto metadata = from.Text();
	schema.metadata = metadata.empty() ? nullptr : Copied(metadata);
	schema.flags = from.Number<int64_t>();
	auto children = Count(from, 0);
	bool dictionary = from.Number<int64_t>() != 0;
	if (size_t(children) > from.Left()) {
		RefuseFrame("more children than there is room for");
	}
	schema.children = new ArrowSchema *[size_t(children)];
	for (int64_t child = 0; child < children; child++) {
		schema.children[schema.n_children++] = new ArrowSchema();
		UnpackSchema(from, *schema.children[child], depth + 1);
	}
	if (dictionary) {
		schema.dictionary = new ArrowSchema();
		UnpackSchema(from, *schema.dictionary, depth + 1);
	}
	CheckSchema(schema, metadata);
}

void PackSchema(const ArrowSchema &schema, Writer &into, int depth) {
	CheckDepth(depth);
	into.Text(schema.format).Text(schema.name ? schema.name : "");
	into.Text(std::string(schema.metadata ? schema.metadata : "", MetadataBytes(schema.metadata)));
	into.Number<int64_t>(schema.flags).Number<int64_t>(schema.n_children).Number<int64_t>(schema.dictionary ? 1 : 0);
	for (int64_t child = 0; child < schema.n_children; child++) {
		PackSchema(*schema.children[child], into, depth + 1);
	}
	if (schema.dictionary) {
		PackSchema(*schema.dictionary, into, depth + 1);
	}
}

} // namespace

void PackSchema(const ArrowSchema &schema, Writer &into) {
	PackSchema(schema, into, 1);
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

std::string Shape(const ArrowSchema &schema) {
	std::string shape = schema.format;
	for (int64_t child = 0; child < schema.n_children; child++) {
		shape += (child ? "," : "(") + Shape(*schema.children[child]);
	}
	return shape + (schema.n_children ? ")" : "") + (schema.dictionary ? "[" + Shape(*schema.dictionary) + "]" : "");
}

void UnpackSchema(Reader &from, ArrowSchema &schema) {
	try {
		UnpackSchema(from, schema, 1);
	} catch (const Failure &) {
		ReleaseSchema(&schema);
		throw;
	}
}

std::shared_ptr<void> UnpackArray(std::string bytes, const ArrowSchema &schema, ArrowArray &array) {
	auto holder = std::make_shared<Holder>();
	holder->bytes = std::move(bytes);
	Reader header(holder->bytes);
	auto start = header.Number<uint64_t>();
	auto size = holder->bytes.size();
	if (start > size || start % alignof(uint64_t)) {
		RefuseFrame("no place for its buffers");
	}
	UnpackNode(*holder, header, {holder->bytes.data() + start, size - start}, schema, array);
	array.private_data = new std::shared_ptr<Holder>(holder);
	array.release = ReleaseRoot;
	return holder;
}

} // namespace grouplearn
