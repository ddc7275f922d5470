// Statuses, as TensorFlow 2.12 and 2.21 both write them.
#pragma once

#include "tensorflow/core/framework/op_kernel.h"

namespace merlin {

// Spelled so that every version has it.
inline tensorflow::Status Ok() { return tensorflow::Status(); }

}  // namespace merlin

#define MERLIN_RETURN_IF_ERROR(expression)             \
  do {                                                 \
    const ::tensorflow::Status status_ = (expression); \
    if (!status_.ok()) return status_;                 \
  } while (0)
