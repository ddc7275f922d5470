// The core's id table in the library of the CUDA twin, called the same way: what a machine with a
// GPU compares the twin with, bit by bit.
#include <algorithm>

#include "cuda/id_table.h"

using namespace merlin;

extern "C" {

void merlin_host_id_shape(int64_t capacity, int64_t admit_after, int64_t initial, IdShape* shape) {
  *shape = initial > 0 ? dynamic_shape(initial, capacity) : managed_shape(capacity, admit_after);
}

void merlin_host_id_find(const IdTable* table, const IdPolicy* policy, const IdList* list) {
  find(*table, *policy, list, 1, Serial());
}

void merlin_host_id_assign(const IdTable* table, const IdPolicy* policy, const IdList* list,
                           CudaChange* changes, uint32_t* changed, IdTrouble* trouble) {
  IdChanges all;
  *trouble = assign(*table, *policy, list, 1, Serial(), &all);
  *changed = static_cast<uint32_t>(all.rows.size());
  for (size_t i = 0; i < all.rows.size(); ++i)
    changes[i] = {all.rows[i], all.old_ids[i], all.new_ids[i], all.had_old[i]};
}

void merlin_host_id_release(const IdTable* table) { release(*table); }

}  // extern "C"
