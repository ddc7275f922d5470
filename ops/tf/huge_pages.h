// Memory for tables: mapped lazily, so that what is never touched costs nothing, and on huge pages,
// so that random rows cost fewer misses of the address translation. Every buffer has a serial
// number that no other ever gets, which an address can't promise.
#pragma once

#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/tensor.h"

namespace merlin {

// A tensor of zeros, freshly mapped; on huge pages if it is large enough for one.
tensorflow::Status AllocateTable(tensorflow::DataType dtype, const tensorflow::TensorShape& shape,
                                 tensorflow::Tensor* table);

// The same for a matrix whose sizes come from outside. Errors call it `name`.
tensorflow::Status AllocateTable(tensorflow::DataType dtype, int64_t rows, int64_t columns,
                                 const std::string& name, tensorflow::Tensor* table);

// The serial number of a buffer from AllocateTable; 0 for any other.
int64_t SerialOf(const tensorflow::Tensor& tensor);

// Gives `heir` the serial number of `from`, whose buffer gets a new one: the heir is now what the
// number stood for.
void InheritSerial(const tensorflow::Tensor& from, const tensorflow::Tensor& heir);

}  // namespace merlin
