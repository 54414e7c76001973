// The grouplearn process of this host process: started when a statement needs it, told about each by an own socket.
#include "channel/channel.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <mutex>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace grouplearn {
namespace {

constexpr int POLL_MS = 50;
//! How long an interrupted statement may take to end before it is left to itself.
constexpr double PATIENCE_S = 1.5;
constexpr uint64_t OPENED = 1, INTERRUPTED = 2, FORGOTTEN = 3;
//! No frame is larger, and room is made for a part of it at a time, so that a wrong head costs no memory.
constexpr uint64_t LARGEST_FRAME = uint64_t(1) << 40, PART = 1 << 26;

//! The process, and the socket on which it is handed new channels. When the last copy of our end closes, it ends.
struct Process {
	std::mutex lock;
	int control = -1;
	pid_t pid = 0;
	//! Who started it: a fork of the host must not talk to its parent's process.
	pid_t owner = 0;
	uint64_t channels = 0;
	std::string python;
	//! Whether it has greeted us: a python without the package ends at once.
	std::atomic<bool> greeted {false};
};

double Now() {
	timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
}

Process &TheProcess() {
	static auto process = new Process(); // never destroyed: statements may run until the very end
	return *process;
}

void Drop(Process &process) {
	if (process.control >= 0) {
		close(process.control);
	}
	if (process.pid > 0 && process.owner == getpid()) {
		kill(process.pid, SIGKILL);
		waitpid(process.pid, nullptr, 0);
	}
	process.control = -1;
	process.pid = 0;
}

void Start(Process &process) {
	auto python = FindPython();
	auto environment = ProcessEnvironment();
	int ends[2];
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) {
		throw Failure {"IO", std::string("grouplearn: socketpair: ") + strerror(errno)};
	}
	posix_spawn_file_actions_t actions;
	posix_spawn_file_actions_init(&actions);
	// The process keeps our stderr, for its progress bar; nothing it prints may mix with the results on our stdout.
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, 2, 1);
	posix_spawn_file_actions_adddup2(&actions, ends[1], 3);
	// The terminal's Ctrl-C is for us alone, and a Python that is only starting would die of it: it unblocks the signal
	// when it ignores it. What our thread has blocked is not for it.
	posix_spawnattr_t attributes;
	posix_spawnattr_init(&attributes);
	sigset_t blocked;
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGINT);
	posix_spawnattr_setsigmask(&attributes, &blocked);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
	const char *arguments[] = {python.c_str(), "-P", "-m", "grouplearn.frontends.native.worker", "3", nullptr};
	std::vector<char *> variables;
	for (auto &variable : environment) {
		variables.push_back(&variable[0]);
	}
	variables.push_back(nullptr);
	int failed = posix_spawn(&process.pid, python.c_str(), &actions, &attributes, const_cast<char **>(arguments), variables.data());
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	close(ends[1]);
	if (failed) {
		close(ends[0]);
		throw Failure {"IO", "grouplearn: cannot start " + python + ": " + strerror(failed) +
		                         "\n\nHint: set GROUPLEARN_PYTHON to the python that has the package grouplearn."};
	}
	process.python = python;
	process.greeted = false;
	process.control = ends[0];
	process.owner = getpid();
}

//! Sends a control message about a channel or an instance, with a socket if ``handed`` is one; false where the process is gone.
bool Tell(Process &process, uint64_t what, uint64_t number, int handed) {
	uint64_t words[2] = {what, number};
	iovec data = {words, sizeof(words)};
	alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
	msghdr message = {};
	message.msg_iov = &data;
	message.msg_iovlen = 1;
	if (handed >= 0) {
		message.msg_control = room;
		message.msg_controllen = sizeof(room);
		auto header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(header), &handed, sizeof(int));
	}
	ssize_t sent;
	do {
		sent = sendmsg(process.control, &message, MSG_NOSIGNAL);
	} while (sent < 0 && errno == EINTR);
	return sent == ssize_t(sizeof(words));
}

bool HasEnded(Process &process) {
	if (process.control < 0 || process.owner != getpid()) {
		return true;
	}
	if (waitpid(process.pid, nullptr, WNOHANG) == 0) {
		return false;
	}
	process.pid = 0; // the number may be another process's from now on
	return true;
}

} // namespace

Channel::Channel(std::function<bool()> is_interrupted) : is_interrupted(std::move(is_interrupted)) {
	Open();
	try {
		Greet();
	} catch (...) {
		close(fd);
		throw;
	}
}

