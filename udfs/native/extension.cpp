// The entry point and the functions behind our statements; see DESIGN of the package: no logic of ours is here.

#include <atomic>
#include <list>
#include <mutex>
#include <unordered_map>

#include "carrying.hpp"
#include "statements/parsing.hpp"
#include "predicting.hpp"
#include "private_layouts.hpp"
#include "queries.hpp"
#include "statements/sealing.hpp"

namespace grouplearn {
namespace {

//! Answers kept for the statements that read them: a relation may be read again later.
constexpr size_t ANSWERS = 512;

class Answers {
public:
	void Keep(uint64_t token, std::string sql) {
		std::lock_guard<std::mutex> guard(lock);
		kept[token] = std::move(sql);
		order.push_back(token);
		if (order.size() > ANSWERS) {
			kept.erase(order.front());
			order.pop_front();
		}
	}
	std::string Find(uint64_t token) {
		std::lock_guard<std::mutex> guard(lock);
		auto found = kept.find(token);
		if (found == kept.end()) {
			throw Failure {"Invalid Input", "grouplearn: the statement was not carried out, or too long ago"};
		}
		return found->second;
	}

private:
	std::mutex lock;
	std::unordered_map<uint64_t, std::string> kept;
	std::list<uint64_t> order;
};

Answers &TheAnswers() {
	static auto answers = new Answers();
	return *answers;
}

template <class T>
T Argument(duckdb_data_chunk chunk, idx_t column) {
	return static_cast<T *>(duckdb_vector_get_data(duckdb_data_chunk_get_vector(chunk, column)))[0];
}

//! Our own texts call the functions with one row and no NULL: what a call without a seal may not have.
void RefuseOtherCalls(duckdb_data_chunk arguments) {
	bool ours = duckdb_data_chunk_get_size(arguments) == 1;
	for (idx_t column = 0; column < duckdb_data_chunk_get_column_count(arguments); column++) {
		auto validity = duckdb_vector_get_validity(duckdb_data_chunk_get_vector(arguments, column));
		ours &= !validity || duckdb_validity_row_is_valid(validity, 0);
	}
	if (!ours) {
		throw Failure {"Invalid Input", "grouplearn: this function is for statements of grouplearn's, which call it themselves"};
	}
}

//! The arguments (seal, number, lines, start, stop, text) of a call that the parser wrote for the statement that runs.
Request Sealed(duckdb_function_info info, duckdb_data_chunk arguments, const char *function) {
	RefuseOtherCalls(arguments);
	auto text = Argument<duckdb_string_t>(arguments, 5);
	Request request {Argument<uint64_t>(arguments, 2), Argument<uint64_t>(arguments, 3), Argument<uint64_t>(arguments, 4),
	                 std::string(duckdb_string_t_data(&text), duckdb_string_t_length(text)), "", ""};
	auto call = SealedText(function, Argument<uint64_t>(arguments, 1), request);
	CheckSeal(BoundContext(info), Argument<uint64_t>(arguments, 0), call);
	return request;
}

//! grouplearn_statement(seal, number, lines, start, stop, text): carries one of our statements out, and keeps its answer by its
//! seal; and those of statements inside it, by the numbers after that.
void RunStatement(duckdb_function_info info, duckdb_data_chunk arguments, duckdb_vector result) {
	auto &instance = *static_cast<Instance *>(duckdb_scalar_function_get_extra_info(info));
	try {
		auto request = Sealed(info, arguments, STATEMENT);
		auto seal = Argument<uint64_t>(arguments, 0);
		uint64_t place = seal;
		for (auto &sql : Carry(BoundContext(info), instance, request)) {
			TheAnswers().Keep(place++, std::move(sql));
		}
		static_cast<uint64_t *>(duckdb_vector_get_data(result))[0] = seal;
	} catch (const Failure &failure) {
		Raise(failure);
	}
}

//! grouplearn_statement_with(seal, which, lines, start, stop, text, values): carries one of our statements out and returns the
//! query whose rows are its answer (0), or that of a statement inside it.
void RunStatementWith(duckdb_function_info info, duckdb_data_chunk arguments, duckdb_vector result) {
	auto &user = BoundContext(info);
	auto &instance = *static_cast<Instance *>(duckdb_scalar_function_get_extra_info(info));
	try {
		auto request = Sealed(info, arguments, STATEMENT_WITH);
		Connection ours(*user.db.get());
		request.values =
		    PackArguments(ours, arguments, {"seal", "which", "lines", "start", "stop", "text", "values"}, request.schema);
		auto sql = Carry(user, instance, request).at(Argument<uint64_t>(arguments, 1));
		duckdb_vector_assign_string_element_len(result, 0, sql.data(), sql.size());
	} catch (const Failure &failure) {
		Raise(failure);
	}
}

//! grouplearn_answer(seal): the query whose rows are the answer of a statement that was carried out.
void ReadAnswer(duckdb_function_info, duckdb_data_chunk arguments, duckdb_vector result) {
	try {
		RefuseOtherCalls(arguments);
		auto sql = TheAnswers().Find(Argument<uint64_t>(arguments, 0));
		duckdb_vector_assign_string_element_len(result, 0, sql.data(), sql.size());
	} catch (const Failure &failure) {
		Raise(failure);
	}
}

//! grouplearn_version(): what the process that trains and predicts says that it runs, and the version of this DuckDB.
void ReadVersion(duckdb_function_info info, duckdb_data_chunk arguments, duckdb_vector result) {
	auto &user = BoundContext(info);
	HostSignals signals;
	try {
		Channel channel([&user] { return IsAskedToStop(user); });
		channel.Send(Kind::VERSION, "");
		Connection ours(*user.db.get());
		auto answer = Server(channel, user, ours, true).Serve(Kind::ANSWER);
		auto said = Reader(answer.body).Text() + ", DuckDB " + duckdb_library_version();
		for (idx_t row = 0; row < duckdb_data_chunk_get_size(arguments); row++) {
			duckdb_vector_assign_string_element_len(result, row, said.data(), said.size());
		}
	} catch (const Failure &failure) {
		Raise(failure);
	}
}

duckdb_scalar_function Function(const char *name, duckdb_type returned, duckdb_scalar_function_t function) {
	auto made = duckdb_create_scalar_function();
	duckdb_scalar_function_set_name(made, name);
	auto type = duckdb_create_logical_type(returned);
	duckdb_scalar_function_set_return_type(made, type);
	duckdb_destroy_logical_type(&type);
	duckdb_scalar_function_set_function(made, function);
	return made;
}

void AddParameter(duckdb_scalar_function function, duckdb_type type, int times = 1) {
	auto made = duckdb_create_logical_type(type);
	while (times--) {
		duckdb_scalar_function_add_parameter(function, made);
	}
	duckdb_destroy_logical_type(&made);
}

bool RegisterStatements(duckdb_connection connection, Instance &instance) {
	auto statement = Function(STATEMENT, DUCKDB_TYPE_UBIGINT, RunStatement);
	AddParameter(statement, DUCKDB_TYPE_UBIGINT, 5);
	AddParameter(statement, DUCKDB_TYPE_VARCHAR);
	auto with = Function(STATEMENT_WITH, DUCKDB_TYPE_VARCHAR, RunStatementWith);
	AddParameter(with, DUCKDB_TYPE_UBIGINT, 5);
	AddParameter(with, DUCKDB_TYPE_VARCHAR);
	AddParameter(with, DUCKDB_TYPE_ANY);
	auto version = Function("grouplearn_version", DUCKDB_TYPE_VARCHAR, ReadVersion);
	for (auto function : {statement, with, version}) {
		duckdb_scalar_function_set_volatile(function);
		duckdb_scalar_function_set_bind(function, SetBindContext);
	}
	for (auto function : {statement, with}) {
		duckdb_scalar_function_set_extra_info(function, &instance, nullptr);
	}
	auto answer = Function("grouplearn_answer", DUCKDB_TYPE_VARCHAR, ReadAnswer);
	AddParameter(answer, DUCKDB_TYPE_UBIGINT);
	bool failed = false;
	for (auto function : {statement, with, answer, version}) {
		failed |= duckdb_register_scalar_function(connection, function) == DuckDBError;
		duckdb_destroy_scalar_function(&function);
	}
	return !failed;
}

#if GROUPLEARN_DUCKDB_1_4
bool HookParser(duckdb_connection connection, std::unique_ptr<Instance> &instance, std::string &error) {
	if (!RegisterRows(connection, *instance)) {
		error = "its table function could not be registered";
		return false;
	}
	InstallParser(std::move(instance), false);
	return true;
}
#else
bool Query(duckdb_connection connection, const char *sql, std::string &first_value) {
	duckdb_result result;
	bool done = duckdb_query(connection, sql, &result) == DuckDBSuccess;
	if (done) {
		auto value = duckdb_value_varchar(&result, 0, 0);
		first_value = value ? value : "";
		duckdb_free(value);
	} else {
		first_value = duckdb_result_error(&result);
	}
	duckdb_destroy_result(&result);
	return done;
}

//! Lets our parser be asked, where the user has not said who may be.
bool HookParser(duckdb_connection connection, std::unique_ptr<Instance> &instance, std::string &error) {
	std::string allowed;
	if (!Query(connection, "SELECT system.main.lower(system.main.current_setting('allow_parser_override_extension'))", allowed)) {
		error = allowed;
		return false;
	}
	bool others_in_use = allowed != "default";
	if (!others_in_use && !Query(connection, "SET GLOBAL allow_parser_override_extension = 'fallback'", error)) {
		return false;
	}
	InstallParser(std::move(instance), others_in_use);
	return true;
}
#endif

bool Load(duckdb_database database, std::string &error) {
	static std::atomic<uint64_t> serials {0};
	duckdb_connection connection;
	if (duckdb_connect(database, &connection) != DuckDBSuccess) {
		error = "cannot connect to the database";
		return false;
	}
	NoteHostPython();
	NoteOwnFile();
	std::unique_ptr<Instance> instance(new Instance {layouts::ContextOf(connection).db.get(), ++serials});
	bool loaded = RegisterStatements(connection, *instance) && RegisterPredictions(connection, *instance);
	if (!loaded) {
		error = "the functions of grouplearn could not be registered";
	} else {
		loaded = HookParser(connection, instance, error);
	}
	// Where that failed, functions that point to it may be there all the same.
	instance.release();
	duckdb_disconnect(&connection);
	return loaded;
}

} // namespace
} // namespace grouplearn

DUCKDB_EXTENSION_ENTRYPOINT_CUSTOM(duckdb_extension_info info, struct duckdb_extension_access *access) {
	// First of all: with another version, the layout that the rest relies on is not the database's.
	std::string version = duckdb_library_version();
	if (version != GROUPLEARN_DUCKDB_VERSION) {
		auto message = "this build of grouplearn is for DuckDB " GROUPLEARN_DUCKDB_VERSION ", and this is " + version;
		access->set_error(info, message.c_str());
		return false;
	}
	std::string error;
	if (!grouplearn::Load(*access->get_database(info), error)) {
		access->set_error(info, ("grouplearn: " + error).c_str());
		return false;
	}
	return true;
}
