// predict('model', row) and its two short forms: chunks of rows to the grouplearn process, predictions back.
#pragma once
#include "host.hpp"

namespace grouplearn {

bool RegisterPredictions(duckdb_connection connection, Instance &instance);

} // namespace grouplearn
