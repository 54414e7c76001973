// predict('model', row) and its two short forms: chunks of rows to the grouplearn process, predictions back.
#pragma once
#include "host.hpp"

namespace grouplearn {

bool RegisterPredictions(duckdb_connection connection, Instance &instance);

//! Lets a function of the C API know whose context it runs in: its bind data is a pointer to it.
void SetBindContext(duckdb_bind_info info);

} // namespace grouplearn
