// Work that a call shares between its own thread and some more, which live as long as it does.
//
// What is done is cut into pieces by rules that do not ask how many threads there are, so that results do not depend on it. Threads
// wait for the next work with open eyes for some microseconds, since a round of an epoch takes hardly more, and asleep after that.
#pragma once
#include "lanes/entry.hpp"
#include <atomic>
#include <memory>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <vector>

namespace grouplearn {

/// Seconds of processors that others have worked for this thread.
inline double &helped_of_thread() {
    static thread_local double seconds = 0;
    return seconds;
}

class Together {
  public:
    /// As many threads as there are, and no more: where the system has none left, the caller's does all.
    explicit Together(int64_t threads) {
        sigset_t all, before; // signals are for the threads of the interpreter
        sigfillset(&all);
        if (threads > 1) pthread_sigmask(SIG_SETMASK, &all, &before);
        for (int64_t number = 1; number < threads; number++) {
            helpers.emplace_back(new Helper{this, number});
            if (pthread_create(&helpers.back()->thread, nullptr, &Together::help, helpers.back().get())) {
                helpers.pop_back();
                break;
            }
        }
        if (threads > 1) pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
    ~Together() {
        pthread_mutex_lock(&mutex);
        ended = true;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&mutex);
        for (auto &each : helpers) pthread_join(each->thread, nullptr), helped_of_thread() += each->seconds;
    }
    Together(const Together &) = delete;
    Together &operator=(const Together &) = delete;

    int64_t threads() const { return 1 + (int64_t)helpers.size(); }

    /// ``work(thread, i)`` for each of `count` pieces, begun in their order, each by one of the threads. Once the caller is told to
    /// stop, so is everyone.
    template <class Work> void each(int64_t count, const Work &work) {
        if (helpers.empty() || count < 2) {
            for (int64_t i = 0; i < count; i++) work((int64_t)0, i);
            return;
        }
        call = [](const void *with, int64_t thread, int64_t i) { (*(const Work *)with)(thread, i); };
        given = &work, pieces = count;
        done.store(0, std::memory_order_relaxed);
        left.store(count);
        if (asleep.load()) {
            pthread_mutex_lock(&mutex);
            pthread_cond_broadcast(&changed);
            pthread_mutex_unlock(&mutex);
        }
        while (take(0))
            if (stopped()) tell();
        for (int64_t looks = 0; done.load(std::memory_order_acquire) < count; looks++)
            if (looks < LOOKS) breathe();
            else sched_yield();
    }

  private:
    struct Helper {
        Together *together;
        int64_t number;
        pthread_t thread{};
        Ear ear{nullptr, 0, 0, INT64_MAX, 0}; // it is told, and asks nobody
        double seconds = 0;
    };
    /// How often to look before going to sleep: some tens of microseconds.
    static constexpr int64_t LOOKS = 2000;

    std::vector<std::unique_ptr<Helper>> helpers;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
    std::atomic<int64_t> left{0}, done{0}, asleep{0};
    std::atomic<bool> ended{false};
    // Of the work whose pieces are left; read only by who has taken one of them, until whose end it stays.
    void (*call)(const void *, int64_t, int64_t) = nullptr;
    const void *given = nullptr;
    int64_t pieces = 0;

    static void breathe() {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        asm volatile("yield");
#endif
    }

    /// Does a piece that is left, if any.
    bool take(int64_t thread) {
        int64_t found = left.load();
        while (found > 0)
            if (left.compare_exchange_weak(found, found - 1)) {
                call(given, thread, pieces - found);
                done.fetch_add(1, std::memory_order_release);
                return true;
            }
        return false;
    }

    void tell() {
        for (auto &each : helpers) __atomic_store_n(&each->ear.stopped, 1, __ATOMIC_RELAXED);
    }

    bool waits() const { return !left.load() && !ended.load(); }

    static void *help(void *of) {
        Helper &own = *(Helper *)of;
        Together &all = *own.together;
        Arithmetic arithmetic;
        ear_of_thread() = &own.ear;
        while (!all.ended.load()) {
            while (all.take(own.number)) continue;
            for (int64_t looks = 0; looks < LOOKS && all.waits(); looks++) breathe();
            if (!all.waits()) continue;
            pthread_mutex_lock(&all.mutex);
            all.asleep++;
            while (all.waits()) pthread_cond_wait(&all.changed, &all.mutex);
            all.asleep--;
            pthread_mutex_unlock(&all.mutex);
        }
        timespec time;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
        own.seconds = (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
        return nullptr;
    }
};

} // namespace grouplearn
