// Merlin>Update: one optimizer step on the rows that K tables' lookups saw, in place.
#include <map>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tf/gradients.h"
#include "tf/status.h"
#include "tf/thread_pool.h"
#include "tf/variables.h"

namespace merlin {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Status;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::errors::InvalidArgument;

struct RuleInfo {
  RuleId id;
  int element_slots, row_slots, hyper;
};

template <class Rule>
RuleInfo Info(RuleId id) {
  return {id, Rule::kElementSlots, Rule::kRowSlots, Rule::kHyper};
}

const std::map<std::string, RuleInfo>& Rules() {
  static const auto* rules = new std::map<std::string, RuleInfo>{
#define MERLIN_RULE_INFO(id, rule, name) {name, Info<rule>(RuleId::id)},
      MERLIN_RULES(MERLIN_RULE_INFO)
#undef MERLIN_RULE_INFO
  };
  return *rules;
}

class UpdateOp final : public tensorflow::OpKernel {
 public:
  explicit UpdateOp(tensorflow::OpKernelConstruction* ctx) : OpKernel(ctx), attrs_(ctx) {
    std::string rule;
    int slots;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("rule", &rule));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("selected", &selected_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("S", &slots));
    const auto found = Rules().find(rule);
    OP_REQUIRES(ctx, found != Rules().end(), InvalidArgument("no update rule '", rule, "'"));
    rule_ = found->second;
    OP_REQUIRES(ctx, slots == static_cast<int>(selected_.size()) * slots_a_table(),
                InvalidArgument("rule '", rule, "' has ", slots_a_table(), " slots a table, but ",
                                selected_.size(), " tables came with ", slots));
    for (int t : selected_)
      OP_REQUIRES(ctx, t >= 0 && t < attrs_.tables(), InvalidArgument("selected: no table ", t));
  }

  void Compute(OpKernelContext* ctx) override {
    Gradients gradients;
    OP_REQUIRES_OK(ctx, gradients.Read(ctx, attrs_));
    const Tensor* hyper = nullptr;
    OP_REQUIRES_OK(ctx, ctx->input("hyper", &hyper));
    OP_REQUIRES(ctx, hyper->NumElements() == CommonHyper::kSize + rule_.hyper,
                InvalidArgument("the rule takes ", CommonHyper::kSize + rule_.hyper,
                                " hyper-parameters, not ", hyper->NumElements()));
    const float* numbers = hyper->flat<float>().data();

    // Inputs in order: tables, slots table by table, changed.
    const int count = static_cast<int>(selected_.size());
    Variables variables;
    OP_REQUIRES_OK(ctx, variables.Add(ctx, 0, count, "table"));
    OP_REQUIRES_OK(ctx, variables.Add(ctx, count, count * slots_a_table(), "slot"));
    OP_REQUIRES_OK(ctx, variables.Add(ctx, count * (1 + slots_a_table()), count, "changed"));
    OP_REQUIRES_OK(ctx, variables.LockForWriting());

    // All is checked before the first row is written.
    std::vector<UpdateTask> tasks;
    for (int k = 0; k < count; ++k) {
      UpdateTask task{};
      task.rule = rule_.id;
      task.common = {numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]};
      task.hyper = numbers + CommonHyper::kSize;
      task.gradient = gradients.table(selected_[k]);
      OP_REQUIRES_OK(ctx, Fill(k, variables, &task));
      tasks.push_back(task);
    }
    update(tasks, ThreadPool(ctx));
  }

 private:
  int slots_a_table() const { return rule_.element_slots + rule_.row_slots; }

  Status Fill(int k, const Variables& variables, UpdateTask* task) const {
    const int count = static_cast<int>(selected_.size());
    const std::string& name = attrs_.name(attrs_.features_of(selected_[k]).front());
    MERLIN_RETURN_IF_ERROR(AsTable(*variables.tensor(k), &task->table));
    if (task->table.dim != task->gradient.dim)
      return InvalidArgument(name, ": a gradient of dim ", task->gradient.dim,
                             " for a table of dim ", task->table.dim);
    const Groups& groups = task->gradient.groups;
    if (groups.size > 0 && (groups.rows[0] < 0 || groups.rows[groups.size - 1] >= task->table.rows))
      return InvalidArgument(name, ": a gradient of row ", groups.rows[groups.size - 1],
                             " for a table of ", task->table.rows, " rows");
    for (int s = 0; s < slots_a_table(); ++s) {
      Tensor* slot = variables.tensor(count + k * slots_a_table() + s);
      const TensorShape shape = s < rule_.element_slots
                                    ? TensorShape({task->table.rows, task->table.dim})
                                    : TensorShape({task->table.rows});
      if (slot->dtype() != tensorflow::DT_FLOAT || slot->shape() != shape)
        return InvalidArgument(name, ": slot ", s, " is ",
                               tensorflow::DataTypeString(slot->dtype()),
                               slot->shape().DebugString(), ", not float", shape.DebugString());
      task->slots[s] = slot->flat<float>().data();
    }
    Tensor* changed = variables.tensor(count * (1 + slots_a_table()) + k);
    if (changed->dtype() != tensorflow::DT_UINT8 ||
        changed->shape() != TensorShape({task->table.rows}))
      return InvalidArgument(name, ": the map of changed rows is ", changed->shape().DebugString(),
                             ", not uint8[", task->table.rows, "]");
    task->changed = changed->flat<uint8_t>().data();
    return Ok();
  }

  PoolingAttrs attrs_;
  RuleInfo rule_;
  std::vector<int> selected_;
};

// selected[k] is the place of table k among the T groups.
REGISTER_OP("Merlin>Update")
    .Input("tables: K * resource")
    .Input("slots: S * resource")
    .Input("changed: K * resource")
    .Input("hyper: float")
    .MERLIN_GRADIENT_INPUTS.MERLIN_POOLING_ATTRS.Attr("K: int >= 1")
    .Attr("S: int >= 0")
    .Attr("X: int >= 0")
    .Attr("rule: string")
    .Attr("selected: list(int)")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs);

REGISTER_KERNEL_BUILDER(Name("Merlin>Update").Device(tensorflow::DEVICE_CPU), UpdateOp);

}  // namespace
}  // namespace merlin
