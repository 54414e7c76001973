// Which statements of a text are ours, judged by their first words; grouplearn/parser/parse.py says the same.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace grouplearn {

struct Token;

//! A statement of ours inside of another: ``text[start:stop]``, up to the bracket that closes it or to the end.
struct Place {
	size_t start;
	size_t stop;
};

//! One statement of a text: ``start`` is where its first token is, ``stop`` its ``;`` or the end, ``end`` is after the ``;``.
struct Piece {
	size_t begin;
	size_t start;
	size_t stop;
	size_t end;
	bool ours;
	bool blank;
	//! The names of its parameters, without repeats: ``?`` is numbered from 1, ``?2`` is ``2``, ``$name`` is ``name``.
	std::vector<std::string> parameters;
	//! Where statements of ours are in one that is not ours.
	std::vector<Place> places;
	//! Whether it is PREPARE with such statements in it.
	bool prepares = false;
	//! Whether it is near to a statement of ours, and meant as one if DuckDB cannot parse it.
	bool misspelt = false;

	bool HasOurs() const {
		return ours || !places.empty();
	}
};

//! Whether a statement of ours can be in a text: each has one of a few words. Nothing is cut or copied for that.
bool MayHaveOurs(const std::string &text);

//! Whether tokens from a place on begin a statement of ours.
bool BeginsOurs(const std::vector<Token> &tokens, size_t first);

//! Cuts a text where DuckDB does: a ``;`` inside quotes, comments or brackets ends nothing.
std::vector<Piece> Split(const std::string &text);

} // namespace grouplearn
