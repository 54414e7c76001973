// What the extension takes from the database's own objects because the C API has no word for it: every such read is here.
//
// A build is for one version of DuckDB, and refuses to be loaded into another (extension.cpp): nothing here can change under it. A
// new version is a new build. What headers describe the compiler checks against them; what no header has says which test fails.
#pragma once
#include <cstring>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "duckdb/function/scalar_function.hpp"
#include "duckdb/main/config.hpp"
#include "duckdb/main/database.hpp"
#include "duckdb/parser/parser_extension.hpp"
#include "duckdb/parser/sql_statement.hpp"
#if GROUPLEARN_DUCKDB_1_4
#include "duckdb/planner/binder.hpp"
#include "duckdb/planner/operator_extension.hpp"
#else
#include "duckdb/main/extension_callback_manager.hpp"
#endif
#if GROUPLEARN_DUCKDB_2
#include "duckdb/parser/peg/dialect_extension.hpp"
#endif
#if __has_include("duckdb/main/active_query_context.hpp")
#include "duckdb/main/active_query_context.hpp"
#endif
#include "host.hpp"

namespace grouplearn {
namespace layouts {

// --- in headers -----------------------------------------------------------------------------------------------------------------

//! The context of a connection: a function of ours works for its transaction, search path, settings and variables.
inline duckdb::ClientContext &ContextOf(duckdb_connection connection) {
	return *reinterpret_cast<duckdb::Connection *>(connection)->context.get();
}

//! The context that a function is bound in, of which the C API tells a number only; the handle is closed.
inline duckdb::ClientContext &ContextOf(duckdb_client_context wrapped) {
	auto &context = reinterpret_cast<duckdb::CClientContextWrapper *>(wrapped)->context;
	duckdb_destroy_client_context(&wrapped);
	return context;
}

//! What the database's parser made of a text: a parser of ours returns statements, and the C API can only run them.
inline duckdb::ExtractStatementsWrapper *StatementsOf(duckdb_extracted_statements extracted) {
	return reinterpret_cast<duckdb::ExtractStatementsWrapper *>(extracted);
}

//! Lets types that Arrow has no word for, such as BIT and HUGEINT, arrive as what they are.
inline void SetExact(duckdb_arrow_options options) {
	reinterpret_cast<duckdb::CClientArrowOptionsWrapper *>(options)->properties.arrow_lossless_conversion = true;
}

//! Lets an answer stay within a query, and no longer: the C API has words only for functions whose answer always stays or never does.
inline void KeepWithinQuery(duckdb_scalar_function handle) {
	auto &function = *reinterpret_cast<duckdb::ScalarFunction *>(handle);
#if GROUPLEARN_DUCKDB_1_4
	function.stability = duckdb::FunctionStability::CONSISTENT_WITHIN_QUERY;
	function.errors = duckdb::FunctionErrors::CAN_THROW_RUNTIME_ERROR;
#else
	function.SetStability(duckdb::FunctionStability::CONSISTENT_WITHIN_QUERY);
	function.SetErrorMode(duckdb::FunctionErrors::CAN_THROW_RUNTIME_ERROR);
#endif
}

//! Connects to a database, of which the C API hands out a handle only while the extension is loaded. duckdb_connect reads a pointer to
//! a DuckDB, whose first member is the instance.
inline bool Connect(duckdb::DatabaseInstance &database, duckdb_connection &connection) {
	struct {
		duckdb::DatabaseInstance *instance;
		void *owner;
	} object = {&database, nullptr};
	struct {
		void *database;
		void *owner;
	} wrapper = {&object, nullptr};
	static_assert(sizeof(wrapper) == sizeof(duckdb::DatabaseWrapper), "the layout differs from the database's");
	return duckdb_connect(reinterpret_cast<duckdb_database>(&wrapper), &connection) == DuckDBSuccess;
}

// --- in no header ---------------------------------------------------------------------------------------------------------------

//! The text of the query that ``user`` runs; null where none runs. By it a statement of the user's is told from what a view brings into
//! it. Before 2.0 no header has an ActiveQueryContext; its text was its first member, too. tests/native/test_our_statements.py fails.
inline const std::string *RunningText(const duckdb::ClientContext &user) {
	return reinterpret_cast<const std::string *>(user.active_query.get());
}

#if !GROUPLEARN_DUCKDB_1_4

//! The parsers that the database asks for their opinion of a text before its own: the only way to a statement of ours. They are the first
//! members of an ExtensionCallbackRegistry. tests/native/test_our_statements.py fails.
inline std::vector<duckdb::ParserExtension> &ParsersOf(duckdb::DatabaseInstance &database) {
	struct Registry {
#if GROUPLEARN_DUCKDB_2
		duckdb::vector<duckdb::shared_ptr<duckdb::DialectExtension>> dialect_extensions;
#endif
		duckdb::vector<duckdb::ParserExtension> parser_extensions;
	};
	auto &manager = *database.config.callback_manager.get();
	return reinterpret_cast<Registry *>(manager.callback_registry.get())->parser_extensions;
}

#else

//! The binder of a table function, by which a whole statement is told from what a view reads. It is in what the C API passes to a function
//! that is bound, whose first members are the context and the input. tests/native/test_oldest_shell.py fails.
inline duckdb::Binder *BinderOf(duckdb_bind_info info) {
	struct BindInfo {
		duckdb::ClientContext &context;
		duckdb::TableFunctionBindInput &input;
	};
	return reinterpret_cast<BindInfo *>(info)->input.binder.get();
}

//! What a plan function returns: the members of ParserExtensionPlanResult, with bytes for those whose functions are not in
//! headers. The table function is made by the database, and moved here member by member. tests/native/test_oldest_shell.py fails.
struct PlanResult {
	explicit PlanResult(duckdb_table_function handle) {
		auto &from = *reinterpret_cast<duckdb::TableFunction *>(handle);
		std::memcpy(function, &from, sizeof(from));
		auto &to = *reinterpret_cast<duckdb::TableFunction *>(function);
		new (&to.name) std::string(std::move(from.name));
		new (&to.extra_info) std::string(std::move(from.extra_info));
		new (&to.catalog_name) std::string(std::move(from.catalog_name));
		new (&to.schema_name) std::string(std::move(from.schema_name));
		new (&to.named_parameters) duckdb::named_parameter_type_map_t(std::move(from.named_parameters));
		Leave(from.arguments);
		Leave(from.original_arguments);
		Leave(from.function_info);
		duckdb_destroy_table_function(&handle);
	}
	PlanResult(PlanResult &&) = delete;
	~PlanResult() { // not trivial, as that of what it stands for: so both are returned in the same way
	}

