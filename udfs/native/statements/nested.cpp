#include "statements/nested.hpp"

namespace grouplearn {
namespace {

struct Placed {
	Token token;
	size_t start;
};

using Tokens = std::vector<Placed>;

Tokens Read(const std::string &text, const Piece &piece) {
	Tokens tokens;
	Lexer lexer(text);
	lexer.at = piece.start;
	Token token;
	while (lexer.Next(token) && lexer.began < piece.stop) {
		tokens.push_back({token, lexer.began});
	}
	return tokens;
}

bool Is(const Tokens &tokens, size_t place, std::initializer_list<const char *> words) {
	return place < tokens.size() && IsWord(tokens[place].token, words);
}

bool Is(const Tokens &tokens, size_t place, char symbol) {
	return place < tokens.size() && IsSymbol(tokens[place].token, symbol);
}

//! The place after [OR REPLACE].
size_t AfterReplace(const Tokens &tokens, size_t place) {
	return Is(tokens, place, {"OR"}) && Is(tokens, place + 1, {"REPLACE"}) ? place + 2 : place;
}

//! The brackets and some words of a statement, read once, so that each question about a place in it takes constant time.
struct Outline {
	explicit Outline(const Tokens &tokens) : closing(tokens.size() + 1, tokens.size()), after_ctes(tokens.size() + 1, 0) {
		std::vector<size_t> opened;
		std::vector<std::vector<size_t>> waiting(1); // in each open bracket the words WITH whose queries have not ended
		for (size_t place = 0; place < tokens.size(); place++) {
			auto &token = tokens[place].token;
			auto deeper = Deeper(token);
			if (deeper > 0) {
				opened.push_back(place);
				waiting.emplace_back();
			} else if (deeper < 0 && !opened.empty()) {
				closing[opened.back()] = place;
				opened.pop_back();
				waiting.pop_back();
			} else if (token.kind == TokenKind::WORD) {
				ReadWord(token, place, place && Is(tokens, place - 1, ')'), waiting.back());
			}
		}
	}

	//! Whether a word stands from ``low`` to ``high``.
	static bool Has(const std::vector<size_t> &places, size_t low, size_t high) {
		auto found = std::lower_bound(places.begin(), places.end(), low);
		return found != places.end() && *found < high;
	}

	//! The place of the bracket that closes the one at a place, or the end.
	std::vector<size_t> closing;
	//! The place after ``WITH name AS (...), ...`` at a place, 0 if there is none.
	std::vector<size_t> after_ctes;
	std::vector<size_t> ons, usings;

private:
	void ReadWord(const Token &token, size_t place, bool closed, std::vector<size_t> &waiting) {
		if (closed && !IsWord(token, {"AS", "USING"})) {
			for (auto each : waiting) {
				after_ctes[each] = place;
			}
			waiting.clear();
		}
		if (IsWord(token, {"WITH"})) {
			waiting.push_back(place);
		} else if (IsWord(token, {"ON"})) {
			ons.push_back(place);
		} else if (IsWord(token, {"USING"})) {
			usings.push_back(place);
		}
	}
};

//! Whether it is ``[EXPLAIN] WITH ... TRAIN`` or ``WITH ... EVALUATE``.
bool IsOursAfterWith(const Tokens &tokens, const Outline &outline) {
	bool explained = Is(tokens, 0, {"EXPLAIN"});
	size_t first = 0;
	while (explained && first < tokens.size() && !Is(tokens, first, {"WITH"})) {
		first++;
	}
	auto after = outline.after_ctes[first];
	if (!after || !Is(tokens, AfterReplace(tokens, after + 1), {"MODEL"})) {
		return false;
	}
	return Is(tokens, after, {"TRAIN", "CREATE"}) || (!explained && Is(tokens, after, {"EVALUATE"}));
}

//! Whether one of ours stands from ``place`` to ``stop``.
bool Begins(const Tokens &tokens, const Outline &outline, size_t place, size_t stop) {
	if (Is(tokens, place, {"SHOW"})) {
		bool functions = Is(tokens, place + 1, {"FUNCTIONS"}) && Is(tokens, place + 2, {"OF"});
		return functions || (place + 2 == stop && Is(tokens, place + 1, {"MODELS", "LEARNERS", "RUNS"}));
	}
	if (Is(tokens, place, {"DESCRIBE", "DESC"})) {
		bool named = place + 2 < stop && (tokens[place + 2].token.kind == TokenKind::WORD ||
		                                  tokens[place + 2].token.kind == TokenKind::QUOTED);
		return named && Is(tokens, place + 1, {"MODEL", "LEARNER"});
	}
	if (auto after = outline.after_ctes[place]) {
		place = after;
	}
	if (Is(tokens, place, {"EVALUATE"})) {
		return Is(tokens, place + 1, {"MODEL"}) && Outline::Has(outline.ons, place, stop);
	}
	auto model = AfterReplace(tokens, place + 1);
	return Is(tokens, place, {"TRAIN", "CREATE"}) && Is(tokens, model, {"MODEL"}) && Outline::Has(outline.usings, model, stop);
}

//! The place of the statement that PREPARE is to keep, or the end.
size_t KeptFrom(const Tokens &tokens) {
	size_t place = 0;
	while (place < tokens.size() && !Is(tokens, place, {"AS"})) {
		place++;
	}
	return std::min(place + 1, tokens.size());
}

bool IsOursFrom(const Tokens &tokens, size_t first) {
	std::vector<Token> every;
	for (auto &each : tokens) {
		every.push_back(each.token);
	}
	return BeginsOurs(every, first);
}

} // namespace

bool MayBegin(const Token &first, const Token &second) {
	return IsWord(first, {"SHOW", "DESC", "DESCRIBE", "EVALUATE", "TRAIN", "CREATE"}) &&
	       IsWord(second, {"MODELS", "LEARNERS", "RUNS", "FUNCTIONS", "MODEL", "LEARNER", "OR"});
}

void FindNested(const std::string &text, Piece &piece) {
	auto tokens = Read(text, piece);
	Outline outline(tokens);
	if (IsOursAfterWith(tokens, outline)) {
		piece.ours = true;
		return;
	}
	piece.prepares = Is(tokens, 0, {"PREPARE"});
	auto kept = piece.prepares ? KeptFrom(tokens) : tokens.size();
	if (kept < tokens.size() && IsOursFrom(tokens, kept)) {
		piece.places.push_back({tokens[kept].start, piece.stop});
		return;
	}
	bool inserts = Is(tokens, 0, {"INSERT"}) || Is(tokens, kept, {"INSERT"});
	int depth = 0;
	for (size_t place = 0; place < tokens.size(); place++) {
		bool bracketed = place && Is(tokens, place - 1, '(');
		bool bare = depth == 0 && place &&
		            (inserts || (Is(tokens, 0, {"CREATE", "PREPARE"}) && Is(tokens, place - 1, {"AS"})));
		auto closing = bracketed ? outline.closing[place - 1] : tokens.size();
		if ((bracketed || bare) && Begins(tokens, outline, place, closing)) {
			auto stop = closing < tokens.size() ? tokens[closing].start : piece.stop;
			piece.places.push_back({tokens[place].start, stop});
			if (closing == tokens.size()) {
				return;
			}
			depth--; // its closing bracket is passed over
			place = closing;
			continue;
		}
		depth += Deeper(tokens[place].token);
	}
}

} // namespace grouplearn
