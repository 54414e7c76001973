#include "host.hpp"

#include <cstring>
#include <stdexcept>

#include "private_layouts.hpp"

namespace grouplearn {
namespace {

//! DuckDB 1.5.2 has these members and leaves them as its memory happens to be, so that an error may or may not invalidate the
//! transaction; before, it has none.
template <class Transaction>
auto SetStandardPolicy(Transaction &transaction, int) -> decltype(void(transaction.auto_rollback)) {
	transaction.invalidation_policy = decltype(transaction.invalidation_policy)::STANDARD_POLICY;
	transaction.auto_rollback = false;
}

template <class Transaction>
void SetStandardPolicy(Transaction &, long) {
}

//! DuckDB's number of the query that the user runs; the largest there is after a statement of ours has run in its transaction.
uint64_t QueryId(const duckdb::ClientContext &user) {
	return user.transaction.current_transaction.get()->active_query.load();
}

//! A number that is another one when anything was created or dropped in a database that is attached. What is not committed is
//! not in it, and is not seen by a connection of ours, either. DuckDB counts under a lock that it holds while it commits: a
//! count that is about to grow may be read as it was.
uint64_t Changes(duckdb::DatabaseInstance &database) {
	auto &manager = *database.db_manager.get();
	std::lock_guard<std::mutex> attaching(manager.databases_lock);
	uint64_t changes = 0;
	for (auto &each : manager.databases) {
		auto transactions = each.second.get()->transaction_manager.get();
		if (transactions && transactions->IsDuckTransactionManager()) {
			auto &counted = static_cast<duckdb::DuckTransactionManager *>(transactions)->last_committed_version;
			changes += __atomic_load_n(&counted, __ATOMIC_ACQUIRE);
		}
	}
	return changes;
}

} // namespace

Writer RequestOf(duckdb::ClientContext &user, const Instance &instance) {
	Writer request;
	request.Number(instance.serial).Number<uint64_t>(TransactionId(user)).Number<uint64_t>(QueryId(user));
	return request.Number<uint64_t>(Changes(*user.db.get()));
}

Connection::Connection(duckdb::DatabaseInstance &database) {
	if (!layouts::Connect(database, handle)) {
		throw Failure {"Connection", "grouplearn: cannot connect to the database"};
	}
	SetStandardPolicy(Context().transaction, 0);
}

Connection::~Connection() {
	duckdb_disconnect(&handle);
}

duckdb::ClientContext &Connection::Context() const {
	return layouts::ContextOf(handle);
}

template <class T>
void Loan::Lend(T &ours, const T &users) {
	auto place = reinterpret_cast<char *>(&ours);
	kept.push_back({place, std::string(place, sizeof(T))});
	std::memcpy(place, &users, sizeof(T));
}

Loan::Loan(duckdb::ClientContext &user, duckdb::ClientContext &ours, Transaction whose) : ours(ours) {
	kept.reserve(16);
	if (whose == Transaction::USERS) {
		LendTransaction(user);
	}
	auto &our_data = *ours.client_data.get(), &users_data = *user.client_data.get();
	Lend(our_data.temporary_objects, users_data.temporary_objects);
	Lend(our_data.catalog_search_path, users_data.catalog_search_path);
#if GROUPLEARN_DUCKDB_1_4
	Lend(ours.config.set_variables, user.config.set_variables);
#else
	Lend(ours.config.user_settings, user.config.user_settings);
#endif
	Lend(ours.config.user_variables, user.config.user_variables);
#if GROUPLEARN_DUCKDB_2
	Lend(our_data.default_database, users_data.default_database);
#endif
	// Not its replacement scans: Python's look for variables in the frame of the thread that runs, which may be any.
	ours.config.use_replacement_scans = user.config.use_replacement_scans;
}

void Loan::LendTransaction(duckdb::ClientContext &user) {
	Lend(ours.transaction.current_transaction, user.transaction.current_transaction);
	Lend(ours.client_data.get()->random_engine, user.client_data.get()->random_engine);
#if GROUPLEARN_DUCKDB_2
	ours.transaction.invalidation_policy = duckdb::TransactionInvalidationPolicy::SYNTACTIC_ERRORS_DO_NOT_INVALIDATE;
#endif
	// The transaction is the statement's: what runs on our side neither commits it nor rolls it back.
	ours.transaction.auto_commit = false;
}

Loan::~Loan() {
	for (auto &each : kept) {
		std::memcpy(each.place, each.bytes.data(), each.bytes.size());
	}
	ours.transaction.auto_commit = true;
}

//! A text as JSON has it between quotes.
static std::string Escaped(const std::string &text) {
	std::string escaped;
	for (unsigned char letter : text) {
		if (letter == '"' || letter == '\\') {
			escaped += '\\';
			escaped += char(letter);
		} else if (letter < 0x20) {
			char code[8];
			snprintf(code, sizeof(code), "\\u%04x", letter);
			escaped += code;
		} else {
			escaped += char(letter);
		}
	}
	return escaped;
}

void Raise(const Failure &failure) {
	// After these two DuckDB takes the database for lost: they are of the process, and this one is as it was.
	bool ends = failure.type == "FATAL" || failure.type == "INTERNAL";
	throw std::runtime_error("{\"exception_type\":\"" + Escaped(ends ? "Invalid Input" : failure.type) +
	                         "\",\"exception_message\":\"" +
	                         Escaped(failure.message) + "\"}");
}

} // namespace grouplearn
