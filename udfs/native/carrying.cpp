#include "carrying.hpp"

#include <algorithm>
#include <cstdio>
#include <unistd.h>

#include "duckdb/main/client_context_state.hpp"
#include "private_layouts.hpp"
#include "queries.hpp"

namespace grouplearn {
namespace {

//! Since 1.5 the shell is silent about interrupts; what is left of a run, and how to go on with it, is worth a line.
void ShowInterrupt(const Failure &failure) {
#if !GROUPLEARN_DUCKDB_1_4
	if (failure.type == "INTERRUPT" && !IsHostPython() && isatty(STDERR_FILENO)) {
		std::fprintf(stderr, "%s\n", failure.message.c_str());
	}
#endif
}

//! Whether rows are most likely read by a person, on a terminal.
bool AreRowsForPeople() {
	return !IsHostPython() && isatty(STDOUT_FILENO);
}

constexpr const char *SETTLING = "grouplearn_settling";

//! After the transaction is committed in which a statement has stored the model of a durable run: lets the process remove the
//! run's directory. Before, a ROLLBACK would leave nothing of the run.
class Settling : public duckdb::ClientContextState {
public:
	void TransactionCommit(duckdb::MetaTransaction &, duckdb::ClientContext &) override {
		is_committed = true;
	}
	void TransactionRollback(duckdb::MetaTransaction &, duckdb::ClientContext &user) override {
		user.registered_state.get()->Remove(SETTLING);
	}
	void QueryEnd(duckdb::ClientContext &user) override {
		if (!is_committed) {
			return;
		}
		user.registered_state.get()->Remove(SETTLING);
		HostSignals signals;
		try {
			Channel channel([&user] { return IsAskedToStop(user); });
			channel.Send(Kind::SETTLE, "");
			Connection ours(*user.db.get());
			Server(channel, user, ours).Serve(Kind::ANSWER);
		} catch (const Failure &) { // the next durable run removes it
		}
	}

private:
	bool is_committed = false;
};

void SettleAfterCommit(duckdb::ClientContext &user) {
	using State = duckdb::ClientContextState;
	user.registered_state.get()->Insert(SETTLING, duckdb::shared_ptr<State>(std::shared_ptr<State>(new Settling())));
}

} // namespace

std::string SealedText(const char *function, uint64_t number, const Request &written) {
	Writer sealed;
	sealed.Text(function).Number(number).Number(written.lines).Number(written.start).Number(written.stop);
	return sealed.bytes + written.text;
}

std::vector<std::string> Carry(duckdb::ClientContext &user, const Instance &instance, const Request &request) {
	auto writer = RequestOf(user, instance);
	writer.Number(request.lines).Number(request.start).Number(request.stop).Text(request.text);
	writer.Number<uint64_t>(request.may_write).Number<uint64_t>(AreRowsForPeople()).Text(request.schema);
	HostSignals signals;
	try { // from the start: the process may only be starting
		Channel channel([&user] { return IsAskedToStop(user); });
		channel.Send(Kind::STATEMENT, writer.bytes + request.values);
		Connection ours(*user.db.get());
		Loan loan(user, ours.Context());
		auto answer = Server(channel, user, ours).Serve(Kind::ANSWER);
		Reader reader(answer.body);
		auto count = reader.Number<uint64_t>();
		if (reader.Number<uint64_t>()) {
			SettleAfterCommit(user);
		}
		std::vector<std::string> queries(std::min<uint64_t>(count, reader.Left()));
		for (auto &query : queries) {
			query = reader.Text();
		}
		return queries;
	} catch (const Failure &failure) {
		ShowInterrupt(failure);
		throw;
	}
}

void SetBindContext(duckdb_bind_info info) {
	duckdb_client_context wrapped = nullptr;
	duckdb_scalar_function_get_client_context(info, &wrapped);
	using Pointer = duckdb::ClientContext *;
	auto data = new Pointer(&layouts::ContextOf(wrapped));
	duckdb_scalar_function_set_bind_data(info, data, [](void *data) { delete static_cast<Pointer *>(data); });
	duckdb_scalar_function_set_bind_data_copy(info, [](void *data) -> void * { return new Pointer(*static_cast<Pointer *>(data)); });
}

duckdb::ClientContext &BoundContext(duckdb_function_info info) {
	return **static_cast<duckdb::ClientContext **>(duckdb_scalar_function_get_bind_data(info));
}

} // namespace grouplearn
