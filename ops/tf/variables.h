// Resource variables as the ops see them: looked up, locked together, and made safe to write to.
#pragma once

#include <string>
#include <vector>

#include "core/types.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"

namespace merlin {

class Variables {
 public:
  // Reads `count` variables from the inputs that begin at `first`; `what` names them in errors.
  tensorflow::Status Add(tensorflow::OpKernelContext* ctx, int first, int count, const char* what);

  // One more, which an op found otherwise.
  void Add(tensorflow::core::RefCountPtr<tensorflow::Var> variable, const char* what);

  // Locks all of them, in one order whoever asks, until destruction. For writing, a buffer that
  // somebody else holds (a read_value()) is copied first, as TensorFlow's scatter ops do.
  tensorflow::Status LockShared();
  tensorflow::Status LockForWriting();

  tensorflow::Var* variable(int i) const { return variables_[i].get(); }
  tensorflow::Tensor* tensor(int i) const { return variables_[i]->tensor(); }
  int size() const { return static_cast<int>(variables_.size()); }

  ~Variables();

 private:
  tensorflow::Status Lock(bool exclusive);

  std::vector<tensorflow::core::RefCountPtr<tensorflow::Var>> variables_;
  std::vector<const char*> what_;
  std::vector<tensorflow::Var*> locked_;  // distinct, by address
  bool exclusive_ = false;
};

// Copies a variable's value, which must be locked, into a buffer of AllocateTable that it alone
// holds.
tensorflow::Status MoveToOwnBuffer(tensorflow::Var* variable);

// A matrix of a float type as the core's Table.
tensorflow::Status AsTable(const tensorflow::Tensor& tensor, Table* table);

}  // namespace merlin
