// Series shared between threads: each is the work of one of them.
#pragma once
#include "lanes/entry.hpp"
#include "lanes/together.hpp"
#include "series/series.hpp"
#include <memory>

namespace grouplearn::series {

/// `Fitter(task, longest).fit(g)` for the series of a task, with a fitter for each thread.
template <class Fitter, class Task> void fit_each(const Task &task, int64_t threads) {
    Together together(std::min(threads, std::max((int64_t)1, task.all.count)));
    std::vector<std::unique_ptr<Fitter>> fitters;
    for (int64_t i = 0; i < together.threads(); i++) fitters.emplace_back(new Fitter(task, task.all.longest()));
    together.each(task.all.count, [&](int64_t thread, int64_t g) {
        if (!stopped()) fitters[thread]->fit(g);
    });
}

} // namespace grouplearn::series
