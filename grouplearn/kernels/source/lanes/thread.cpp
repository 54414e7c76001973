// What a thread tells the kernels, and what they tell it.
#include "lanes/together.hpp"

/// Let the kernels that this thread calls ask ``ear``, or nobody. Its memory is the caller's.
GROUPLEARN_ENTRY void ask_of_thread(grouplearn::Ear *ear) { grouplearn::ear_of_thread() = ear; }

/// Seconds of processors that other threads have worked for this one.
GROUPLEARN_ENTRY double seconds_helped() { return grouplearn::helped_of_thread(); }

/// Which sources this was compiled from.
GROUPLEARN_ENTRY const char *fingerprint() { return GROUPLEARN_FINGERPRINT; }
