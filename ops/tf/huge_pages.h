// Memory for tables: mapped lazily, so that what is never touched costs nothing, and on huge pages,
// so that random rows cost fewer misses of the address translation.
#pragma once

#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/tensor.h"

namespace merlin {

// Serves tensors of at least kHugePage bytes from fresh mappings, which read as zeros.
tensorflow::Allocator* HugePageAllocator();
constexpr int64_t kHugePage = int64_t{2} << 20;

// A tensor of zeros: from the allocator above when large, else from `ctx`.
tensorflow::Status AllocateTable(tensorflow::OpKernelContext* ctx, tensorflow::DataType dtype,
                                 const tensorflow::TensorShape& shape, tensorflow::Tensor* table);

}  // namespace merlin
