// Scratch memory of a kernel: aligned, freed when it goes out of scope, and asked whether it is there.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace grouplearn {

template <class T> class Scratch {
  public:
    Scratch() = default;
    ~Scratch() { lend(nullptr, 0); }
    Scratch(const Scratch &) = delete;
    Scratch &operator=(const Scratch &) = delete;

    /// Have room for ``count`` elements, whose values are unknown; false where there is no memory.
    bool reserve(int64_t count) {
        if (count <= room) return true;
        lend(nullptr, 0);
        size_t bytes = ((size_t)count * sizeof(T) + 63) / 64 * 64;
        memory = (T *)aligned_alloc(64, bytes);
        own = memory != nullptr;
        if (own) room = count;
        return own;
    }
    /// Be the ``count`` elements of somebody else, in place of memory of its own.
    void lend(T *others, int64_t count) {
        if (own) free(memory);
        memory = others;
        room = count;
        own = false;
    }
    void clear(int64_t count) {
        if (count) memset((void *)memory, 0, (size_t)count * sizeof(T)); // none of none has no place
    }
    operator T *() const { return memory; }

  private:
    T *memory = nullptr;
    int64_t room = 0;
    bool own = false;
};

} // namespace grouplearn
