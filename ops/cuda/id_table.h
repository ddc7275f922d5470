// core/id_table.h for tables in device memory. All pointers but those to the three structs are to
// device memory; work is only put on the stream. Each returns a cudaError_t, 0 for success.
#pragma once

#include "core/id_table.h"

namespace merlin {

struct CudaChange {
  int64_t row, old_id, new_id, had_old;
};

}  // namespace merlin

extern "C" {

// Bytes of workspace that an assign of `size` ids takes.
int64_t merlin_cuda_id_workspace(int64_t size);

int merlin_cuda_id_find(const merlin::IdTable* table, const merlin::IdPolicy* policy,
                        const merlin::IdList* list, void* stream);

// changes [N], of which the first `changed` [1] are those of IdChanges, in the same order. Where
// `trouble` [1] says so, nothing was done. Fewer than 2^31 ids.
int merlin_cuda_id_assign(const merlin::IdTable* table, const merlin::IdPolicy* policy,
                          const merlin::IdList* list, void* workspace, merlin::CudaChange* changes,
                          uint32_t* changed, merlin::IdTrouble* trouble, void* stream);

int merlin_cuda_id_release(const merlin::IdTable* table, void* stream);

}  // extern "C"
