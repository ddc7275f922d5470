// How the core asks for threads: the caller brings them (TensorFlow's pool, std::thread in tests).
#pragma once

#include <cstdint>
#include <functional>

namespace merlin {

class Parallel {
 public:
  virtual ~Parallel() = default;

  // The number of threads that run() may use, at least 1.
  virtual int threads() const = 0;

  // Calls task(0) ... task(tasks - 1), each once, on any thread, started in that order; returns
  // when all have ended.
  virtual void run(int64_t tasks, const std::function<void(int64_t)>& task) const = 0;
};

// Runs everything on the calling thread.
class Serial final : public Parallel {
 public:
  int threads() const override { return 1; }
  void run(int64_t tasks, const std::function<void(int64_t)>& task) const override {
    for (int64_t i = 0; i < tasks; ++i) task(i);
  }
};

}  // namespace merlin
