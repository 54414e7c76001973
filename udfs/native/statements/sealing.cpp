#include "statements/sealing.hpp"

#include <cerrno>
#include <cstring>
#include <sys/random.h>

#include "private_layouts.hpp"

namespace grouplearn {
namespace {

struct Key {
	uint64_t halves[2];
};

const Key &TheKey() {
	static const Key key = [] {
		Key drawn;
		ssize_t got;
		do {
			got = getrandom(&drawn, sizeof(drawn), 0);
		} while (got < 0 && errno == EINTR);
		if (got != ssize_t(sizeof(drawn))) {
			throw Failure {"IO", std::string("grouplearn: getrandom: ") + strerror(errno)};
		}
		return drawn;
	}();
	return key;
}

uint64_t Rotated(uint64_t word, int bits) {
	return word << bits | word >> (64 - bits);
}

//! SipHash-2-4, https://www.aumasson.jp/siphash/siphash.pdf.
class SipHash {
public:
	explicit SipHash(const Key &key)
	    : a(key.halves[0] ^ 0x736f6d6570736575), b(key.halves[1] ^ 0x646f72616e646f6d),
	      c(key.halves[0] ^ 0x6c7967656e657261), d(key.halves[1] ^ 0x7465646279746573) {
	}

	uint64_t Of(const std::string &text) {
		size_t at = 0;
		for (; at + 8 <= text.size(); at += 8) {
			uint64_t word;
			std::memcpy(&word, text.data() + at, 8);
			Take(word);
		}
		uint64_t last = uint64_t(text.size()) << 56;
		std::memcpy(&last, text.data() + at, text.size() - at);
		Take(last);
		c ^= 0xff;
		for (int round = 0; round < 4; round++) {
			Mix();
		}
		return a ^ b ^ c ^ d;
	}

private:
	void Take(uint64_t word) {
		d ^= word;
		Mix();
		Mix();
		a ^= word;
	}

	void Mix() {
		a += b, b = Rotated(b, 13) ^ a, a = Rotated(a, 32);
		c += d, d = Rotated(d, 16) ^ c;
		a += d, d = Rotated(d, 21) ^ a;
		c += b, b = Rotated(b, 17) ^ c, c = Rotated(c, 32);
	}

	uint64_t a, b, c, d;
};

} // namespace

uint64_t Seal(const std::string &text) {
	return SipHash(TheKey()).Of(text);
}

void CheckSeal(duckdb::ClientContext &user, uint64_t seal, const std::string &call) {
	auto running = layouts::RunningText(user);
	if (seal != Seal(call) || !running || running->find(std::to_string(seal)) == std::string::npos) {
		throw Failure {"Invalid Input", "this function is for statements of grouplearn's, which call it themselves: it cannot be "
		                                "called by name, nor from a view, a macro or a default\n\n"
		                                "Hint: Run the statement by itself."};
	}
}

} // namespace grouplearn