	alignas(duckdb::TableFunction) char function[sizeof(duckdb::TableFunction)];
	std::vector<char> parameters;
	std::unordered_map<std::string, duckdb::StatementProperties::CatalogIdentity> modified_databases;
	bool requires_valid_transaction = true;
	duckdb::StatementReturnType return_type = duckdb::StatementReturnType::QUERY_RESULT;

private:
	//! Empties a vector or a shared pointer whose content is somebody else's now.
	template <class T>
	static void Leave(T &moved) {
		std::memset(static_cast<void *>(&moved), 0, sizeof(T));
	}
};
static_assert(sizeof(PlanResult) == sizeof(duckdb::ParserExtensionPlanResult), "the layout differs from the database's");

//! A BoundStatement without a plan: the statement is not known to us. tests/native/test_oldest_shell.py fails.
struct NotBound {
	NotBound() {
	}
	NotBound(NotBound &&) = delete;
	~NotBound() {
	}
	void *plan = nullptr;
	std::vector<char> types;
	std::vector<std::string> names;
};
static_assert(sizeof(NotBound) == sizeof(duckdb::BoundStatement), "the layout differs from the database's");

//! A function that returns a PlanResult as one that returns what that stands for; and the same of a NotBound.
template <class... Arguments>
duckdb::plan_function_t AsPlan(PlanResult (*function)(Arguments...)) {
	return reinterpret_cast<duckdb::plan_function_t>(function);
}
template <class... Arguments>
duckdb::bind_function_t AsBind(NotBound (*function)(Arguments...)) {
	return reinterpret_cast<duckdb::bind_function_t>(function);
}

#endif

} // namespace layouts
} // namespace grouplearn
