#include "predicting.hpp"

#include <memory>
#include <vector>

#include "carrying.hpp"
#include "private_layouts.hpp"
#include "queries.hpp"

namespace grouplearn {
namespace {

//! Which part of a prediction a function returns; grouplearn/prediction/predictions.py has the same numbers.
enum class Part : uint64_t { ALL = 0, VALUE = 1, PROBABILITY = 2, STEPS = 3, EXPLANATION = 4 };

//! PredictionType in Arrow's words.
constexpr const char *PREDICTION_SHAPE = "+s(+s(u,g,g,+m(+s(u,g)),u,i,+l(g)))";
constexpr const char *STEPS_SHAPE = "+s(+l(+s(i,u,g,g,g)))";
constexpr const char *EXPLANATION_SHAPE = "+s(+s(u,u,i,g,g,+l(g),u))";

const char *ShapeOf(Part part) {
	return part == Part::ALL           ? PREDICTION_SHAPE
	       : part == Part::STEPS       ? STEPS_SHAPE
	       : part == Part::EXPLANATION ? EXPLANATION_SHAPE
	                                   : "+s(g)";
}

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
	std::vector<const char *> names {"model", "row", "horizon", "level"};
	names.resize(duckdb_data_chunk_get_column_count(rows));
	auto batch = PackArguments(line.connection, rows, names, schema);
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
		Chunk chunk;
		UnpackChunk(line->connection, schema, reader.Rest(), chunk, ShapeOf(wanted.part));
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

//! STRUCT(step, time, prediction, lower, upper)[]; udfs/predict.py has the same.
duckdb_logical_type StepsType() {
	auto text = duckdb_create_logical_type(DUCKDB_TYPE_VARCHAR), number = duckdb_create_logical_type(DUCKDB_TYPE_DOUBLE);
	auto count = duckdb_create_logical_type(DUCKDB_TYPE_INTEGER);
	duckdb_logical_type members[] = {count, text, number, number, number};
	const char *names[] = {"step", "time", "prediction", "lower", "upper"};
	auto step = duckdb_create_struct_type(members, names, 5), type = duckdb_create_list_type(step);
	for (auto each : {&text, &number, &count, &step}) {
		duckdb_destroy_logical_type(each);
	}
	return type;
}

//! STRUCT(prediction, model_level, group_id, score, baseline, added, method); udfs/predict.py has the same.
duckdb_logical_type ExplanationType() {
	auto text = duckdb_create_logical_type(DUCKDB_TYPE_VARCHAR), number = duckdb_create_logical_type(DUCKDB_TYPE_DOUBLE);
	auto id = duckdb_create_logical_type(DUCKDB_TYPE_INTEGER), list = duckdb_create_list_type(number);
	duckdb_logical_type members[] = {text, text, id, number, number, list, text};
	const char *names[] = {"prediction", "model_level", "group_id", "score", "baseline", "added", "method"};
	auto type = duckdb_create_struct_type(members, names, 7);
	for (auto each : {&text, &number, &id, &list}) {
		duckdb_destroy_logical_type(each);
	}
	return type;
}

duckdb_logical_type TypeOf(Part part) {
	return part == Part::ALL           ? PredictionType()
	       : part == Part::STEPS       ? StepsType()
	       : part == Part::EXPLANATION ? ExplanationType()
	                                   : duckdb_create_logical_type(DUCKDB_TYPE_DOUBLE);
}

//! A function of a model's name and a row, and more.
duckdb_scalar_function Function(const char *name, Instance &instance, Part part, std::vector<duckdb_type> more = {}) {
	auto function = duckdb_create_scalar_function();
	auto returned = TypeOf(part);
	more.insert(more.begin(), {DUCKDB_TYPE_VARCHAR, DUCKDB_TYPE_ANY});
	duckdb_scalar_function_set_name(function, name);
	for (auto parameter : more) {
		auto type = duckdb_create_logical_type(parameter);
		duckdb_scalar_function_add_parameter(function, type);
		duckdb_destroy_logical_type(&type);
	}
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
	duckdb_destroy_logical_type(&returned);
	return function;
}

bool Register(duckdb_connection connection, const char *name, Instance &instance, Part part) {
	auto function = Function(name, instance, part);
	bool registered = duckdb_register_scalar_function(connection, function) == DuckDBSuccess;
	duckdb_destroy_scalar_function(&function);
	return registered;
}

//! forecast(model, rows of steps to come), forecast(model, row, horizon), and with the level of intervals.
bool RegisterForecast(duckdb_connection connection, Instance &instance) {
	auto both = duckdb_create_scalar_function_set("forecast");
	bool added = true;
	for (auto &more : {std::vector<duckdb_type> {}, {DUCKDB_TYPE_BIGINT}, {DUCKDB_TYPE_BIGINT, DUCKDB_TYPE_DOUBLE}}) {
		auto function = Function("forecast", instance, Part::STEPS, more);
		added &= duckdb_add_scalar_function_to_set(both, function) == DuckDBSuccess;
		duckdb_destroy_scalar_function(&function);
	}
	bool registered = added && duckdb_register_scalar_function_set(connection, both) == DuckDBSuccess;
	duckdb_destroy_scalar_function_set(&both);
	return registered;
}

} // namespace

bool RegisterPredictions(duckdb_connection connection, Instance &instance) {
	return Register(connection, "predict", instance, Part::ALL) &&
	       Register(connection, "grouplearn_predictions", instance, Part::ALL) && // of rows that are evaluated
	       Register(connection, "predict_value", instance, Part::VALUE) &&
	       Register(connection, "predict_probability", instance, Part::PROBABILITY) &&
	       Register(connection, "grouplearn_explain", instance, Part::EXPLANATION) && // of rows that are evaluated
	       RegisterForecast(connection, instance);
}

} // namespace grouplearn
