#include "tf/huge_pages.h"

#include <sys/mman.h>

#include <cstring>
#include <mutex>
#include <unordered_map>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf/status.h"

namespace merlin {
namespace {

using tensorflow::Tensor;
using tensorflow::TensorShape;

class HugePages final : public tensorflow::Allocator {
 public:
  std::string Name() override { return "merlin_embeddings_huge_pages"; }

  void* AllocateRaw(size_t, size_t bytes) override {
    // Room to begin on a huge page's boundary; the unused ends stay unmapped memory.
    const size_t length = bytes + kHugePage;
    void* base = mmap(nullptr, length, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return nullptr;
    const size_t address = reinterpret_cast<size_t>(base);
    void* aligned = reinterpret_cast<void*>((address + kHugePage - 1) / kHugePage * kHugePage);
    madvise(aligned, bytes, MADV_HUGEPAGE);  // advice: without it the table is only slower
    const std::lock_guard<std::mutex> lock(mutex_);
    mappings_[aligned] = {base, length};
    return aligned;
  }

  void DeallocateRaw(void* pointer) override {
    Mapping mapping;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto found = mappings_.find(pointer);
      if (found == mappings_.end()) return;
      mapping = found->second;
      mappings_.erase(found);
    }
    munmap(mapping.base, mapping.length);
  }

 private:
  struct Mapping {
    void* base;
    size_t length;
  };
  std::mutex mutex_;
  std::unordered_map<void*, Mapping> mappings_;
};

}  // namespace

tensorflow::Allocator* HugePageAllocator() {
  static HugePages* allocator = new HugePages;  // outlives every tensor
  return allocator;
}

tensorflow::Status AllocateTable(tensorflow::OpKernelContext* ctx, tensorflow::DataType dtype,
                                 const TensorShape& shape, Tensor* table) {
  const int64_t bytes = shape.num_elements() * tensorflow::DataTypeSize(dtype);
  if (bytes >= kHugePage) {
    *table = Tensor(HugePageAllocator(), dtype, shape);
    if (table->IsInitialized()) return Ok();
    return tensorflow::errors::ResourceExhausted("no memory for a table of shape ",
                                                 shape.DebugString(), ", ", bytes, " bytes");
  }
  MERLIN_RETURN_IF_ERROR(ctx->allocate_temp(dtype, shape, table));
  if (bytes > 0) std::memset(table->data(), 0, bytes);
  return Ok();
}

}  // namespace merlin
