#include "tf/variables.h"

#include <algorithm>
#include <cstring>

#include "tf/huge_pages.h"
#include "tf/status.h"

namespace merlin {

using tensorflow::OpKernelContext;
using tensorflow::Status;
using tensorflow::Tensor;
using tensorflow::Var;

Status Variables::Add(OpKernelContext* ctx, int first, int count, const char* what) {
  for (int i = first; i < first + count; ++i) {
    tensorflow::core::RefCountPtr<Var> variable;
    MERLIN_RETURN_IF_ERROR(
        tensorflow::LookupResource(ctx, tensorflow::HandleFromInput(ctx, i), &variable));
    Add(std::move(variable), what);
  }
  return Ok();
}

void Variables::Add(tensorflow::core::RefCountPtr<Var> variable, const char* what) {
  variables_.push_back(std::move(variable));
  what_.push_back(what);
}

Status Variables::Lock(bool exclusive) {
  for (const auto& v : variables_) locked_.push_back(v.get());
  std::sort(locked_.begin(), locked_.end());
  locked_.erase(std::unique(locked_.begin(), locked_.end()), locked_.end());
  exclusive_ = exclusive;
  for (Var* v : locked_) {
    if (exclusive)
      v->mu()->lock();
    else
      v->mu()->lock_shared();
  }
  for (size_t i = 0; i < variables_.size(); ++i)
    if (!variables_[i]->tensor()->IsInitialized())
      return tensorflow::errors::FailedPrecondition("a ", what_[i], " variable has no value yet");
  return Ok();
}

Status Variables::LockShared() { return Lock(false); }

Status MoveToOwnBuffer(Var* variable) {
  Tensor own;
  Tensor* tensor = variable->tensor();
  MERLIN_RETURN_IF_ERROR(AllocateTable(tensor->dtype(), tensor->shape(), &own));
  if (own.TotalBytes() > 0) std::memcpy(own.data(), tensor->data(), own.TotalBytes());
  InheritSerial(*tensor, own);
  *tensor = own;
  return Ok();
}

Status Variables::LockForWriting() {
  MERLIN_RETURN_IF_ERROR(Lock(true));
  for (Var* v : locked_) {
    if (v->tensor()->RefCountIsOne()) continue;
    MERLIN_RETURN_IF_ERROR(MoveToOwnBuffer(v));
  }
  return Ok();
}

Variables::~Variables() {
  for (Var* v : locked_) {
    if (exclusive_)
      v->mu()->unlock();
    else
      v->mu()->unlock_shared();
  }
}

Status AsTable(const Tensor& tensor, Table* table) {
  if (tensor.dims() != 2)
    return tensorflow::errors::InvalidArgument(
        "a table must be a matrix [rows, dim], not of shape ", tensor.shape().DebugString());
  switch (tensor.dtype()) {
    case tensorflow::DT_FLOAT:
      table->dtype = DType::kFloat32;
      break;
    case tensorflow::DT_BFLOAT16:
      table->dtype = DType::kBfloat16;
      break;
    case tensorflow::DT_HALF:
      table->dtype = DType::kFloat16;
      break;
    default:
      return tensorflow::errors::InvalidArgument("a table is float32, bfloat16 or float16, not ",
                                                 tensorflow::DataTypeString(tensor.dtype()));
  }
  table->data = tensor.data();
  table->rows = tensor.dim_size(0);
  table->dim = tensor.dim_size(1);
  return Ok();
}

}  // namespace merlin
