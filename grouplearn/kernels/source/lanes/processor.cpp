// Which builds this processor runs: compiled for any, so that it can be asked anywhere.
#include "lanes/together.hpp"

/// 2 for AVX-512 (the levels of x86-64-v4), 1 for AVX2 and FMA (x86-64-v3), 0 for neither.
GROUPLEARN_ENTRY int processor_level() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
    bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd");
    return wide ? 2 : 1;
#else
    return 0;
#endif
}

/// Let the kernels that this thread calls ask ``ear``, or nobody. Its memory is the caller's.
GROUPLEARN_ENTRY void ask_of_thread(grouplearn::Ear *ear) { grouplearn::ear_of_thread() = ear; }

/// Seconds of processors that other threads have worked for this one.
GROUPLEARN_ENTRY double seconds_helped() { return grouplearn::helped_of_thread(); }

/// Which sources this was compiled from.
GROUPLEARN_ENTRY const char *fingerprint() { return GROUPLEARN_FINGERPRINT; }
