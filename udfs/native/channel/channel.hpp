// How the extension talks to the grouplearn process: framed messages on a socket, one socket per statement.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace grouplearn {

//! What both sides must agree on: what frames there are, and what is in them. It is raised with every change of that, here and in
//! grouplearn/frontends/native/frames.py; a frame's head, GREETING and FAILED stay what they are.
constexpr uint64_t PROTOCOL = 8;

//! What a frame holds: grouplearn/frontends/native/frames.py has the same numbers.
enum class Kind : uint32_t {
	// from the database to the process
	STATEMENT = 1,
	PREDICT = 2,
	SCHEMA = 3,
	BATCH = 4,
	END = 5,
	ERROR = 6,
	VERSION = 7,
	SETTLE = 8,
	// from the process to the database
	QUERY = 10,
	APPEND = 11,
	OPEN = 12,
	CLOSE = 13,
	ANSWER = 14,
	FAILED = 15,
	PREDICTED = 17,
	// both ways, before all else: the protocol. Of a process from before there was one this number is a request, which it refuses
	// for being so short, with FAILED.
	GREETING = 16,
};

struct Frame {
	Kind kind;
	std::string body;
};

//! An error for the user: ``type`` is DuckDB's name of it ("Binder", "Invalid Input" ...).
struct Failure {
	std::string type;
	std::string message;
};

//! Numbers and texts appended to and taken from the body of a frame, in this machine's byte order.
class Writer {
public:
	std::string bytes;

	template <class T>
	Writer &Number(T value) {
		bytes.append(reinterpret_cast<const char *>(&value), sizeof(T));
		return *this;
	}
	Writer &Text(const std::string &text) {
		Number<uint64_t>(text.size());
		bytes += text;
		return *this;
	}
};

class Reader {
public:
	explicit Reader(const std::string &bytes) : at(bytes.data()), end(bytes.data() + bytes.size()) {
	}
	template <class T>
	T Number() {
		T value;
		__builtin_memcpy(&value, Take(sizeof(T)), sizeof(T));
		return value;
	}
	std::string Text() {
		auto size = Number<uint64_t>();
		return std::string(Take(size), size);
	}
	size_t Left() const {
		return size_t(end - at);
	}
	std::string Rest() {
		size_t size = end - at;
		return std::string(Take(size), size);
	}
	const char *Take(size_t size) {
		if (size > size_t(end - at)) {
			throw Failure {"IO", "grouplearn: a message is shorter than it says"};
		}
		auto taken = at;
		at += size;
		return taken;
	}

private:
	const char *at;
	const char *end;
};

//! One statement's line to the grouplearn process, which is started where it is not running. All calls throw Failure.
class Channel {
public:
	//! ``is_interrupted`` is asked every few hundredths of a second while the process is waited for; it is told of it.
	explicit Channel(std::function<bool()> is_interrupted);
	~Channel();
	Channel(const Channel &) = delete;

	void Send(Kind kind, const std::string &body);
	Frame Receive();

private:
	void Open();
	void Greet();
	void Read(void *into, size_t size);
	void Wait(short events);
	void PassOn();
	[[noreturn]] void Died();

	std::function<bool()> is_interrupted;
	int fd = -1;
	uint64_t id = 0;
	//! When the process was first told of an interrupt, in seconds; 0 before.
	double told = 0;
};

//! Lets the process, if one runs, forget what it keeps for a database instance.
void Forget(uint64_t instance);

//! Whether the program that the database runs in was asked to stop, where that is Python. On its main thread it is asked: its
//! handlers of signals run between two steps of Python code, and there are none while it waits for us. On a thread of the
//! database's the signal itself is listened to.
bool IsHostInterrupted();

//! Listens to SIGINT on this thread while it works for us, if it is one of the database's and not of Python's: Python's client
//! hears the signal on its own thread, where it cancels the query and then waits for this one without a word.
class HostSignals {
public:
	HostSignals();
	~HostSignals();
	HostSignals(const HostSignals &) = delete;
	bool Heard() const;

private:
	uint64_t first;
};

//! Whether the program that the database runs in is Python.
bool IsHostPython();

//! Notes the python that the database runs in, where it is one. It needs Python's lock, which must not be waited for while
//! one of ours is held.
void NoteHostPython();

//! Notes where this extension was loaded from, while the current directory is what it was then.
void NoteOwnFile();

//! Where ``python -m grouplearn.frontends.native.worker`` can be run, by its whole path: nothing in the current directory is.
//! Throws Failure.
std::string FindPython();

//! The environment of the process, without folders of PYTHONPATH that are meant from the current directory.
std::vector<std::string> ProcessEnvironment();

} // namespace grouplearn
