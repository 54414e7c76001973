// Statements of ours inside a statement of DuckDB's, and after a WITH clause; grouplearn/parser/nested.py says the same.
#pragma once
#include "statements/statements.hpp"
#include "statements/tokens.hpp"

namespace grouplearn {

//! Whether a statement of ours that may stand inside another can begin with these two tokens.
bool MayBegin(const Token &first, const Token &second);

//! Fills ``places``, or says that a statement is ours: ``WITH c AS (...) TRAIN MODEL ... FROM c``.
void FindNested(const std::string &text, Piece &piece);

} // namespace grouplearn
