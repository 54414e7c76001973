// Where DuckDB parses a text: our statements in it become ordinary ones that send them to the grouplearn process.
#pragma once
#include <memory>

#include "host.hpp"

namespace grouplearn {

//! Makes the database's parser ask us first. A text without a statement of ours is passed on untouched.
//! ``others_in_use``: whether the user had let parsers of extensions be asked before.
void InstallParser(std::unique_ptr<Instance> instance, bool others_in_use);

#if GROUPLEARN_DUCKDB_1_4
//! Adds the table function grouplearn('statement').
bool RegisterRows(duckdb_connection connection, Instance &instance);
#endif

} // namespace grouplearn
