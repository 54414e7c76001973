// Carrying one of our statements out: its text goes to the grouplearn process, whose SQL runs in the user's transaction.
#pragma once
#include "host.hpp"

namespace grouplearn {

//! A statement of ours where it was written.
struct Request {
	//! Lines of the user's text before ``text``.
	uint64_t lines;
	//! The statement is ``text[start:stop]``; the rest is of the same lines, for messages that point into them.
	uint64_t start;
	uint64_t stop;
	std::string text;
	//! One row with the values of its parameters as a SCHEMA and a BATCH body; empty where it has none.
	std::string schema;
	std::string values;
	//! Whether it may do more than read: not where a view, say, has called it.
	bool may_write = true;
};

//! The functions that the parser writes calls of.
constexpr const char *STATEMENT = "grouplearn_statement";
constexpr const char *STATEMENT_WITH = "grouplearn_statement_with";

//! What the seal of a call is of.
std::string SealedText(const char *function, uint64_t number, const Request &written);

//! Carries a statement out and returns the query whose rows are its answer. For a statement of DuckDB's with ours inside that is
//! itself with queries in their places, and after it come these queries. Throws Failure.
std::vector<std::string> Carry(duckdb::ClientContext &user, const Instance &instance, const Request &request);

//! Keeps the context that binds a scalar function of ours as the function's bind data.
void SetBindContext(duckdb_bind_info info);

//! The context that SetBindContext kept.
duckdb::ClientContext &BoundContext(duckdb_function_info info);

} // namespace grouplearn
