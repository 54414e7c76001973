#include "channel/arrow_layout.hpp"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "channel/channel.hpp"
#include "duckdb/common/arrow/arrow.hpp"

namespace grouplearn {
namespace {

size_t Bits(size_t count) {
	return (count + 7) / 8;
}

//! The number after a separator, 0 where there is none or a too great one.
size_t Digits(const char *text, char separator) {
	auto number = *text == separator ? std::strtoul(text + 1, nullptr, 10) : 0;
	return number <= size_t(INT32_MAX) ? number : 0;
}

} // namespace

size_t FixedWidth(const char *format) {
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
		return Digits(format + 1, ':');
	case 'd': {
		auto scale = std::strchr(format, ','); // d:precision,scale[,bits]
		auto bits = scale ? std::strchr(scale + 1, ',') : nullptr;
		auto width = bits ? Digits(bits, ',') / 8 : 16;
		return width == 4 || width == 8 || width == 16 ? width : 0;
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

namespace {

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

} // namespace

size_t BufferBytes(const char *format, const ArrowArray &array, int64_t buffer) {
	size_t count = size_t(array.length + array.offset);
	if (format[0] == '+' && format[1] == 'u') { // unions have no validity: type ids, then offsets of dense ones
		return buffer == 0 ? count : count * 4;
	}
	if (buffer == 0 || format[0] == 'b') {
		return Bits(count);
	}
	auto width = FixedWidth(format);
	return width ? width * count : VariableBytes(format, array, buffer, count);
}

} // namespace grouplearn
