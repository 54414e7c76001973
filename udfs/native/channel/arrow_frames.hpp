// Arrow's C structures as bytes of a frame and back.
#pragma once
#include <memory>
#include <string>

#include "channel/channel.hpp"

struct ArrowSchema;
struct ArrowArray;

namespace grouplearn {

//! format, name, metadata, flags, children, dictionary, depth first.
void PackSchema(const ArrowSchema &schema, Writer &into);
//! Descriptions of all arrays, depth first, then their buffers, each at a multiple of 64 bytes.
std::string PackArray(const ArrowSchema &schema, const ArrowArray &array);

//! A tree that its ``release`` frees. Throws Failure for what is not what it says.
void UnpackSchema(Reader &from, ArrowSchema &schema);
//! A tree whose buffers lie in ``bytes``: they live until ``release`` and as long as what is returned. Throws Failure likewise.
std::shared_ptr<void> UnpackArray(std::string bytes, const ArrowSchema &schema, ArrowArray &array);

//! The types in a schema by Arrow's words: ``+s(u,+l(g))``.
std::string Shape(const ArrowSchema &schema);

} // namespace grouplearn
