// What belongs to the rows of a table whose rows move from id to id: optimizer slots and flags,
// with what they hold for a fresh row. Kept beside the graph, which may have been traced before the
// optimizer existed; held weakly, so that a slot lives no longer than its optimizer.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/platform/mutex.h"
#include "tensorflow/core/platform/refcount.h"

namespace merlin {

class Attached final : public tensorflow::ResourceBase {
 public:
  struct Slot {
    tensorflow::core::RefCountPtr<tensorflow::Var> variable;
    double fill;
  };

  // Attaching a variable again changes its fill.
  void Attach(tensorflow::Var* variable, double fill);
  void Detach(const tensorflow::Var* variable);

  // Those that still exist.
  std::vector<Slot> slots();

  // Whether an optimizer that keeps to the rows' rules, known by a number of its own, serves the
  // table.
  void Claim(int64_t owner, bool claimed);
  bool claimed();

  std::string DebugString() const override { return "what is attached to a table's rows"; }

  // The list of that name; made if there is none.
  static tensorflow::Status Find(tensorflow::OpKernelContext* ctx, const std::string& name,
                                 tensorflow::core::RefCountPtr<Attached>* found);

 private:
  struct Weak {
    const tensorflow::Var* address;
    tensorflow::core::WeakPtr<tensorflow::Var> variable;
    double fill;
  };

  tensorflow::mutex mutex_;
  std::vector<Weak> slots_;
  std::set<int64_t> owners_;
};

}  // namespace merlin
