#include "statements.hpp"

#include <algorithm>
#include <cstring>
#include <initializer_list>

namespace grouplearn {
namespace {

enum class TokenKind { WORD, QUOTED, SYMBOL, PARAMETER, OTHER };

struct Token {
	TokenKind kind;
	//! In upper case if it is a word, without quotes if it is quoted, one character if it is a symbol, a parameter's name.
	std::string text;
};

//! More than any statement needs to be told apart: EXPLAIN (option value, ...) CREATE OR REPLACE MODEL.
constexpr size_t HEAD = 24;

bool IsWordStart(unsigned char letter) {
	return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || letter == '_' || letter >= 0x80;
}

bool IsDigit(unsigned char letter) {
	return letter >= '0' && letter <= '9';
}

class Lexer {
public:
	explicit Lexer(const std::string &text) : text(text) {
	}

	size_t at = 0;
	size_t began = 0;

	//! Reads the next token; false at the end of the text.
	bool Next(Token &token) {
		SkipBlanks();
		began = at;
		if (at >= text.size()) {
			return false;
		}
		unsigned char letter = text[at];
		if (letter == '\'' || letter == '"' || letter == '`') {
			token = {letter == '\'' ? TokenKind::OTHER : TokenKind::QUOTED, Quoted(char(letter), false)};
		} else if (letter && strchr("eEnNxXbB", letter) && Peek(1) == '\'') {
			at++;
			token = {TokenKind::OTHER, Quoted('\'', letter == 'e' || letter == 'E')};
		} else if (letter == '$') {
			auto name = Dollar();
			token = {name.empty() ? TokenKind::OTHER : TokenKind::PARAMETER, name};
		} else if (letter == '?') {
			at++;
			token = {TokenKind::PARAMETER, Digits()};
		} else if (IsDigit(letter) || (letter == '.' && IsDigit(Peek(1)))) {
			at++;
			SkipWord();
			token = {TokenKind::OTHER, ""};
		} else if (IsWordStart(letter)) {
			SkipWord();
			token = {TokenKind::WORD, Upper(began)};
		} else {
			at++;
			token = {TokenKind::SYMBOL, std::string(1, char(letter))};
		}
		return true;
	}

private:
	unsigned char Peek(size_t ahead) const {
		return at + ahead < text.size() ? text[at + ahead] : 0;
	}

	void SkipBlanks() {
		while (at < text.size()) {
			if (strchr(" \t\n\v\f\r", text[at]) && text[at]) {
				at++;
			} else if (text[at] == '-' && Peek(1) == '-') {
				at = text.find_first_of("\r\n", at);
				at = at == std::string::npos ? text.size() : at;
			} else if (text[at] == '/' && Peek(1) == '*') {
				SkipComment();
			} else {
				return;
			}
		}
	}

	void SkipComment() {
		int depth = 0;
		do {
			if (text[at] == '/' && Peek(1) == '*') {
				depth++;
				at += 2;
			} else if (text[at] == '*' && Peek(1) == '/') {
				depth--;
				at += 2;
			} else {
				at++;
			}
		} while (depth && at < text.size());
	}

	void SkipWord() {
		while (at < text.size() && (IsWordStart(text[at]) || IsDigit(text[at]) || text[at] == '$')) {
			at++;
		}
	}

	std::string Upper(size_t from) const {
		auto word = text.substr(from, at - from);
		for (auto &letter : word) {
			letter = letter >= 'a' && letter <= 'z' ? char(letter - 32) : letter;
		}
		return word;
	}

	std::string Quoted(char quote, bool escapes) {
		std::string inside;
		for (at++; at < text.size(); at++) {
			if (escapes && text[at] == '\\') {
				at++;
			} else if (text[at] == quote) {
				if (char(Peek(1)) != quote) {
					at++;
					return inside;
				}
				at++;
			}
			inside += at < text.size() ? text[at] : '\0';
		}
		return inside;
	}

