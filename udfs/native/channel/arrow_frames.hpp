// Arrow's C structures as bytes of a frame and back.
#pragma once
#include <string>

#include "channel/channel.hpp"

struct ArrowSchema;
struct ArrowArray;

namespace grouplearn {

//! format, name, metadata, flags, children, dictionary, depth first.
void PackSchema(const ArrowSchema &schema, Writer &into);
//! Descriptions of all arrays, depth first, then their buffers, each at a multiple of 64 bytes.
std::string PackArray(const ArrowSchema &schema, const ArrowArray &array);

//! Trees whose buffers lie in ``bytes``, which they own. Their ``release`` frees them. Throw Failure for what is not what it says.
void UnpackSchema(Reader &from, ArrowSchema &schema);
void UnpackArray(std::string bytes, const ArrowSchema &schema, ArrowArray &array);

//! The types in a schema by Arrow's words: ``+s(u,+l(g))``.
std::string Shape(const ArrowSchema &schema);

} // namespace grouplearn
