#include "tf/attached.h"

#include <algorithm>

namespace merlin {

using tensorflow::Var;
using tensorflow::core::RefCountPtr;
using Lock = tensorflow::mutex_lock;

void Attached::Attach(Var* variable, double fill) {
  Detach(variable);
  const Lock lock(mutex_);
  slots_.push_back({variable, tensorflow::core::WeakPtr<Var>(variable), fill});
}

void Attached::Detach(const Var* variable) {
  const Lock lock(mutex_);
  // Another variable may have got the address of one that is gone.
  const auto leaves = [&](const Weak& slot) {
    return slot.address == variable || slot.variable.GetNewRef() == nullptr;
  };
  slots_.erase(std::remove_if(slots_.begin(), slots_.end(), leaves), slots_.end());
}

std::vector<Attached::Slot> Attached::slots() {
  const Lock lock(mutex_);
  std::vector<Slot> alive;
  for (const Weak& slot : slots_) {
    RefCountPtr<Var> variable = slot.variable.GetNewRef();
    if (variable) alive.push_back({std::move(variable), slot.fill});
  }
  return alive;
}

void Attached::Claim(int64_t owner, bool claimed) {
  const Lock lock(mutex_);
  if (claimed)
    owners_.insert(owner);
  else
    owners_.erase(owner);
}

bool Attached::claimed() {
  const Lock lock(mutex_);
  return !owners_.empty();
}

tensorflow::Status Attached::Find(tensorflow::OpKernelContext* ctx, const std::string& name,
                                  RefCountPtr<Attached>* found) {
  Attached* attached = nullptr;
  const tensorflow::Status status = ctx->resource_manager()->LookupOrCreate<Attached>(
      "merlin_embeddings", name, &attached, [](Attached** made) {
        *made = new Attached;
        return tensorflow::Status();
      });
  found->reset(attached);
  return status;
}

}  // namespace merlin
