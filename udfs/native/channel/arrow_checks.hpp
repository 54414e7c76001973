// What the database may be given: Arrow arrays whose every offset, index and length stays within what is there.
#pragma once
#include <cstddef>
#include <vector>

#include "channel/channel.hpp"

struct ArrowSchema;
struct ArrowArray;

namespace grouplearn {

//! No type is nested deeper: neither this side nor the other, whose reader of Arrow has the same limit, runs out of stack.
constexpr int DEEPEST = 64;

[[noreturn]] void RefuseFrame(const char *why);

//! Checks what ``format`` and ``metadata`` of a schema say by themselves and about its children. Throws Failure.
void CheckSchema(const ArrowSchema &schema, const std::string &metadata);

//! How many buffers arrays of a type have; throws Failure for types that are not taken.
int64_t BufferCount(const ArrowSchema &schema);

//! Checks an array, whose children and dictionary have been checked, against its type and the sizes of its buffers, where 0 is that
//! of one that is absent. Throws Failure.
void CheckArray(const ArrowSchema &schema, const ArrowArray &array, const std::vector<size_t> &sizes);

} // namespace grouplearn
