#include "statements/parsing.hpp"

#include <algorithm>
#include <atomic>
#include <iterator>

#include "duckdb/parser/parser_options.hpp"
#include "carrying.hpp"
#include "private_layouts.hpp"
#include "statements/sealing.hpp"
#include "statements/statements.hpp"
#include "statements/tokens.hpp"

// The one function outside of the headers that a ParserOverrideResult needs; the database's own does the same.
duckdb::ErrorData::ErrorData() : initialized(false), type(duckdb::ExceptionType::INVALID) {
}

namespace grouplearn {
namespace {

//! Longer texts are cut into statements only if they may have one of ours; in shorter ones misspelt ones are looked for, which
//! takes microseconds.
constexpr size_t LONG = 2000;

using Parsed = duckdb::vector<duckdb::unique_ptr<duckdb::SQLStatement>>;

struct ParserInfo : duckdb::ParserExtensionInfo {
	//! Lives as long as the database: its functions point to it.
	std::unique_ptr<Instance> instance;
	//! The database's list as it was: a text that another thread was parsing when we came is parsed to its end with it.
	std::vector<duckdb::ParserExtension> before;
	//! Whether overrides in it were not in use; they stay so unless the user asks for them by 'strict'. (The shell has an
	//! experimental parser among them.)
	bool silenced;
};

//! Lets the database itself parse ``sql`` and appends the statements.
void Parse(Connection &connection, const std::string &sql, Parsed &into) {
	duckdb_extracted_statements extracted = nullptr;
	duckdb_extract_statements(connection.handle, sql.c_str(), &extracted);
	auto wrapper = layouts::StatementsOf(extracted);
	std::string error = wrapper ? wrapper->error : "the text cannot be parsed";
	if (error.empty()) {
		for (auto &statement : wrapper->statements) {
			into.push_back(std::move(statement));
		}
	}
	duckdb_destroy_extracted(&extracted);
	if (!error.empty()) {
		const std::string prefix = "Parser Error: ";
		throw Failure {"Parser", error.compare(0, prefix.size(), prefix) ? error : error.substr(prefix.size())};
	}
}

//! ``{'1': $1}``: the values of parameters as one.
std::string Values(const std::vector<std::string> &parameters) {
	std::string values;
	for (auto &name : parameters) {
		values += (values.empty() ? "{'" : ", '") + name + "': $" + name;
	}
	return values + "}";
}

std::string Literal(const std::string &text) {
	std::string quoted = "'";
	for (char letter : text) {
		quoted += letter;
		if (letter == '\'') {
			quoted += letter;
		}
	}
	return quoted + "'";
}

//! ``text[begin:end]`` where it was: what is before is blank, so that lines and columns in error messages stay right.
std::string InPlace(const std::string &text, size_t begin, size_t end) {
	auto placed = text.substr(0, end);
	std::replace_if(placed.begin(), placed.begin() + begin, [](char letter) { return letter != '\n'; }, ' ');
	return placed;
}

std::string Unsigned(uint64_t number) {
	return std::to_string(number) + "::UBIGINT";
}

//! Where a statement is and what it says. Of the text around it the lines it is on are sent along.
Request Written(const std::string &text, const Piece &piece) {
	auto line = text.rfind('\n', piece.start);
	auto from = line == std::string::npos ? 0 : line + 1;
	auto to = std::min(text.find('\n', piece.stop), text.size());
	auto lines = std::count(text.begin(), text.begin() + from, '\n');
	return {uint64_t(lines), piece.start - from, piece.stop - from, text.substr(from, to - from), "", ""};
}

//! A call of one of our functions with its seal, which is ``seal`` afterwards: ``function(seal, number, ..., 'text'``, not closed.
std::string Call(const char *function, uint64_t number, const Request &written, uint64_t &seal) {
	seal = Seal(SealedText(function, number, written));
	auto call = std::string("system.main.") + function + "(";
	for (auto each : {seal, number, written.lines, written.start, written.stop}) {
		call += Unsigned(each) + ", ";
	}
	return call + Literal(written.text);
}

//! Sends a statement; its answers are kept by ``seal`` and the numbers after it. No two statements have the same.
std::string Sent(const Request &written, uint64_t &seal) {
	static std::atomic<uint64_t> statements {0};
	return "SET VARIABLE grouplearn = " + Call(STATEMENT, ++statements, written, seal) + ")";
}

std::string SentWith(size_t which, const Request &written, const std::vector<std::string> &parameters) {
	uint64_t seal;
	return "FROM system.main.query(" + Call(STATEMENT_WITH, which, written, seal) + ", " + Values(parameters) + "))";
}

std::string Answer(uint64_t seal) {
	return "FROM system.main.query(system.main.grouplearn_answer(" + Unsigned(seal) + "))";
}

//! The two statements that one of ours becomes: one that sends it and returns nothing, one whose rows are its answer. Nothing
//! is sent while a text is parsed, prepared or explained.
//!
//! Parameters are given to the last statement of a text, so with them it is one: the database plans it when it has their
//! values, and planning it sends ours and is given the query of its answer.
void ParseOne(Connection &connection, const std::string &text, const Piece &piece, Parsed &into) {
	auto written = Written(text, piece);
	if (!piece.parameters.empty()) {
		return Parse(connection, SentWith(0, written, piece.parameters), into);
	}
	uint64_t seal;
	auto sent = Sent(written, seal);
	Parse(connection, sent + "; " + Answer(seal), into);
}

//! A statement of DuckDB's in its place, with ``answers(place)`` for each of ours in it. Where it has parameters they are all
//! written with their names: those of ours are moved into one value.
template <class Answers>
std::string Around(const std::string &text, const Piece &piece, Answers answers) {
	auto around = InPlace(text, piece.begin, piece.start);
	Parameters parameters;
	Lexer lexer(text);
	Token token;
	size_t place = 0, copied = piece.start;
	for (lexer.at = piece.start; lexer.Next(token) && lexer.began < piece.stop;) {
		if (place < piece.places.size() && lexer.began >= piece.places[place].stop) {
			place++;
		}
		bool ours = place < piece.places.size() && lexer.began >= piece.places[place].start;
		if (ours && lexer.began == piece.places[place].start) {
			around += text.substr(copied, lexer.began - copied) + answers(place);
			copied = piece.places[place].stop;
		}
		if (token.kind != TokenKind::PARAMETER) {
			continue;
		}
		auto name = parameters.Note(token.text);
		if (!ours) {
			around += text.substr(copied, lexer.began - copied) + "$" + name;
			copied = lexer.at;
		}
	}
	return around + text.substr(copied, piece.stop - copied);
}

//! A statement of DuckDB's stays one, with queries in the places of ours: of their answers, which it is sent for before. Only
//! PREPARE is sent for now, whatever it has: it cannot keep a query.
void ParseAround(Connection &connection, const std::string &text, const Piece &piece, Parsed &into) {
	auto written = Written(text, piece);
	Parsed statements;
	try {
		if (piece.parameters.empty() || piece.prepares) {
			uint64_t seal;
			Parse(connection, Sent(written, seal), statements);
			Parse(connection, Around(text, piece, [&](size_t place) { return Answer(seal + 1 + place); }), statements);
		} else {
			auto answer = [&](size_t place) { return SentWith(1 + place, written, piece.parameters); };
			Parse(connection, Around(text, piece, answer), statements);
		}
	} catch (const Failure &) { // carried out, it says what is wrong in the user's own words
		return ParseOne(connection, text, piece, into);
	}
	std::move(statements.begin(), statements.end(), std::back_inserter(into));
}

Parsed ParseOurs(Instance &instance, const std::string &text, const std::vector<Piece> &pieces) {
	Connection connection(*instance.database);
	Parsed statements;
	for (size_t place = 0; place < pieces.size();) {
		if (pieces[place].HasOurs()) {
			auto parse = pieces[place].ours ? ParseOne : ParseAround;
			parse(connection, text, pieces[place++], statements);
			continue;
		}
		auto first = place;
		while (place < pieces.size() && !pieces[place].HasOurs()) {
			place++;
		}
		Parse(connection, InPlace(text, pieces[first].begin, pieces[place - 1].end), statements);
	}
	return statements;
}

//! Whether the database parses a statement that is near to one of ours, so that it is none of ours.
bool CanBeParsed(Instance &instance, const std::string &text, const Piece &piece) {
	static thread_local bool asking = false;
	if (asking) { // the database asks us again
		return true;
	}
	Connection connection(*instance.database);
	Parsed statements;
	asking = true;
	bool parsed = true;
	try {
		Parse(connection, text.substr(piece.start, piece.stop - piece.start), statements);
	} catch (const Failure &) {
		parsed = false;
	}
	asking = false;
	return parsed;
}

//! Carried out as one of ours, it says what was expected and meant.
Parsed ParseMisspelt(Instance &instance, const std::string &text, const Piece &piece) {
	Connection connection(*instance.database);
	Parsed statements;
	ParseOne(connection, text, piece, statements);
	return statements;
}

duckdb::ParserOverrideResult Others(ParserInfo &info, const std::string &text, duckdb::ParserOptions &options) {
	if (info.silenced && options.parser_override_setting == duckdb::AllowParserOverride::STRICT_OVERRIDE) {
		for (auto &other : info.before) {
			if (!other.parser_override) {
				continue;
			}
			auto result = other.parser_override(other.parser_info.get(), text, options);
			if (result.type == duckdb::ParserExtensionResultType::PARSE_SUCCESSFUL) {
				return result;
			}
		}
	}
	return duckdb::ParserOverrideResult();
}

duckdb::ParserOverrideResult Override(duckdb::ParserExtensionInfo *info, const std::string &text,
                                      duckdb::ParserOptions &options) {
	auto &known = *static_cast<ParserInfo *>(info);
	if (text.size() > LONG && !MayHaveOurs(text)) {
		return Others(known, text, options);
	}
	auto pieces = Split(text);
	try {
		if (std::any_of(pieces.begin(), pieces.end(), [](const Piece &piece) { return piece.HasOurs(); })) {
			return duckdb::ParserOverrideResult(ParseOurs(*known.instance, text, pieces));
		}
		for (auto &piece : pieces) {
			if (piece.misspelt && !CanBeParsed(*known.instance, text, piece)) {
				return duckdb::ParserOverrideResult(ParseMisspelt(*known.instance, text, piece));
			}
		}
		return Others(known, text, options);
	} catch (const Failure &failure) {
		Raise(failure);
	}
}

} // namespace

void InstallParser(std::unique_ptr<Instance> instance, bool others_in_use) {
	auto &extensions = layouts::ParsersOf(*instance->database);
	auto info = std::make_shared<ParserInfo>();
	info->instance = std::move(instance);
	info->silenced = !others_in_use;
	std::vector<duckdb::ParserExtension> after(1);
	after[0].parser_override = Override;
	after[0].parser_info = duckdb::shared_ptr<duckdb::ParserExtensionInfo>(std::shared_ptr<duckdb::ParserExtensionInfo>(info));
	for (auto &each : extensions) {
		after.push_back(each);
		if (info->silenced) {
			after.back().parser_override = nullptr;
		}
	}
	extensions.swap(after);
	info->before.swap(after);
}

} // namespace grouplearn