void Channel::Open() {
	auto &process = TheProcess();
	std::lock_guard<std::mutex> guard(process.lock);
	int ends[2];
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) {
		throw Failure {"IO", std::string("grouplearn: socketpair: ") + strerror(errno)};
	}
	id = ++process.channels;
	try {
		if (HasEnded(process) || !Tell(process, OPENED, id, ends[1])) {
			Drop(process);
			Start(process);
			Tell(process, OPENED, id, ends[1]);
		}
	} catch (...) {
		close(ends[0]);
		close(ends[1]);
		throw;
	}
	close(ends[1]);
	fd = ends[0];
}

Channel::~Channel() {
	close(fd);
}

//! Asks a new process which protocol it speaks. The package may have been renewed and the extension not, or the other way round.
void Channel::Greet() {
	auto &process = TheProcess();
	if (process.greeted) {
		return;
	}
	Send(Kind::GREETING, Writer().Number(PROTOCOL).bytes);
	auto reply = Receive();
	Reader greeting(reply.body);
	uint64_t theirs = reply.kind == Kind::GREETING ? greeting.Number<uint64_t>() : 0;
	if (theirs == PROTOCOL) {
		process.greeted = true;
		return;
	}
	auto version = theirs ? " " + greeting.Text() : std::string();
	std::lock_guard<std::mutex> guard(process.lock);
	auto python = process.python;
	Drop(process); // what is installed now is asked anew
	throw Failure {"IO", "this build of the extension is of grouplearn " GROUPLEARN_VERSION ", and the grouplearn" + version +
	                         " of " + python + (theirs > PROTOCOL ? " is newer" : " is older") +
	                         ": they do not understand each other\n\n"
	                         "Hint: Upgrade the older: pip install --upgrade grouplearn, or build the extension again (make "
	                         "extension) and start the program that has loaded it anew."};
}

void Channel::Died() {
	auto &process = TheProcess();
	std::lock_guard<std::mutex> guard(process.lock);
	if (!process.greeted) {
		throw Failure {"IO", process.python + " cannot run grouplearn\n\n"
		                     "Hint: set GROUPLEARN_PYTHON to the python that has the package grouplearn."};
	}
	throw Failure {"IO", "the grouplearn process ended, and what the statement did is undone\n\n"
	                     "Hint: the next statement starts a new one."};
}

void Channel::Send(Kind kind, const std::string &body) {
	uint64_t header[2] = {uint64_t(kind), body.size()};
	const char *parts[2] = {reinterpret_cast<const char *>(header), body.data()};
	size_t sizes[2] = {sizeof(header), body.size()};
	for (int part = 0; part < 2; part++) {
		while (sizes[part]) {
			auto sent = send(fd, parts[part], sizes[part], MSG_NOSIGNAL | MSG_DONTWAIT);
			if (sent < 0 && errno == EINTR) {
				continue;
			}
			if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
				Wait(POLLOUT);
				continue;
			}
			if (sent <= 0) {
				Died();
			}
			parts[part] += sent;
			sizes[part] -= sent;
		}
	}
}

Frame Channel::Receive() {
	uint64_t header[2];
	Read(header, sizeof(header));
	if (header[0] > UINT32_MAX || header[1] > LARGEST_FRAME) {
		throw Failure {"IO", "grouplearn: a message that is not understood"};
	}
	Frame frame {Kind(uint32_t(header[0])), ""};
	for (size_t got = 0; got < header[1]; got = frame.body.size()) {
		frame.body.resize(std::min<uint64_t>(header[1], got + std::max<uint64_t>(PART, got)));
		Read(&frame.body[got], frame.body.size() - got);
	}
	return frame;
}

void Channel::Read(void *into, size_t size) {
	auto at = static_cast<char *>(into);
	while (size) {
		Wait(POLLIN);
		auto got = recv(fd, at, size, 0);
		if (got < 0 && errno == EINTR) {
			continue;
		}
		if (got <= 0) {
			Died();
		}
		at += got;
		size -= got;
	}
}

void Channel::Wait(short events) {
	pollfd waited = {fd, events, 0};
	while (poll(&waited, 1, POLL_MS) <= 0) {
		if (told || is_interrupted()) {
			PassOn();
		}
	}
}

//! Tells the process again and again: the first time it may not have begun yet what it is to stop.
void Channel::PassOn() {
	told = told ? told : Now();
	if (Now() - told > PATIENCE_S) {
		throw Failure {"INTERRUPT", "Interrupted!"};
	}
	auto &process = TheProcess();
	std::lock_guard<std::mutex> guard(process.lock);
	Tell(process, INTERRUPTED, id, -1);
}

void Forget(uint64_t instance) {
	auto &process = TheProcess();
	std::lock_guard<std::mutex> guard(process.lock);
	if (!HasEnded(process)) {
		Tell(process, FORGOTTEN, instance, -1);
	}
}

} // namespace grouplearn