	std::string Digits() {
		auto from = at;
		while (at < text.size() && IsDigit(text[at])) {
			at++;
		}
		return text.substr(from, at - from);
	}

	//! ``$1`` or ``$name``, whose name is returned, or a text between ``$tag$`` and ``$tag$``.
	std::string Dollar() {
		auto from = ++at;
		if (IsDigit(Peek(0))) {
			return Digits();
		}
		while (at < text.size() && (IsWordStart(text[at]) || IsDigit(text[at]))) {
			at++;
		}
		if (Peek(0) != '$') {
			return text.substr(from, at - from);
		}
		auto tag = text.substr(from - 1, at + 2 - from);
		auto closing = text.find(tag, at + 1);
		at = closing == std::string::npos ? text.size() : closing + tag.size();
		return "";
	}

	const std::string &text;
};

class Head {
public:
	explicit Head(const std::vector<Token> &tokens, size_t first = 0) : tokens(tokens), first(first) {
	}

	bool IsOurs() const {
		return IsTrain() || Is(0, {"RETRY"}) ? IsTrain() || (Is(1, {"FAILED"}) && Is(2, {"MODEL"})) : IsOther();
	}

private:
	bool IsTrain() const {
		if (Is(0, {"TRAIN"})) {
			return !IsSymbol(1); // train(...), train.x or train + 1 can only be an expression
		}
		size_t name = AfterReplace();
		return Is(0, {"CREATE"}) && Is(name, {"MODEL"}) && !IsDotted(name + 1);
	}

	bool IsOther() const {
		if (Is(0, {"EXPLAIN"})) {
			return Head(tokens, first + Explained()).IsTrain();
		}
		if (Is(0, {"RESET"}) && Is(1, {"CALIBRATION"})) {
			return !IsDotted(2);
		}
		if (Is(0, {"SET", "RESET"})) {
			return IsSetting();
		}
		if (Is(0, {"SHOW"})) {
			return Is(1, {"MODELS", "LEARNERS", "RUNS"}) && !IsDotted(2);
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
		if (place >= Size() || tokens[first + place].kind != TokenKind::WORD) {
			return false;
		}
		for (auto word : words) {
			if (tokens[first + place].text == word) {
				return true;
			}
		}
		return false;
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

//! Adds a parameter that is not there yet; one without a name is called by its number.
void NoteParameter(const std::string &written, std::vector<std::string> &parameters) {
	auto name = written.empty() ? std::to_string(parameters.size() + 1) : written;
	if (std::find(parameters.begin(), parameters.end(), name) == parameters.end()) {
		parameters.push_back(name);
	}
}

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

std::vector<Piece> Split(const std::string &text) {
	std::vector<Piece> pieces;
	std::vector<Token> head;
	std::vector<std::string> parameters;
	Lexer lexer(text);
	Token token;
	int depth = 0;
	size_t begin = 0, start = 0;
	auto close = [&](size_t stop, size_t end) {
		pieces.push_back({begin, head.empty() ? stop : start, stop, end, Head(head).IsOurs(), head.empty(), parameters});
		begin = end;
		head.clear();
		parameters.clear();
	};
	while (lexer.Next(token)) {
		char symbol = token.kind == TokenKind::SYMBOL ? token.text[0] : '\0';
		if (symbol == ';' && depth == 0) {
			close(lexer.began, lexer.at);
			continue;
		}
		if (symbol == '(' || symbol == '[' || symbol == '{') {
			depth++;
		} else if ((symbol == ')' || symbol == ']' || symbol == '}') && depth > 0) {
			depth--;
		}
		if (head.empty()) {
			start = lexer.began;
		}
		if (head.size() < HEAD) {
			head.push_back(token);
		}
		if (token.kind == TokenKind::PARAMETER) {
			NoteParameter(token.text, parameters);
		}
	}
	if (begin < text.size()) {
		close(text.size(), text.size());
	}
	return pieces;
}

} // namespace grouplearn
