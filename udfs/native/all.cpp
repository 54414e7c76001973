// One translation unit: DuckDB's headers take longer to read than all of this.
#include "channel.cpp"
#include "python.cpp"
#include "statements.cpp"
#include "nested.cpp"
#include "host.cpp"
#include "sealing.cpp"
#include "arrow_layout.cpp"
#include "arrow_checks.cpp"
#include "arrow_frames.cpp"
#include "queries.cpp"
#include "carrying.cpp"
#if GROUPLEARN_DUCKDB_1_4
#include "planning.cpp"
#else
#include "parsing.cpp"
#endif
#include "predicting.cpp"
#include "extension.cpp"
