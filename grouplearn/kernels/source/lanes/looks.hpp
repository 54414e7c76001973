// Where a kernel hears that it is to stop: between pieces of work that take a millisecond or so, whatever the shapes.
//
// Whom to ask is of the thread, like the rounding mode: loops deep inside ask without handing it down. Once told to stop, every
// loop ends where it is, what it has made is nobody's, and the caller raises what it was told.
#pragma once
#include <cstdint>
#include <ctime>

namespace grouplearn {

/// Whom a thread's kernels ask; library.py has the same fields.
struct Ear {
    int (*ask)();   // other than 0: stop
    int64_t every;  // nanoseconds between two questions
    int64_t next;   // the time of the next question
    int64_t left;   // the work until the clock is read
    int64_t stopped;
};

inline Ear *&ear_of_thread() {
    static thread_local Ear *ear = nullptr;
    return ear;
}

/// Operations on eight numbers of double precision between two readings of the clock: some tenths of a millisecond.
constexpr int64_t STRETCH = 1 << 18;

/// Another thread may tell.
inline bool is_told(const Ear &ear) { return __atomic_load_n(&ear.stopped, __ATOMIC_RELAXED) != 0; }

inline bool stopped() { return ear_of_thread() && is_told(*ear_of_thread()); }

__attribute__((noinline)) inline bool ask(Ear &ear) {
    auto now = [] {
        timespec time;
        clock_gettime(CLOCK_MONOTONIC, &time);
        return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
    };
    ear.left = STRETCH;
    if (ear.every && now() < ear.next) return false;
    ear.stopped = ear.ask() != 0;
    if (ear.every) ear.next = now() + ear.every;
    return ear.stopped;
}

/// To be called where so much work (operations on eight numbers) lies behind or ahead: whether to leave what is unfinished.
inline bool stop(int64_t work) {
    Ear *ear = ear_of_thread();
    if (!ear) return false;
    if (is_told(*ear)) return true;
    ear->left -= work;
    return ear->left < 0 && ask(*ear);
}

/// ``stop`` for pieces so small that to call it for each would take as long as they do.
class Looks {
  public:
    bool stop(int64_t work) {
        behind += work;
        if (behind < STRETCH / 32) return false;
        work = behind;
        behind = 0;
        return grouplearn::stop(work);
    }

  private:
    int64_t behind = 0;
};

/// ``work(first, last)`` for the numbers from 0 to before ``count``, piece by piece, each of them ``weighing`` so many operations.
template <class Work> inline bool in_pieces(int64_t count, int64_t weighing, Work work) {
    int64_t piece = weighing < 64 ? 1 << 12 : 1 << 6; // a multiple of what is done side by side
    for (int64_t first = 0; first < count; first += piece) {
        int64_t last = count - first < piece ? count : first + piece;
        if (stop((last - first) * weighing)) return false;
        work(first, last);
    }
    return true;
}

} // namespace grouplearn
