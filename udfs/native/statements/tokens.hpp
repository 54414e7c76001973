// Cuts a text into tokens where DuckDB does; grouplearn/parser/lexer/tokens.py does the same.
#pragma once
#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <string>
#include <unordered_set>
#include <vector>

namespace grouplearn {

enum class TokenKind { WORD, QUOTED, SYMBOL, PARAMETER, OTHER };

struct Token {
	TokenKind kind;
	//! In upper case if it is a word, without quotes if it is quoted, one character if it is a symbol, a parameter's name.
	std::string text;
};

inline bool IsWordStart(unsigned char letter) {
	return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || letter == '_' || letter >= 0x80;
}

inline bool IsDigit(unsigned char letter) {
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

//! Whether a token is one of these words, which are in upper case.
inline bool IsWord(const Token &token, std::initializer_list<const char *> words) {
	return token.kind == TokenKind::WORD &&
	       std::any_of(words.begin(), words.end(), [&token](const char *word) { return token.text == word; });
}

inline bool IsSymbol(const Token &token, char symbol) {
	return token.kind == TokenKind::SYMBOL && token.text[0] == symbol;
}

//! How much deeper in brackets a text is after the token.
inline int Deeper(const Token &token) {
	if (token.kind != TokenKind::SYMBOL) {
		return 0;
	}
	return (strchr("([{", token.text[0]) != nullptr) - (strchr(")]}", token.text[0]) != nullptr);
}

//! The names of a statement's parameters, without repeats.
class Parameters {
public:
	//! Adds a parameter and returns its name; one without a name is called by its number.
	std::string Note(const std::string &written) {
		auto name = written.empty() ? std::to_string(names.size() + 1) : written;
		if (known.insert(name).second) {
			names.push_back(name);
		}
		return name;
	}

	std::vector<std::string> names;

private:
	std::unordered_set<std::string> known;
};

} // namespace grouplearn
