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

  // The calling thread works too, so that nothing waits for a pool that is busy.
  void run(int64_t tasks, const std::function<void(int64_t)>& task) const override {
    if (tasks <= 0) return;
    const int64_t helpers = std::min<int64_t>(threads(), tasks) - 1;
    std::atomic<int64_t> next{0};
    const auto work = [&] {
      for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) task(i);
    };
    if (helpers <= 0) return work();
    tensorflow::BlockingCounter ended(static_cast<int>(helpers));
    for (int64_t h = 0; h < helpers; ++h) {
      workers_.workers->Schedule([&] {
        work();
        ended.DecrementCount();
      });
    }
    work();
    ended.Wait();
  }

 private:
  const tensorflow::DeviceBase::CpuWorkerThreads& workers_;
};

}  // namespace merlin
