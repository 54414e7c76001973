// The Python that the database runs in, its signals, and which python runs the grouplearn process.
#include <atomic>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fstream>
#include <mutex>
#include <sstream>
#include <string>
#include <unistd.h>

#include "channel/channel.hpp"

extern "C" char **environ;

namespace grouplearn {
namespace {

//! The functions of Python's C API that are used, where the database runs inside of Python.
struct Python {
	int (*is_initialized)();
	int (*ensure)();
	void (*release)(int);
	void *(*get)(const char *);
	const char *(*utf8)(void *);
	int (*check_signals)();
	void (*clear)();
	void (*set_interrupt)();
	void *(*this_thread)();
};

template <class T>
bool Find(T &function, const char *name) {
	function = reinterpret_cast<T>(dlsym(RTLD_DEFAULT, name));
	return function != nullptr;
}

const Python *HostPython() {
	static Python python;
	static bool found = Find(python.is_initialized, "Py_IsInitialized") && Find(python.ensure, "PyGILState_Ensure") &&
	                    Find(python.release, "PyGILState_Release") && Find(python.get, "PySys_GetObject") &&
	                    Find(python.utf8, "PyUnicode_AsUTF8") && Find(python.check_signals, "PyErr_CheckSignals") &&
	                    Find(python.clear, "PyErr_Clear") && Find(python.set_interrupt, "PyErr_SetInterrupt") &&
	                    Find(python.this_thread, "PyGILState_GetThisThreadState");
	return found && python.is_initialized() ? &python : nullptr;
}

bool IsAbsolute(const std::string &path) {
	return !path.empty() && path[0] == '/';
}

bool IsProgram(const std::string &path) {
	return IsAbsolute(path) && access(path.c_str(), X_OK) == 0;
}

//! sys.executable, where the database runs inside of Python.
struct Host {
	std::mutex lock;
	std::string executable;
};

Host &TheHost() {
	static auto host = new Host();
	return *host;
}

std::string HostExecutable() {
	auto &host = TheHost();
	std::lock_guard<std::mutex> guard(host.lock);
	return IsProgram(host.executable) ? host.executable : "";
}

//! The file that this extension was loaded from, by its whole path: the current directory may be another one later.
const std::string &OwnFile() {
	static const std::string file = [] {
		Dl_info self;
		bool found = dladdr(reinterpret_cast<void *>(&HostPython), &self) && self.dli_fname;
		std::string path = found ? self.dli_fname : "";
		char folder[PATH_MAX];
		return IsAbsolute(path) || !getcwd(folder, sizeof(folder)) ? path : folder + ("/" + path);
	}();
	return file;
}

//! The program of that name in one of the folders of PATH; those that are meant from the current directory do not count.
std::string OnPath(const std::string &name) {
	auto path = getenv("PATH");
	std::istringstream folders(path ? path : "");
	for (std::string folder; std::getline(folders, folder, ':');) {
		if (IsProgram(folder + "/" + name)) {
			return folder + "/" + name;
		}
	}
	return "";
}

//! The python that "grouplearn duckdb --install" wrote beside this extension.
std::string InstalledExecutable() {
	auto &own = OwnFile();
	std::ifstream file(own.substr(0, own.rfind('/') + 1) + "grouplearn.python");
	std::string python;
	std::getline(file, python);
	return IsProgram(python) ? python : "";
}

//! The python of the environment that this extension is installed in: lib/python3.x/site-packages/... -> bin/python3.
std::string NeighbouringExecutable() {
	auto &file = OwnFile();
	auto library = file.rfind("/lib/python3.");
	auto python = library == std::string::npos ? "" : file.substr(0, library) + "/bin/python3";
	return IsProgram(python) ? python : "";
}

} // namespace

bool IsHostPython() {
	return HostPython() != nullptr;
}

void NoteHostPython() {
	auto python = HostPython();
	if (!python) {
		return;
	}
	auto state = python->ensure();
	auto executable = python->get("executable");
	auto text = executable ? python->utf8(executable) : nullptr;
	std::string found = text ? text : "";
	python->release(state);
	auto &host = TheHost();
	std::lock_guard<std::mutex> guard(host.lock);
	host.executable = found;
}

namespace {

//! SIGINTs that came while threads of the database's worked for Python, and what handles them besides.
struct Signals {
	std::mutex lock;
	int listeners = 0;
	struct sigaction before = {};
};

Signals &TheSignals() {
	static auto signals = new Signals();
	return *signals;
}

std::atomic<uint64_t> heard {0};
static_assert(std::atomic<uint64_t>::is_always_lock_free, "a handler of signals must not wait");
thread_local const HostSignals *listener = nullptr;

void Hear(int number, siginfo_t *information, void *context) {
	heard++;
	auto &before = TheSignals().before;
	if (before.sa_flags & SA_SIGINFO) {
		before.sa_sigaction(number, information, context);
	} else {
		before.sa_handler(number);
	}
}

bool Hears(const struct sigaction &action) {
	return (action.sa_flags & SA_SIGINFO) && action.sa_sigaction == Hear;
}

bool IsHandled(const struct sigaction &action) {
	return (action.sa_flags & SA_SIGINFO) || (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
}

} // namespace

HostSignals::HostSignals() : first(heard) {
	auto python = listener || getpid() == gettid() ? nullptr : HostPython();
	if (!python || python->this_thread()) {
		return;
	}
	auto &signals = TheSignals();
	std::lock_guard<std::mutex> guard(signals.lock);
	struct sigaction now;
	sigaction(SIGINT, nullptr, &now);
	if (!Hears(now)) {
		if (!IsHandled(now)) {
			return;
		}
		signals.before = now;
		now.sa_sigaction = Hear;
		now.sa_flags |= SA_SIGINFO;
		sigaction(SIGINT, &now, nullptr);
	}
	signals.listeners++;
	listener = this;
}

HostSignals::~HostSignals() {
	if (listener != this) {
		return;
	}
	listener = nullptr;
	auto &signals = TheSignals();
	std::lock_guard<std::mutex> guard(signals.lock);
	struct sigaction now;
	sigaction(SIGINT, nullptr, &now);
	if (!--signals.listeners && Hears(now)) {
		sigaction(SIGINT, &signals.before, nullptr);
	}
}

bool HostSignals::Heard() const {
	return heard != first;
}

bool IsHostInterrupted() {
	if (listener) {
		return listener->Heard();
	}
	auto python = getpid() == gettid() ? HostPython() : nullptr;
	if (!python) {
		return false;
	}
	auto state = python->ensure();
	bool asked = python->check_signals() != 0;
	if (asked) {
		// The exception cannot be thrown from here: the signal is raised again for the code that waits for the database.
		python->clear();
		python->set_interrupt();
	}
	python->release(state);
	return asked;
}

void NoteOwnFile() {
	OwnFile();
}

std::string FindPython() {
	auto given = getenv("GROUPLEARN_PYTHON");
	if (given && *given) {
		std::string python = strchr(given, '/') ? given : OnPath(given);
		if (!IsAbsolute(python)) {
			throw Failure {"IO", "GROUPLEARN_PYTHON is " + std::string(given) +
			                         ", which is neither a whole path nor the name of a program on the PATH\n\n"
			                         "Hint: Set it to the whole path of the python that has the package grouplearn."};
		}
		return python;
	}
	for (auto find : {NeighbouringExecutable, InstalledExecutable, HostExecutable}) {
		auto found = find();
		if (!found.empty()) {
			return found;
		}
	}
	auto found = OnPath("python3");
	if (found.empty()) {
		throw Failure {"IO", "there is no python3 on the PATH\n\n"
		                     "Hint: set GROUPLEARN_PYTHON to the python that has the package grouplearn."};
	}
	return found;
}

std::vector<std::string> ProcessEnvironment() {
	const std::string path = "PYTHONPATH=";
	std::vector<std::string> kept;
	for (auto each = environ; *each; each++) {
		std::string variable = *each;
		if (variable.compare(0, path.size(), path) == 0) {
			std::istringstream folders(variable.substr(path.size()));
			variable = path;
			for (std::string folder; std::getline(folders, folder, ':');) {
				if (IsAbsolute(folder)) {
					variable += (variable == path ? "" : ":") + folder;
				}
			}
		}
		if (variable != path) {
			kept.push_back(variable);
		}
	}
	return kept;
}

} // namespace grouplearn
