// What every function that Python calls begins with: rounding to nearest, subnormal numbers kept, whatever the process has set.
#pragma once
#include "lanes/lanes.hpp"
#include "lanes/looks.hpp"

namespace grouplearn {

/// Asked between pieces of work, with how many pieces are finished since it was last asked; other than 0: stop.
using Watch = int (*)(int64_t);

class Arithmetic {
  public:
#if defined(__x86_64__)
    Arithmetic() : before(__builtin_ia32_stmxcsr()) { __builtin_ia32_ldmxcsr(0x1f80); }
    ~Arithmetic() { __builtin_ia32_ldmxcsr(before); }

  private:
    unsigned before;
#elif defined(__aarch64__)
    Arithmetic() {
        asm volatile("mrs %0, fpcr" : "=r"(before));
        uint64_t plain = 0;
        asm volatile("msr fpcr, %0" : : "r"(plain));
    }
    ~Arithmetic() { asm volatile("msr fpcr, %0" : : "r"(before)); }

  private:
    uint64_t before;
#endif
  public:
    Arithmetic(const Arithmetic &) = delete;
};

} // namespace grouplearn

#define GROUPLEARN_ENTRY extern "C" __attribute__((visibility("default")))
