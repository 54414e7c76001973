// What the grouplearn process may ask of the database: plain SQL, its rows as Arrow; rows of its own in a temporary table.
#pragma once
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "host.hpp"

namespace grouplearn {

//! Interrupts what runs on a connection of ours soon after the user's statement was asked to stop, on a thread of its own: one
//! task of a query may never end, as that of a cross product without rows.
class Interrupter {
public:
	explicit Interrupter(const duckdb::ClientContext &user);
	~Interrupter();
	Interrupter(const Interrupter &) = delete;
	//! What runs from now on; nullptr if nothing does.
	void Runs(duckdb_connection connection);

private:
	void Watch();

	const duckdb::ClientContext &user;
	std::mutex lock;
	std::condition_variable changed;
	duckdb_connection running = nullptr;
	bool ended = false;
	std::thread thread;
};

//! Answers the requests of one channel until it has its answer.
class Server {
public:
	//! ``users`` is the connection that is number 0; the process may open others, which are not the user's: with ``in_session``
	//! they have the session's settings, variables, search path and temporary objects, and transactions of their own.
	Server(Channel &channel, duckdb::ClientContext &user, Connection &users, bool in_session = false);

	//! Returns the first frame of the kind ``answer``. Throws Failure where the process ends or says that it failed.
	Frame Serve(Kind answer);

private:
	void Handle(const Frame &request);
	void Query(Reader &request);
	void Run(Connection &connection, duckdb_prepared_statement prepared, bool streamed, duckdb_result *result);
	void SendRows(Connection &connection, duckdb_result *result, bool exact);
	void PassOnInterrupt(Connection &connection);
	void Append(Reader &request);
	void Open(uint32_t number);
	Connection &At(uint32_t number);

	struct Other {
		explicit Other(duckdb::ClientContext &user) : connection(*user.db.get()) {
		}
		Connection connection;
		std::unique_ptr<Loan> loan; // given back before the connection is closed
	};

	Channel &channel;
	duckdb::ClientContext &user;
	Connection &users;
	bool in_session;
	std::map<uint32_t, std::unique_ptr<Other>> others;
	std::unique_ptr<Interrupter> interrupter; // from the first query on
};

//! Rows of a chunk as a BATCH body; fills the SCHEMA body.
std::string PackChunk(duckdb_arrow_options options, duckdb_data_chunk chunk, std::vector<duckdb_logical_type> &types,
                      std::vector<const char *> &names, std::string &schema);

//! The same of the arguments of a function.
std::string PackArguments(const Connection &connection, duckdb_data_chunk arguments, std::vector<const char *> names,
                          std::string &schema);

//! A chunk of the C API. One that is made of a BATCH may read the batch's bytes in any of its columns, but the C API ties their
//! life to the first column alone: so the chunk owns them, too.
struct Chunk {
	std::shared_ptr<void> bytes;
	duckdb_data_chunk handle = nullptr;
	~Chunk() {
		duckdb_destroy_data_chunk(&handle);
	}
};

//! Makes the chunk of a SCHEMA and a BATCH. Throws Failure if ``shape`` is given and is not that of the schema.
void UnpackChunk(const Connection &connection, Reader &schema, std::string batch, Chunk &chunk, const char *shape = nullptr);

} // namespace grouplearn
