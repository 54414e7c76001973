#include "statements/statements.hpp"

#include "statements/nested.hpp"
#include "statements/tokens.hpp"

namespace grouplearn {
namespace {

//! More than any statement needs to be told apart: EXPLAIN (option value, ...) CREATE OR REPLACE MODEL.
constexpr size_t HEAD = 24;

//! The first two words of our statements; grouplearn/parser/misspelt.py has them all.
constexpr const char *STATEMENTS[][2] = {
    {"TRAIN", "MODEL"},    {"CREATE", "MODEL"},     {"SHOW", "MODELS"},      {"SHOW", "LEARNERS"}, {"SHOW", "RUNS"}, {"SHOW", "FUNCTIONS"},
    {"DESCRIBE", "MODEL"}, {"DESCRIBE", "LEARNER"}, {"DESC", "MODEL"},       {"DESC", "LEARNER"},  {"DROP", "MODEL"},
    {"DROP", "RUN"},       {"ALTER", "MODEL"},      {"EVALUATE", "MODEL"},   {"RESUME", "MODEL"},  {"RETRY", "FAILED"},  {"REFRESH", "MODEL"},
    {"EXPORT", "MODEL"},   {"IMPORT", "MODEL"},     {"CALIBRATE", "LEARNER"}, {"RESET", "CALIBRATION"},
};

//! Whether at most one letter is missing, added or replaced, or two neighbours are swapped.
bool HasOneSlip(const std::string &word, const std::string &meant) {
	size_t same = 0;
	while (same < word.size() && same < meant.size() && word[same] == meant[same]) {
		same++;
	}
	auto rest = word.substr(same), wanted = meant.substr(same);
	auto without_first = [](const std::string &text) { return text.empty() ? text : text.substr(1); };
	bool swapped = rest.size() > 1 && wanted.size() > 1 && rest[0] == wanted[1] && rest[1] == wanted[0] &&
	               rest.substr(2) == wanted.substr(2);
	return without_first(rest) == without_first(wanted) || without_first(rest) == wanted ||
	       rest == without_first(wanted) || swapped;
}

class Head {
public:
	explicit Head(const std::vector<Token> &tokens, size_t first = 0) : tokens(tokens), first(first) {
	}

	bool IsOurs() const {
		return IsTrain() || Is(0, {"RETRY"}) ? IsTrain() || (Is(1, {"FAILED"}) && Is(2, {"MODEL"})) : IsOther();
	}

	//! Whether it is no statement of ours and near to one, as grouplearn/parser/misspelt.py judges it.
	bool IsMisspelt() const {
		if (Is(0, {"EXPLAIN"})) {
			return Head(tokens, first + Explained()).IsNear();
		}
		return !IsOurs() && IsNear();
	}

private:
	bool IsNear() const {
		if (Is(0, {"PREDICT"}) && Is(1, {"MODEL"})) {
			return true;
		}
		size_t subject = AfterReplace();
		for (auto &words : STATEMENTS) {
			if (!IsNear(words[0], subject, words[1])) {
				continue;
			}
			bool as_ours = Is(0, {words[0]}) && Is(subject, {words[1]});
			return !as_ours || (Is(0, {"RETRY"}) && !Is(subject + 1, {"MODEL"}));
		}
		return false;
	}

	bool IsNear(const char *verb, size_t subject, const char *name) const {
		if (Is(0, {verb}) && Is(0, {"EVALUATE", "RESUME", "RETRY"})) {
			return subject >= Size() || IsName(subject);
		}
		return HasOneSlip(Word(0), verb) && HasOneSlip(Word(subject), name);
	}

	std::string Word(size_t place) const {
		return place < Size() && tokens[first + place].kind == TokenKind::WORD ? tokens[first + place].text : "";
	}

	bool IsName(size_t place) const {
		auto kind = tokens[first + place].kind;
		return kind == TokenKind::WORD || kind == TokenKind::QUOTED;
	}

	bool IsTrain() const {
		if (Is(0, {"TRAIN"})) {
			return !IsSymbol(1); // train(...), train.x or train + 1 can only be an expression
		}
		size_t name = AfterReplace();
		return Is(0, {"CREATE"}) && Is(name, {"MODEL"}) && !IsDotted(name + 1);
	}

	bool IsOther() const {
		if (Is(0, {"EXPLAIN"})) {
			Head statement(tokens, first + Explained());
			return statement.IsTrain() || (statement.Is(0, {"REFRESH"}) && statement.IsOther());
		}
		if (Is(0, {"RESET"}) && Is(1, {"CALIBRATION"})) {
			return !IsDotted(2);
		}
		if (Is(0, {"SET", "RESET"})) {
			return IsSetting();
		}
		if (Is(0, {"SHOW"})) {
			bool functions = Is(1, {"FUNCTIONS"}) && Is(2, {"OF"});
			return functions || (Is(1, {"MODELS", "LEARNERS", "RUNS"}) && !IsDotted(2));
		}
		if (Is(0, {"DESCRIBE", "DESC"})) {
			return Is(1, {"MODEL", "LEARNER"}) && Size() > 2 && !IsDotted(2);
		}
		if (Is(0, {"CALIBRATE"})) {
			return !IsSymbol(1);
		}
		size_t name = AfterReplace();
		bool model = Is(0, {"DROP", "ALTER", "EVALUATE", "RESUME", "REFRESH", "EXPORT", "IMPORT"}) && Is(name, {"MODEL"});
		return (model || (Is(0, {"DROP"}) && Is(name, {"RUN"}))) && !IsDotted(name + 1);
	}

