// What the values of a fresh row are a function of, beside its key, as op attributes.
#pragma once

#include <string>

#include "core/kernels.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

#define MERLIN_INITIAL_ATTRS                                               \
  Attr("dim: int >= 1")                                                    \
      .Attr("dtype: {float, bfloat16, half}")                              \
      .Attr("kind: {'constant', 'uniform', 'normal', 'truncated_normal'}") \
      .Attr("first: float")                                                \
      .Attr("second: float")                                               \
      .Attr("seed: int")                                                   \
      .Attr("table: string")

namespace merlin {

struct InitialAttrs {
  tensorflow::Status Read(tensorflow::OpKernelConstruction* ctx);

  tensorflow::DataType dtype;
  int64_t dim;
  std::string label;      // "table 'item'"
  InitializeTask task{};  // without table, keys and places
};

}  // namespace merlin
