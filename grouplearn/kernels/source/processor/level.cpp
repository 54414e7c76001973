// Which builds this processor runs. This file is a library of its own, compiled for any processor, so that any can ask it.
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
