// Which python runs the grouplearn process.
#include <cstdlib>
#include <dlfcn.h>
#include <string>
#include <unistd.h>

#include "channel.hpp"

namespace grouplearn {
namespace {

//! sys.executable, where the database runs inside of Python.
std::string HostPython() {
	using Object = void *;
	auto is_initialized = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "Py_IsInitialized"));
	auto ensure = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "PyGILState_Ensure"));
	auto release = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "PyGILState_Release"));
	auto get = reinterpret_cast<Object (*)(const char *)>(dlsym(RTLD_DEFAULT, "PySys_GetObject"));
	auto utf8 = reinterpret_cast<const char *(*)(Object)>(dlsym(RTLD_DEFAULT, "PyUnicode_AsUTF8"));
	if (!is_initialized || !ensure || !release || !get || !utf8 || !is_initialized()) {
		return "";
	}
	auto state = ensure();
	auto executable = get("executable");
	auto text = executable ? utf8(executable) : nullptr;
	std::string found = text ? text : "";
	release(state);
	return found;
}

//! The python of the environment that this extension is installed in: lib/python3.x/site-packages/... -> bin/python.
std::string NeighbouringPython() {
	Dl_info self;
	if (!dladdr(reinterpret_cast<void *>(&HostPython), &self) || !self.dli_fname) {
		return "";
	}
	std::string folder = self.dli_fname;
	for (auto slash = folder.rfind('/'); slash != std::string::npos; slash = folder.rfind('/')) {
		folder.resize(slash);
		auto python = folder + "/bin/python";
		if (access((folder + "/pyvenv.cfg").c_str(), R_OK) == 0 && access(python.c_str(), X_OK) == 0) {
			return python;
		}
	}
	return "";
}

} // namespace

std::string FindPython() {
	auto given = getenv("GROUPLEARN_PYTHON");
	if (given && *given) {
		return given;
	}
	for (auto find : {HostPython, NeighbouringPython}) {
		auto found = find();
		if (!found.empty()) {
			return found;
		}
	}
	return "python3";
}

} // namespace grouplearn
