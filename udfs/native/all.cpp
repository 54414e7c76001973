// One translation unit: DuckDB's headers take longer to read than all of this.
#include "channel/channel.cpp"
#include "python.cpp"
#include "statements/statements.cpp"
#include "statements/nested.cpp"
#include "host.cpp"
#include "statements/sealing.cpp"
#include "channel/arrow_layout.cpp"
#include "channel/arrow_checks.cpp"
#include "channel/arrow_frames.cpp"
#include "queries.cpp"
#include "carrying.cpp"
#if GROUPLEARN_DUCKDB_1_4
#include "statements/planning.cpp"
#else
#include "statements/parsing.cpp"
#endif
#include "predicting.cpp"
#include "extension.cpp"
