// Which calls of our functions the parser wrote itself, for a statement of the user's: a view can write the same words, and must
// not train, export or drop anything when it is read.
#pragma once
#include <string>

#include "host.hpp"

namespace grouplearn {

//! A number that only this process can give a text: SipHash with a key drawn when it is first asked for.
uint64_t Seal(const std::string &text);

//! Throws Failure unless ``seal`` is that of ``call`` and the statement that ``user`` runs has the seal in its own text, where the
//! parser put it: what a view, a macro or a function brings into a statement is not in the text that the user's client sent.
void CheckSeal(duckdb::ClientContext &user, uint64_t seal, const std::string &call);

} // namespace grouplearn
