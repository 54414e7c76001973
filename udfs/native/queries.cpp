#include "queries.hpp"

#include <csignal>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "channel/arrow_frames.hpp"
#include "duckdb/common/arrow/arrow.hpp"
#include "private_layouts.hpp"

namespace grouplearn {
namespace {

//! UNPREPARED: to prepare a statement binds it, which reads from files, and it is bound again to be run.
constexpr uint32_t EXACT = 1, STREAMED = 2, UNPREPARED = 4;
//! How long an interrupted query may go on unheard.
constexpr auto UNHEARD = std::chrono::milliseconds(50);

//! Lets a connection be interrupted in a block.
struct Interruptible {
	Interruptible(Interrupter &by, duckdb_connection connection) : by(by) {
		by.Runs(connection);
	}
	~Interruptible() {
		by.Runs(nullptr);
	}
	Interrupter &by;
};

//! Throws what an Arrow function of the C API reports.
void Check(duckdb_error_data error) {
	if (!error) {
		return;
	}
	std::string message = duckdb_error_data_message(error);
	duckdb_destroy_error_data(&error);
	throw Failure {"Invalid Input", message};
}

//! An error of the database's, passed on to the process as it is.
struct QueryError {
	std::string message;
};

[[noreturn]] void Refuse(const char *message) {
	throw QueryError {message ? message : "unknown error"};
}

//! Things of the C API that are destroyed at the end of a scope.
struct Statements {
	duckdb_extracted_statements handle = nullptr;
	~Statements() {
		duckdb_destroy_extracted(&handle);
	}
};

struct Prepared {
	duckdb_prepared_statement handle = nullptr;
	~Prepared() {
		duckdb_destroy_prepare(&handle);
	}
};

struct Pending {
	duckdb_pending_result handle = nullptr;
	~Pending() {
		duckdb_destroy_pending(&handle);
	}
};

struct Result {
	duckdb_result handle = {};
	~Result() {
		duckdb_destroy_result(&handle);
	}
};

struct Options {
	duckdb_arrow_options handle = nullptr;
	~Options() {
		duckdb_destroy_arrow_options(&handle);
	}
};

struct Types {
	std::vector<duckdb_logical_type> handles;
	~Types() {
		for (auto &handle : handles) {
			duckdb_destroy_logical_type(&handle);
		}
	}
};

struct Schema {
	ArrowSchema arrow = {};
	~Schema() {
		if (arrow.release) {
			arrow.release(&arrow);
		}
	}
};

struct Array {
	ArrowArray arrow = {};
	~Array() {
		if (arrow.release) {
			arrow.release(&arrow);
		}
	}
};

//! Sleeps while other threads have all tasks of a query, longer each time: the C API has nothing to wait for, and asking it
//! again and again would keep a core from them.
class Pause {
public:
	void Take(duckdb_pending_state state) {
		if (state != DUCKDB_PENDING_NO_TASKS_AVAILABLE) {
			length = SHORTEST;
			return;
		}
		std::this_thread::sleep_for(length);
		length = std::min(2 * length, LONGEST);
	}

private:
	using Microseconds = std::chrono::microseconds;
	static constexpr Microseconds SHORTEST {10}, LONGEST {1000};
	Microseconds length = SHORTEST;
};

} // namespace

std::string PackChunk(duckdb_arrow_options options, duckdb_data_chunk chunk, std::vector<duckdb_logical_type> &types,
                      std::vector<const char *> &names, std::string &schema) {
	Schema described;
	Check(duckdb_to_arrow_schema(options, types.data(), names.data(), types.size(), &described.arrow));
	Writer writer;
	PackSchema(described.arrow, writer);
	schema = std::move(writer.bytes);
	Array array;
	Check(duckdb_data_chunk_to_arrow(options, chunk, &array.arrow));
	return PackArray(described.arrow, array.arrow);
}

std::string PackArguments(const Connection &connection, duckdb_data_chunk arguments, std::vector<const char *> names,
                          std::string &schema) {
	Options options;
	duckdb_connection_get_arrow_options(connection.handle, &options.handle);
	layouts::SetExact(options.handle);
	Types types;
	for (idx_t column = 0; column < names.size(); column++) {
		types.handles.push_back(duckdb_vector_get_column_type(duckdb_data_chunk_get_vector(arguments, column)));
	}
	return PackChunk(options.handle, arguments, types.handles, names, schema);
}

void UnpackChunk(const Connection &connection, Reader &schema, std::string batch, Chunk &chunk, const char *shape) {
	Schema described;
	UnpackSchema(schema, described.arrow);
	if (std::strncmp(described.arrow.format, "+s", 3) || (shape && Shape(described.arrow) != shape)) {
		throw Failure {"IO", "grouplearn: rows of other types than were asked for: " + Shape(described.arrow)};
	}
	duckdb_arrow_converted_schema converted = nullptr;
	Check(duckdb_schema_from_arrow(connection.handle, &described.arrow, &converted));
	Array array;
	chunk.bytes = UnpackArray(std::move(batch), described.arrow, array.arrow);
	if (array.arrow.offset || uint64_t(array.arrow.length) > duckdb_vector_size()) {
		throw Failure {"IO", "grouplearn: more rows than a vector has"};
	}
	auto error = duckdb_data_chunk_from_arrow(connection.handle, &array.arrow, converted, &chunk.handle);
	duckdb_destroy_arrow_converted_schema(&converted);
	Check(error);
}

Interrupter::Interrupter(const duckdb::ClientContext &user) : user(user) {
	sigset_t all, before; // handlers of signals do not run on this thread: they are the program's
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	try {
		thread = std::thread(&Interrupter::Watch, this);
	} catch (const std::system_error &) { // no memory for a thread: it is heard between tasks
	}
	pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Interrupter::~Interrupter() {
	{
		std::lock_guard<std::mutex> guard(lock);
		ended = true;
	}
	changed.notify_all();
	if (thread.joinable()) {
		thread.join();
	}
}

void Interrupter::Runs(duckdb_connection connection) {
	std::lock_guard<std::mutex> guard(lock);
	running = connection;
}

void Interrupter::Watch() {
	std::unique_lock<std::mutex> guard(lock);
	while (!changed.wait_for(guard, UNHEARD, [this] { return ended; })) {
		if (running && IsInterrupted(user)) {
			duckdb_interrupt(running);
		}
	}
}

Server::Server(Channel &channel, duckdb::ClientContext &user, Connection &users, bool in_session)
    : channel(channel), user(user), users(users), in_session(in_session) {
}

Frame Server::Serve(Kind answer) {
	while (true) {
		auto frame = channel.Receive();
		if (frame.kind == Kind::FAILED) {
			Reader reader(frame.body);
			auto type = reader.Text();
			throw Failure {type, reader.Text()};
		}
		if (frame.kind == answer) {
			return frame;
		}
		try {
			Handle(frame);
		} catch (const QueryError &error) {
			channel.Send(Kind::ERROR, error.message);
		}
	}
}

void Server::Handle(const Frame &frame) {
	Reader request(frame.body);
	switch (frame.kind) {
	case Kind::QUERY:
		return Query(request);
	case Kind::APPEND:
		return Append(request);
	case Kind::OPEN:
		return Open(request.Number<uint32_t>());
	case Kind::CLOSE:
		others.erase(request.Number<uint32_t>());
		return;
	default:
		throw Failure {"IO", "grouplearn: a message that is not understood"};
	}
}

void Server::Open(uint32_t number) {
	std::unique_ptr<Other> other(new Other(user));
	if (in_session) {
		other->loan.reset(new Loan(user, other->connection.Context(), Loan::Transaction::OURS));
	}
	others[number] = std::move(other);
}

Connection &Server::At(uint32_t number) {
	auto found = others.find(number);
	if (number && found == others.end()) {
		throw Failure {"IO", "grouplearn: a message is about a connection that is not open"};
	}
	return number ? found->second->connection : users;
}

void Server::Query(Reader &request) {
	auto number = request.Number<uint32_t>();
	auto &connection = At(number);
	auto flags = request.Number<uint32_t>();
	auto sql = request.Text();
	if (!interrupter) {
		interrupter.reset(new Interrupter(user));
	}
	Interruptible interruptible(*interrupter, connection.handle);
	if (flags & UNPREPARED) {
		Result result;
		if (duckdb_query(connection.handle, sql.c_str(), &result.handle)) {
			Refuse(duckdb_result_error(&result.handle));
		}
		SendRows(connection, &result.handle, flags & EXACT);
		channel.Send(Kind::END, "");
		return;
	}
	Statements statements;
	auto count = duckdb_extract_statements(connection.handle, sql.c_str(), &statements.handle);
	auto error = count ? nullptr : duckdb_extract_statements_error(statements.handle);
	if (error) {
		Refuse(error);
	}
	for (idx_t place = 0; place < count; place++) {
		bool last = place + 1 == count;
		Prepared prepared;
		if (duckdb_prepare_extracted_statement(connection.handle, statements.handle, place, &prepared.handle)) {
			Refuse(duckdb_prepare_error(prepared.handle));
		}
		if (number == 0 && duckdb_prepared_statement_type(prepared.handle) == DUCKDB_STATEMENT_TYPE_TRANSACTION) {
			Refuse("TransactionContext Error: the transaction is the statement's, which is not at its end");
		}
		Result result;
		Run(connection, prepared.handle, last && (flags & STREAMED), &result.handle);
		if (last) {
			SendRows(connection, &result.handle, flags & EXACT);
		}
	}
	channel.Send(Kind::END, "");
}

void Server::Run(Connection &connection, duckdb_prepared_statement prepared, bool streamed, duckdb_result *result) {
	Pending pending;
	auto start = streamed ? duckdb_pending_prepared_streaming : duckdb_pending_prepared;
	if (start(prepared, &pending.handle)) {
		Refuse(duckdb_pending_error(pending.handle));
	}
	Pause pause;
	duckdb_pending_state state;
	do {
		state = duckdb_pending_execute_task(pending.handle);
		PassOnInterrupt(connection);
		pause.Take(state);
	} while (!duckdb_pending_execution_is_finished(state));
	if (state == DUCKDB_PENDING_ERROR) { // asked for a result, it would say only that there is none
		Refuse(duckdb_pending_error(pending.handle));
	}
	if (duckdb_execute_pending(pending.handle, result)) {
		Refuse(duckdb_result_error(result));
	}
}

void Server::SendRows(Connection &connection, duckdb_result *result, bool exact) {
	Options options;
	options.handle = duckdb_result_get_arrow_options(result);
	if (exact) {
		layouts::SetExact(options.handle);
	}
	Types types;
	std::vector<const char *> names;
	for (idx_t column = 0; column < duckdb_column_count(result); column++) {
		types.handles.push_back(duckdb_column_logical_type(result, column));
		names.push_back(duckdb_column_name(result, column));
	}
	Schema schema;
	Check(duckdb_to_arrow_schema(options.handle, types.handles.data(), names.data(), names.size(), &schema.arrow));
	Writer described;
	PackSchema(schema.arrow, described);
	channel.Send(Kind::SCHEMA, described.bytes);
	while (true) {
		PassOnInterrupt(connection);
		Chunk chunk;
		chunk.handle = duckdb_fetch_chunk(*result);
		if (!chunk.handle) {
			break;
		}
		if (duckdb_data_chunk_get_size(chunk.handle)) {
			Array array;
			Check(duckdb_data_chunk_to_arrow(options.handle, chunk.handle, &array.arrow));
			channel.Send(Kind::BATCH, PackArray(schema.arrow, array.arrow));
		}
	}
	auto error = duckdb_result_error(result);
	if (error) {
		Refuse(error);
	}
}

void Server::PassOnInterrupt(Connection &connection) {
	if (IsAskedToStop(user)) {
		duckdb_interrupt(connection.handle);
	}
}

void Server::Append(Reader &request) {
	auto &connection = At(request.Number<uint32_t>());
	auto table = request.Text();
	auto described = request.Text();
	Reader schema(described);
	Chunk chunk;
	UnpackChunk(connection, schema, request.Rest(), chunk);
	duckdb_appender appender = nullptr;
	std::string error;
	if (duckdb_appender_create_ext(connection.handle, "temp", "main", table.c_str(), &appender) ||
	    duckdb_append_data_chunk(appender, chunk.handle) || duckdb_appender_close(appender)) {
		auto message = duckdb_appender_error(appender);
		error = message ? message : "rows could not be appended";
	}
	duckdb_appender_destroy(&appender);
	if (!error.empty()) {
		throw QueryError {error};
	}
	channel.Send(Kind::END, "");
}

} // namespace grouplearn
