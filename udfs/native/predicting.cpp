#include "predicting.hpp"

#include <memory>

#include "carrying.hpp"
#include "private_layouts.hpp"
#include "queries.hpp"

namespace grouplearn {
namespace {

//! Which part of a prediction a function returns; grouplearn/prediction/predictions.py has the same numbers.
enum class Part : uint64_t { ALL = 0, VALUE = 1, PROBABILITY = 2 };

//! PredictionType in Arrow's words.
constexpr const char *PREDICTION_SHAPE = "+s(+s(u,g,g,+m(+s(u,g)),u,i,+l(g)))";

struct Predicting {
	Instance *instance;
	Part part;
};

//! One thread's line to the process while a query runs.
struct Line {
	explicit Line(duckdb::ClientContext &user)
	    : channel([&user] { return IsAskedToStop(user); }), connection(*user.db.get()) {
	}
	Channel channel;
	Connection connection;
};

std::string Asked(duckdb_data_chunk rows, const Predicting &wanted, duckdb::ClientContext &user, Line &line) {
	auto request = RequestOf(user, *wanted.instance);
	auto running = layouts::RunningText(user);
	request.Number(uint64_t(wanted.part)).Text(running ? *running : "");
	std::string schema;
	auto batch = PackArguments(line.connection, rows, {"model", "row"}, schema);
	request.Text(schema);
	return request.bytes + batch;
}

void Predict(duckdb_function_info info, duckdb_data_chunk rows, duckdb_vector result) {
	auto &user = BoundContext(info);
	auto &wanted = *static_cast<Predicting *>(duckdb_scalar_function_get_extra_info(info));
#if GROUPLEARN_DUCKDB_1_4
	std::unique_ptr<Line> line; // its functions have no state of a thread's own
#else
	auto &line = *static_cast<std::unique_ptr<Line> *>(duckdb_scalar_function_get_state(info));
#endif
	HostSignals signals;
	try {
		if (!line) {
			line.reset(new Line(user));
		}
		line->channel.Send(Kind::PREDICT, Asked(rows, wanted, user, *line));
		auto answer = Server(line->channel, user, line->connection, true).Serve(Kind::PREDICTED);
		Reader reader(answer.body);
		auto described = reader.Text();
		Reader schema(described);
		auto shape = wanted.part == Part::ALL ? PREDICTION_SHAPE : "+s(g)";
		Chunk chunk;
		UnpackChunk(line->connection, schema, reader.Rest(), chunk, shape);
		if (duckdb_data_chunk_get_size(chunk.handle) != duckdb_data_chunk_get_size(rows)) {
			throw Failure {"IO", "grouplearn: predictions of other rows than were asked for"};
		}
		// The only column is the first one, with which the C API keeps the bytes.
		duckdb_vector_reference_vector(result, duckdb_data_chunk_get_vector(chunk.handle, 0));
	} catch (const Failure &failure) {
		line.reset();
		Raise(failure);
	}
}

#if !GROUPLEARN_DUCKDB_1_4
void StartLine(duckdb_init_info info) {
	duckdb_scalar_function_init_set_state(info, new std::unique_ptr<Line>(), [](void *line) {
		delete static_cast<std::unique_ptr<Line> *>(line);
	});
}
#endif

//! STRUCT(prediction, value, probability, probabilities, model_level, group_id, predicted); udfs/predict.py has the same.
duckdb_logical_type PredictionType() {
	auto text = duckdb_create_logical_type(DUCKDB_TYPE_VARCHAR), number = duckdb_create_logical_type(DUCKDB_TYPE_DOUBLE);
	auto id = duckdb_create_logical_type(DUCKDB_TYPE_INTEGER);
	auto map = duckdb_create_map_type(text, number), list = duckdb_create_list_type(number);
	duckdb_logical_type members[] = {text, number, number, map, text, id, list};
	const char *names[] = {"prediction",  "value",    "probability", "probabilities",
	                       "model_level", "group_id", "predicted"};
	auto type = duckdb_create_struct_type(members, names, 7);
	for (auto each : {&text, &number, &id, &map, &list}) {
		duckdb_destroy_logical_type(each);
	}
	return type;
}

bool Register(duckdb_connection connection, const char *name, Instance &instance, Part part) {
	auto function = duckdb_create_scalar_function();
	auto text = duckdb_create_logical_type(DUCKDB_TYPE_VARCHAR), any = duckdb_create_logical_type(DUCKDB_TYPE_ANY);
	auto returned = part == Part::ALL ? PredictionType() : duckdb_create_logical_type(DUCKDB_TYPE_DOUBLE);
	duckdb_scalar_function_set_name(function, name);
	duckdb_scalar_function_add_parameter(function, text);
	duckdb_scalar_function_add_parameter(function, any);
	duckdb_scalar_function_set_return_type(function, returned);
	duckdb_scalar_function_set_special_handling(function); // a NULL row is answered by the process, too
	// A row is predicted once for all fields asked for, and a window can be ordered by it; a model of the same name may be another one
	// in the next query, so that no answer is kept in a prepared statement.
	layouts::KeepWithinQuery(function);
	duckdb_scalar_function_set_bind(function, SetBindContext);
#if !GROUPLEARN_DUCKDB_1_4
	duckdb_scalar_function_set_init(function, StartLine);
#endif
	duckdb_scalar_function_set_function(function, Predict);
	duckdb_scalar_function_set_extra_info(function, new Predicting {&instance, part},
	                                      [](void *wanted) { delete static_cast<Predicting *>(wanted); });
	bool registered = duckdb_register_scalar_function(connection, function) == DuckDBSuccess;
	duckdb_destroy_scalar_function(&function);
	for (auto each : {&text, &any, &returned}) {
		duckdb_destroy_logical_type(each);
	}
	return registered;
}

} // namespace

bool RegisterPredictions(duckdb_connection connection, Instance &instance) {
	return Register(connection, "predict", instance, Part::ALL) &&
	       Register(connection, "grouplearn_predictions", instance, Part::ALL) && // of rows that are evaluated
	       Register(connection, "predict_value", instance, Part::VALUE) &&
	       Register(connection, "predict_probability", instance, Part::PROBABILITY);
}

} // namespace grouplearn
