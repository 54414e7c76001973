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

bool IsAnywhere(const Tokens &tokens, size_t from, const char *word) {
	return std::any_of(tokens.begin() + from, tokens.end(), [word](const Placed &each) { return IsWord(each.token, {word}); });
}

//! The place after [OR REPLACE].
size_t AfterReplace(const Tokens &tokens, size_t place) {
	return Is(tokens, place, {"OR"}) && Is(tokens, place + 1, {"REPLACE"}) ? place + 2 : place;
}

//! The place after ``WITH name AS (...), ...``: of the first word outside brackets that stands after one. 0 if there is none.
size_t AfterCtes(const Tokens &tokens, size_t first) {
	if (!Is(tokens, first, {"WITH"})) {
		return 0;
	}
	int depth = 0;
	for (auto place = first + 1; place < tokens.size(); place++) {
		auto &token = tokens[place].token;
		depth += Deeper(token);
		bool closed = Is(tokens, place - 1, ')') && depth == 0;
		if (closed && token.kind == TokenKind::WORD && !IsWord(token, {"AS", "USING"})) {
			return place;
		}
	}
	return 0;
}

//! Whether it is ``[EXPLAIN] WITH ... TRAIN`` or ``WITH ... EVALUATE``.
bool IsOursAfterWith(const Tokens &tokens) {
	bool explained = Is(tokens, 0, {"EXPLAIN"});
	size_t first = 0;
	while (explained && first < tokens.size() && !Is(tokens, first, {"WITH"})) {
		first++;
	}
	auto after = AfterCtes(tokens, first);
	if (!after || !Is(tokens, AfterReplace(tokens, after + 1), {"MODEL"})) {
		return false;
	}
	return Is(tokens, after, {"TRAIN", "CREATE"}) || (!explained && Is(tokens, after, {"EVALUATE"}));
}

bool Begins(const Tokens &tokens, size_t place) {
	if (Is(tokens, place, {"SHOW"})) {
		bool ends = place + 2 == tokens.size() || Is(tokens, place + 2, ')');
		return ends && Is(tokens, place + 1, {"MODELS", "LEARNERS", "RUNS"});
	}
	if (Is(tokens, place, {"DESCRIBE", "DESC"})) {
		bool named = place + 2 < tokens.size() && (tokens[place + 2].token.kind == TokenKind::WORD ||
		                                           tokens[place + 2].token.kind == TokenKind::QUOTED);
		return named && Is(tokens, place + 1, {"MODEL", "LEARNER"});
	}
	if (auto after = AfterCtes(tokens, place)) {
		place = after;
	}
	if (Is(tokens, place, {"EVALUATE"})) {
		return Is(tokens, place + 1, {"MODEL"}) && IsAnywhere(tokens, place, "ON");
	}
	auto model = AfterReplace(tokens, place + 1);
	return Is(tokens, place, {"TRAIN", "CREATE"}) && Is(tokens, model, {"MODEL"}) && IsAnywhere(tokens, model, "USING");
}

//! The place of the bracket that closes the one before ``place``, or the end.
size_t Closing(const Tokens &tokens, size_t place) {
	int depth = 1;
	for (; place < tokens.size(); place++) {
		depth += Deeper(tokens[place].token);
		if (depth == 0) {
			break;
		}
	}
	return place;
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
	       IsWord(second, {"MODELS", "LEARNERS", "RUNS", "MODEL", "LEARNER", "OR"});
}

void FindNested(const std::string &text, Piece &piece) {
	auto tokens = Read(text, piece);
	if (IsOursAfterWith(tokens)) {
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
		if ((bracketed || bare) && Begins(tokens, place)) {
			auto closing = bracketed ? Closing(tokens, place) : tokens.size();
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
