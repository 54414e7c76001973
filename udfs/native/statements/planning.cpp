// DuckDB 1.4 asks extensions for the statements that its own parser refuses, one at a time, and wants a table function for each.
//
// What it can parse does not get here: SHOW MODELS is to it the description of a table, SET grouplearn_workers = 2 a setting of
// its own. For such statements there is FROM grouplearn('SHOW MODELS').
#include <memory>

#include "carrying.hpp"
#include "private_layouts.hpp"
#include "statements/parsing.hpp"
#include "statements/statements.hpp"
#include "statements/tokens.hpp"

namespace grouplearn {
namespace {

struct ParserInfo : duckdb::ParserExtensionInfo {
	//! Lives as long as the database: its functions point to it.
	std::unique_ptr<Instance> instance;
};

struct Ours : duckdb::ParserExtensionParseData {
	explicit Ours(const std::string &text) : text(text) {
	}
	duckdb::unique_ptr<duckdb::ParserExtensionParseData> Copy() const override {
		return duckdb::unique_ptr<duckdb::ParserExtensionParseData>(new Ours(text));
	}
	std::string ToString() const override {
		return text;
	}
	std::string text;
};

//! What a bound table function of ours returns: the chunks of a statement's answer.
struct Rows {
	duckdb_result result = {};
	std::vector<duckdb_data_chunk> chunks;
	~Rows() {
		for (auto &chunk : chunks) {
			duckdb_destroy_data_chunk(&chunk);
		}
		duckdb_destroy_result(&result);
	}
};

//! The instance and, where a statement was parsed, its text; else the text is the function's argument.
struct Given {
	Instance *instance;
	bool has_text;
	std::string text;
};

template <class T>
void Delete(void *object) {
	delete static_cast<T *>(object);
}

//! What runs in our connection must not change the variables that the user's has lent it.
void RefuseSet(const std::string &text, const Piece &piece) {
	Lexer lexer(text);
	lexer.at = piece.start;
	Token token;
	if (!piece.ours && lexer.Next(token) && IsWord(token, {"SET"})) {
		throw Failure {"Not implemented", "with DuckDB 1.4 no statement of grouplearn's can stand inside SET\n\nHint: CREATE TABLE "
		                                  "... AS keeps its rows, or use DuckDB 1.5."};
	}
}

Request Only(const std::string &text) {
	for (auto &piece : Split(text)) {
		if (piece.HasOurs()) {
			RefuseSet(text, piece);
			return {0, piece.start, piece.stop, text, "", ""};
		}
	}
	throw Failure {"Binder", "grouplearn() takes a statement of grouplearn's, such as SHOW MODELS"};
}

std::string Argument(duckdb_bind_info info) {
	auto value = duckdb_bind_get_parameter(info, 0);
	auto text = duckdb_get_varchar(value);
	std::string argument = text ? text : "";
	duckdb_free(text);
	duckdb_destroy_value(&value);
	return argument;
}

//! Whether the user's client sent ``FROM grouplearn('...')`` itself: what a view, a macro or query() reads is bound below the
//! root, and a relation or what json_execute_serialized_sql() runs is no statement that was parsed.
bool IsWholeStatement(duckdb_bind_info info) {
	auto binder = layouts::BinderOf(info);
	if (!binder || binder != &binder->root_binder) {
		return false;
	}
	auto statement = binder->root_statement.get();
	return statement && statement->type == duckdb::StatementType::SELECT_STATEMENT && !statement->query.empty();
}

//! What a bound table function is to carry out.
Request Wanted(const Given &given, duckdb_bind_info info) {
	auto request = Only(given.has_text ? given.text : Argument(info));
	request.may_write = given.has_text || IsWholeStatement(info);
	return request;
}

//! The rows of a query that runs in the user's transaction.
std::unique_ptr<Rows> Read(duckdb::ClientContext &user, const std::string &sql) {
	Connection ours(*user.db.get());
	Loan loan(user, ours.Context());
	std::unique_ptr<Rows> rows(new Rows());
	if (duckdb_query(ours.handle, sql.c_str(), &rows->result)) {
		throw Failure {"Invalid Input", duckdb_result_error(&rows->result)};
	}
	while (auto chunk = duckdb_fetch_chunk(rows->result)) {
		rows->chunks.push_back(chunk);
	}
	return rows;
}

void BindRows(duckdb_bind_info info) {
	auto &given = *static_cast<Given *>(duckdb_bind_get_extra_info(info));
	duckdb_client_context wrapped = nullptr;
	duckdb_table_function_get_client_context(info, &wrapped);
	auto &user = layouts::ContextOf(wrapped);
	try {
		auto rows = Read(user, Carry(user, *given.instance, Wanted(given, info))[0]);
		for (idx_t column = 0; column < duckdb_column_count(&rows->result); column++) {
			auto type = duckdb_column_logical_type(&rows->result, column);
			duckdb_bind_add_result_column(info, duckdb_column_name(&rows->result, column), type);
			duckdb_destroy_logical_type(&type);
		}
		duckdb_bind_set_bind_data(info, rows.release(), Delete<Rows>);
	} catch (const Failure &failure) {
		Raise(failure);
	}
}

void StartRows(duckdb_init_info info) {
	duckdb_init_set_init_data(info, new size_t(0), Delete<size_t>);
}

void NextRows(duckdb_function_info info, duckdb_data_chunk output) {
	auto &rows = *static_cast<Rows *>(duckdb_function_get_bind_data(info));
	auto &next = *static_cast<size_t *>(duckdb_function_get_init_data(info));
	if (next == rows.chunks.size()) {
		duckdb_data_chunk_set_size(output, 0);
		return;
	}
	auto chunk = rows.chunks[next++];
	for (idx_t column = 0; column < duckdb_data_chunk_get_column_count(chunk); column++) {
		duckdb_vector_reference_vector(duckdb_data_chunk_get_vector(output, column), duckdb_data_chunk_get_vector(chunk, column));
	}
	duckdb_data_chunk_set_size(output, duckdb_data_chunk_get_size(chunk));
}

duckdb_table_function Function(Given *given) {
	auto function = duckdb_create_table_function();
	duckdb_table_function_set_name(function, "grouplearn");
	duckdb_table_function_set_extra_info(function, given, Delete<Given>);
	duckdb_table_function_set_bind(function, BindRows);
	duckdb_table_function_set_init(function, StartRows);
	duckdb_table_function_set_function(function, NextRows);
	return function;
}

duckdb::ParserExtensionParseResult ParseOurs(duckdb::ParserExtensionInfo *, const std::string &text) {
	if (MayHaveOurs(text)) {
		for (auto &piece : Split(text)) {
			if (piece.HasOurs()) {
				return duckdb::ParserExtensionParseResult(
				    duckdb::unique_ptr<duckdb::ParserExtensionParseData>(new Ours(text)));
			}
		}
	}
	return duckdb::ParserExtensionParseResult();
}

//! Planning a statement carries it out: what is planned is a scan of the rows of its answer.
layouts::PlanResult PlanOurs(duckdb::ParserExtensionInfo *info, duckdb::ClientContext &,
                    duckdb::unique_ptr<duckdb::ParserExtensionParseData> parsed) {
	auto &known = *static_cast<ParserInfo *>(info);
	return layouts::PlanResult(Function(new Given {known.instance.get(), true, static_cast<Ours *>(parsed.get())->text}));
}

//! Called for statements that could not be bound: says what to write for those of ours that the parser took for others.
layouts::NotBound BindOurs(duckdb::ClientContext &, duckdb::Binder &, duckdb::OperatorExtensionInfo *,
                            duckdb::SQLStatement &statement) {
	if (statement.type == duckdb::StatementType::EXTENSION_STATEMENT) {
		return layouts::NotBound(); // the error is of what it did
	}
	auto text = statement.query.substr(statement.stmt_location, statement.stmt_length);
	for (auto &piece : Split(text)) {
		auto places = piece.places;
		if (piece.ours) {
			places.push_back({piece.start, piece.stop});
		}
		for (auto &place : places) {
			auto ours = text.substr(place.start, place.stop - place.start);
			Raise(Failure {"Binder", "DuckDB 1.4 takes " + ours + " for a statement of its own\n\nHint: Write FROM grouplearn('" +
			                             ours + "'), or use DuckDB 1.5."});
		}
	}
	return layouts::NotBound();
}

struct Hints : duckdb::OperatorExtension {
	Hints() {
		Bind = layouts::AsBind(BindOurs);
	}
	std::string GetName() override {
		return "grouplearn";
	}
	duckdb::unique_ptr<duckdb::LogicalExtensionOperator> Deserialize(duckdb::Deserializer &) override {
		Raise(Failure {"Not implemented", "grouplearn: no plan has an operator of its own"});
	}
};

} // namespace

bool RegisterRows(duckdb_connection connection, Instance &instance) {
	auto function = Function(new Given {&instance, false, ""});
	auto text = duckdb_create_logical_type(DUCKDB_TYPE_VARCHAR);
	duckdb_table_function_add_parameter(function, text);
	duckdb_destroy_logical_type(&text);
	bool registered = duckdb_register_table_function(connection, function) == DuckDBSuccess;
	duckdb_destroy_table_function(&function);
	return registered;
}

void InstallParser(std::unique_ptr<Instance> instance, bool) {
	auto &config = instance->database->config;
	auto info = std::make_shared<ParserInfo>();
	info->instance = std::move(instance);
	duckdb::ParserExtension extension;
	extension.parse_function = ParseOurs;
	extension.plan_function = layouts::AsPlan(PlanOurs);
	extension.parser_info = duckdb::shared_ptr<duckdb::ParserExtensionInfo>(std::shared_ptr<duckdb::ParserExtensionInfo>(info));
	static_cast<std::vector<duckdb::ParserExtension> &>(config.parser_extensions).push_back(extension);
	using Extensions = std::vector<duckdb::unique_ptr<duckdb::OperatorExtension>>;
	static_cast<Extensions &>(config.operator_extensions).emplace_back(new Hints());
}

} // namespace grouplearn
