// The state of a map from ids to rows, as the ops see it: plain variables, which one core struct
// looks at. Sizes and policy are op attributes.
#pragma once

#include <string>
#include <vector>

#include "core/id_table.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tf/variables.h"

// capacity  of ids with rows of their own; for the dynamic kind, rows that there can be
// initial   dynamic: rows that the index has room for at first
// label     how errors speak of the table
#define MERLIN_ID_STATE_ATTRS               \
  Attr("S: int >= 1")                       \
      .Attr("kind: {'managed', 'dynamic'}") \
      .Attr("capacity: int")                \
      .Attr("initial: int")                 \
      .Attr("admit_after: int")             \
      .Attr("label: string")

#define MERLIN_ID_POLICY_ATTRS                                                             \
  Attr("policy: {'lru', 'lfu', 'decayed_lfu', 'epoch_lru', 'epoch_lfu', 'ttl', 'custom'}") \
      .Attr("half_life: int")                                                              \
      .Attr("ttl: int")                                                                    \
      .Attr("admit_probability: float")                                                    \
      .Attr("contest: bool")                                                               \
      .Attr("open_routes: int")                                                            \
      .Attr("oov_rows: int")                                                               \
      .Attr("evict: bool")

// See IdChanges.
#define MERLIN_ID_CHANGES \
  Output("changed: int64").Output("new_ids: int64").Output("old_ids: int64").Output("had_old: bool")

namespace merlin {

// What the state attributes say. Sizes that the core doesn't take are refused.
struct IdStateAttrs {
  tensorflow::Status Read(tensorflow::OpKernelConstruction* ctx);

  IdShape shape;
  bool dynamic;
  std::string label;
};

tensorflow::Status ReadIdPolicy(tensorflow::OpKernelConstruction* ctx, IdPolicy* policy);

class IdState {
 public:
  // Takes the variables from the input `state`, and locks them until destruction. For writing, each
  // gets a buffer of its own first.
  tensorflow::Status Open(tensorflow::OpKernelContext* ctx, const IdStateAttrs& attrs,
                          bool writing);

  // The meters alone, from input 0, for writing.
  tensorflow::Status OpenMeters(tensorflow::OpKernelContext* ctx, const std::string& label);

  const IdTable& table() const { return table_; }

 private:
  Variables variables_;
  IdTable table_{};
};

// A state is full: an error that says what to do.
tensorflow::Status IdsFull(const std::string& label, const IdTrouble& trouble);

// Allocates the output of that name for int64 values and copies them.
tensorflow::Status OutputVector(tensorflow::OpKernelContext* ctx, const char* name,
                                const std::vector<int64_t>& values);

// The outputs of MERLIN_ID_CHANGES.
tensorflow::Status OutputChanges(tensorflow::OpKernelContext* ctx, const IdChanges& changes);

}  // namespace merlin
