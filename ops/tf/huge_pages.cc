#include "tf/huge_pages.h"

#include <sys/mman.h>

#include <mutex>
#include <unordered_map>
#include <utility>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf/status.h"

namespace merlin {
namespace {

using tensorflow::Status;
using tensorflow::Tensor;
using tensorflow::TensorShape;

constexpr size_t kHugePage = size_t{2} << 20;
// What x86-64 gives a process to address.
constexpr int64_t kMostBytes = int64_t{1} << 46;

class HugePages final : public tensorflow::Allocator {
 public:
  std::string Name() override { return "merlin_embeddings_huge_pages"; }

  void* AllocateRaw(size_t, size_t bytes) override {
    // Room to begin on a huge page's boundary; the unused ends stay unmapped memory.
    const bool large = bytes >= kHugePage;
    const size_t length = large ? bytes + kHugePage : bytes;
    void* base = mmap(nullptr, length, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return nullptr;
    void* start = base;
    if (large) {
      const size_t address = reinterpret_cast<size_t>(base);
      start = reinterpret_cast<void*>((address + kHugePage - 1) / kHugePage * kHugePage);
      madvise(start, bytes, MADV_HUGEPAGE);  // advice: without it the table is only slower
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    mappings_[start] = {base, length, ++last_serial_};
    return start;
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

  int64_t serial(const void* pointer) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = mappings_.find(pointer);
    return found == mappings_.end() ? 0 : found->second.serial;
  }

  void inherit(const void* from, const void* heir) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto giver = mappings_.find(from), taker = mappings_.find(heir);
    if (giver == mappings_.end() || taker == mappings_.end()) return;
    taker->second.serial = std::exchange(giver->second.serial, ++last_serial_);
  }

 private:
  struct Mapping {
    void* base;
    size_t length;
    int64_t serial;
  };
  std::mutex mutex_;
  std::unordered_map<const void*, Mapping> mappings_;
  int64_t last_serial_ = 0;
};

HugePages* Pages() {
  static HugePages* pages = new HugePages;  // outlives every tensor
  return pages;
}

}  // namespace

Status AllocateTable(tensorflow::DataType dtype, const TensorShape& shape, Tensor* table) {
  *table = Tensor(Pages(), dtype, shape);
  if (table->IsInitialized()) return Ok();
  return tensorflow::errors::ResourceExhausted(
      "no memory for a table of shape ", shape.DebugString(), ", ",
      shape.num_elements() * tensorflow::DataTypeSize(dtype), " bytes");
}

Status AllocateTable(tensorflow::DataType dtype, int64_t rows, int64_t columns,
                     const std::string& name, Tensor* table) {
  const int64_t row = columns * tensorflow::DataTypeSize(dtype);
  if (rows < 0 || columns < 1 || columns > kMostBytes || rows > kMostBytes / row)
    return tensorflow::errors::InvalidArgument(
        name, ": a table [", rows, ", ", columns, "] of ", tensorflow::DataTypeString(dtype),
        " is more than a process can address; choose fewer rows");
  return AllocateTable(dtype, TensorShape({rows, columns}), table);
}

int64_t SerialOf(const Tensor& tensor) { return Pages()->serial(tensor.data()); }

void InheritSerial(const Tensor& from, const Tensor& heir) {
  Pages()->inherit(from.data(), heir.data());
}

}  // namespace merlin