	size_t Size() const {
		return tokens.size() - first;
	}

	bool Is(size_t place, std::initializer_list<const char *> words) const {
		return place < Size() && IsWord(tokens[first + place], words);
	}

	bool IsSymbol(size_t place) const {
		return place < Size() && tokens[first + place].kind == TokenKind::SYMBOL;
	}

	bool IsDotted(size_t place) const {
		return IsSymbol(place) && (tokens[first + place].text == "." || tokens[first + place].text == "(");
	}

	size_t AfterReplace() const {
		return Is(1, {"OR"}) && Is(2, {"REPLACE"}) ? 3 : 1;
	}

	//! The place after EXPLAIN [ANALYZE] [(...)].
	size_t Explained() const {
		size_t place = Is(1, {"ANALYZE", "ANALYSE"}) ? 2 : 1;
		if (!IsSymbol(place) || tokens[first + place].text != "(") {
			return place;
		}
		for (; place < Size(); place++) {
			if (IsSymbol(place) && tokens[first + place].text == ")") {
				return place + 1;
			}
		}
		return Size();
	}

	bool IsSetting() const {
		size_t place = Size() > 2 && Is(1, {"SESSION", "LOCAL", "GLOBAL"}) ? 2 : 1;
		if (place >= Size()) {
			return false;
		}
		auto &token = tokens[first + place];
		bool name = token.kind == TokenKind::WORD || token.kind == TokenKind::QUOTED;
		return name && strncasecmp(token.text.c_str(), "grouplearn_", 11) == 0;
	}

	const std::vector<Token> &tokens;
	size_t first;
};

} // namespace

bool MayHaveOurs(const std::string &text) {
	static const char *words[] = {"train", "model", "learner", "calibrat", "run", "grouplearn_"};
	for (auto at = text.c_str(); *at; at++) {
		switch (*at | 0x20) { // in lower case, if it is a letter
		case 't':
		case 'm':
		case 'l':
		case 'c':
		case 'r':
		case 'g':
			for (auto word : words) {
				if (strncasecmp(at, word, strlen(word)) == 0) {
					return true;
				}
			}
		}
	}
	return false;
}

bool BeginsOurs(const std::vector<Token> &tokens, size_t first) {
	return Head(tokens, first).IsOurs();
}

std::vector<Piece> Split(const std::string &text) {
	std::vector<Piece> pieces;
	std::vector<Token> head;
	Parameters parameters;
	Lexer lexer(text);
	Token token;
	int depth = 0;
	size_t begin = 0, start = 0;
	bool may_nest = false, has_for = false, has_using = false;
	Token before {TokenKind::OTHER, ""};
	auto close = [&](size_t stop, size_t end) {
		Piece piece {begin, head.empty() ? stop : start, stop, end, Head(head).IsOurs(), head.empty(), parameters.names, {}};
		// TRAIN MODEL m PREDICT t.y FOR t
		bool trains = head.size() > 1 && IsWord(head[0], {"TRAIN"}) && IsWord(head[1], {"MODEL"});
		bool of_others = trains && has_for && !has_using;
		piece.ours &= !of_others;
		piece.misspelt = of_others || (!piece.ours && Head(head).IsMisspelt());
		bool prepares = !head.empty() && IsWord(head[0], {"PREPARE"});
		if ((may_nest || prepares) && !piece.ours) {
			FindNested(text, piece);
		}
		pieces.push_back(std::move(piece));
		begin = end;
		may_nest = has_for = has_using = false;
		head.clear();
		parameters = Parameters();
	};
	while (lexer.Next(token)) {
		if (IsSymbol(token, ';') && depth == 0) {
			close(lexer.began, lexer.at);
			continue;
		}
		depth = std::max(0, depth + Deeper(token));
		has_for |= depth == 0 && IsWord(token, {"FOR"});
		has_using |= depth == 0 && IsWord(token, {"USING"});
		if (head.empty()) {
			start = lexer.began;
		} else {
			may_nest |= MayBegin(before, token);
		}
		if (head.size() < HEAD) {
			head.push_back(token);
		}
		if (token.kind == TokenKind::PARAMETER) {
			parameters.Note(token.text);
		}
		before = token;
	}
	if (begin < text.size()) {
		close(text.size(), text.size());
	}
	return pieces;
}

} // namespace grouplearn
