// The database this extension is loaded into. Version-locked: its C++ headers are read for the layout of a few objects,
// and none of its symbols is linked; everything that runs goes through its C API.
#pragma once
// The headers have a copy of the C API's table under the name that an extension's own header gives it.
#define duckdb_ext_api_v1 duckdb_ext_api_v1_of_headers
#include "duckdb.hpp"
#include "duckdb/main/capi/capi_internal.hpp"
#include "duckdb/main/client_data.hpp"
#include "duckdb/main/attached_database.hpp"
#include "duckdb/main/database_manager.hpp"
#include "duckdb/transaction/duck_transaction_manager.hpp"
#include "duckdb/transaction/meta_transaction.hpp"
#undef duckdb_ext_api_v1
// After the headers: it turns the names of the C API into members of the table that the database hands over.
#define DUCKDB_EXTENSION_NAME grouplearn
#include "duckdb_extension.h"

#include "channel/channel.hpp"

DUCKDB_EXTENSION_EXTERN

#if __has_include("duckdb/parser/peg/dialect_extension.hpp")
#define GROUPLEARN_DUCKDB_2 1
#else
#define GROUPLEARN_DUCKDB_2 0
#endif

//! Its parser asks extensions only for what it cannot parse itself, and wants a table function for that.
#if __has_include("duckdb/main/extension_callback_manager.hpp")
#define GROUPLEARN_DUCKDB_1_4 0
#else
#define GROUPLEARN_DUCKDB_1_4 1
#endif

namespace grouplearn {

//! What one database instance knows about us: made when the extension is loaded into it.
struct Instance {
	duckdb::DatabaseInstance *database;
	//! Tells apart instances that come to lie at one address.
	uint64_t serial;

	~Instance() {
		Forget(serial);
	}
};

inline bool IsInterrupted(const duckdb::ClientContext &context) {
#if GROUPLEARN_DUCKDB_2
	return context.interrupt_state.load() == duckdb::ClientInterruptState::INTERRUPTED;
#else
	return context.interrupted.load();
#endif
}

//! Whether the user has asked the statement to stop.
inline bool IsAskedToStop(const duckdb::ClientContext &user) {
	return IsInterrupted(user) || IsHostInterrupted();
}

//! The number of the transaction that the user's statement runs in, as current_transaction_id() gives it.
inline uint64_t TransactionId(const duckdb::ClientContext &context) {
	return context.transaction.current_transaction.get()->global_transaction_id;
}

//! How every request begins: for whom, which is the database instance, the user's transaction and query, and what names mean.
Writer RequestOf(duckdb::ClientContext &user, const Instance &instance);

//! A connection of ours to the user's database, closed with this object. The C API hands out the database only while the
//! extension is loaded, and a connection kept from then on would keep the database open for ever.
class Connection {
public:
	explicit Connection(duckdb::DatabaseInstance &database);
	~Connection();
	Connection(const Connection &) = delete;

	duckdb::ClientContext &Context() const;

	duckdb_connection handle = nullptr;
};

//! Lends a user's context to a connection of ours: same transaction (unless it is in use by a query that runs, in several
//! threads at once), temporary objects, search path, settings and variables.
//! The lent members are the user's own, seen through a second object; nothing is copied or changed, and they are given back
//! before anything of ours is destroyed. The user's thread is inside our function meanwhile.
class Loan {
public:
	enum class Transaction : bool { OURS, USERS };
	Loan(duckdb::ClientContext &user, duckdb::ClientContext &ours, Transaction whose = Transaction::USERS);
	~Loan();
	Loan(const Loan &) = delete;

private:
	struct Kept {
		void *place;
		std::string bytes;
	};
	template <class T>
	void Lend(T &ours, const T &users);

	void LendTransaction(duckdb::ClientContext &user);

	duckdb::ClientContext &ours;
	std::vector<Kept> kept;
};

//! Throws what DuckDB turns into an error of that type, with our text as it is.
[[noreturn]] void Raise(const Failure &failure);

} // namespace grouplearn
