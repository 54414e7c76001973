// How large the buffers of Arrow arrays are, which Arrow's C structures do not say: Arrow's columnar format 1.5.
#pragma once
#include <cstddef>
#include <cstdint>

struct ArrowArray;

namespace grouplearn {

//! Bytes of a value of a type of fixed width, by Arrow's format string; 0 for all other types.
size_t FixedWidth(const char *format);

//! Bytes of a buffer of an array. Of the last buffer of texts they are what its offsets say.
size_t BufferBytes(const char *format, const ArrowArray &array, int64_t buffer);

} // namespace grouplearn
