// The core's Parallel on TensorFlow's intra-op threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>

#include "core/parallel.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/lib/core/threadpool.h"
#include "tensorflow/core/platform/blocking_counter.h"

namespace merlin {

class ThreadPool final : public Parallel {
 public:
  explicit ThreadPool(tensorflow::OpKernelContext* ctx)
      : workers_(*ctx->device()->tensorflow_cpu_worker_threads()) {}

  int threads() const override { return std::max(workers_.num_threads, 1); }

  // The calling thread works too, and waits for tasks alone: a helper that wakes late, finds
  // nothing left and costs nothing. Small calls would otherwise wait for its waking.
  void run(int64_t tasks, const std::function<void(int64_t)>& task) const override {
    if (tasks <= 0) return;
    const auto work = std::make_shared<Work>(tasks, task);
    const int64_t helpers = std::min<int64_t>(threads(), tasks) - 1;
    for (int64_t h = 0; h < helpers; ++h) workers_.workers->Schedule([work] { work->help(); });
    work->help();
    work->ended.Wait();
  }

 private:
  // Outlives run() while helpers hold it; `task` doesn't, and isn't touched once all have begun.
  struct Work {
    Work(int64_t tasks, const std::function<void(int64_t)>& task) : tasks(tasks), task(task) {}

    void help() {
      for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) {
        task(i);
        if (done.fetch_add(1, std::memory_order_acq_rel) + 1 == tasks) ended.DecrementCount();
      }
    }

    const int64_t tasks;
    const std::function<void(int64_t)>& task;
    std::atomic<int64_t> next{0}, done{0};
    tensorflow::BlockingCounter ended{1};
  };

  const tensorflow::DeviceBase::CpuWorkerThreads& workers_;
};

}  // namespace merlin
