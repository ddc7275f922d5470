// Which of the kernels compiled for several instruction sets this processor gets.
#include <cstdlib>
#include <cstring>

#include "kernels.h"

#define MERLIN_DECLARE(isa)                                                        \
  namespace isa {                                                                  \
  int64_t lookup(const LookupTask&, int64_t, int64_t);                             \
  void values(const TableGradient&, float*, int64_t, int64_t);                     \
  void update(const UpdateTask&, int64_t, int64_t);                                \
  void weight_gradient(const WeightGradientTask&, int64_t, int64_t);               \
  void initialize(const InitializeTask&, int64_t, int64_t);                        \
  constexpr Kernels kKernels{lookup, values, update, weight_gradient, initialize}; \
  }

namespace merlin {

MERLIN_DECLARE(baseline)
MERLIN_DECLARE(avx2)
MERLIN_DECLARE(avx512)

const Kernels* kernels(Isa isa) {
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") &&
                          __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  switch (isa) {
    case Isa::kAvx512:
      return has_avx512 ? &avx512::kKernels : nullptr;
    case Isa::kAvx2:
      return has_avx2 ? &avx2::kKernels : nullptr;
    default:
      return &baseline::kKernels;
  }
}

const Kernels& kernels() {
  static const Kernels& chosen = [&]() -> const Kernels& {
    const char* asked = std::getenv("MERLIN_EMBEDDINGS_ISA");
    const bool less_than_avx512 = asked && std::strcmp(asked, "avx512") != 0;
    const bool baseline_only = asked && std::strcmp(asked, "baseline") == 0;
    if (!less_than_avx512 && kernels(Isa::kAvx512)) return *kernels(Isa::kAvx512);
    if (!baseline_only && kernels(Isa::kAvx2)) return *kernels(Isa::kAvx2);
    return *kernels(Isa::kBaseline);
  }();
  return chosen;
}

}  // namespace merlin
