#include "tf/initial.h"

#include "tf/status.h"

namespace merlin {
namespace {

// FNV-1a, 64 bits: the part of the seed that tells tables apart.
uint64_t Hash(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (unsigned char c : text) hash = (hash ^ c) * 0x100000001b3u;
  return hash;
}

}  // namespace

tensorflow::Status InitialAttrs::Read(tensorflow::OpKernelConstruction* ctx) {
  std::string kind, name;
  int64_t seed;
  MERLIN_RETURN_IF_ERROR(ctx->GetAttr("dtype", &dtype));
  MERLIN_RETURN_IF_ERROR(ctx->GetAttr("dim", &dim));
  MERLIN_RETURN_IF_ERROR(ctx->GetAttr("kind", &kind));
  MERLIN_RETURN_IF_ERROR(ctx->GetAttr("first", &task.first));
  MERLIN_RETURN_IF_ERROR(ctx->GetAttr("second", &task.second));
  MERLIN_RETURN_IF_ERROR(ctx->GetAttr("seed", &seed));
  MERLIN_RETURN_IF_ERROR(ctx->GetAttr("table", &name));
  label = "table '" + name + "'";
  task.distribution = kind == "uniform"            ? Distribution::kUniform
                      : kind == "normal"           ? Distribution::kNormal
                      : kind == "truncated_normal" ? Distribution::kTruncatedNormal
                                                   : Distribution::kConstant;
  task.seed = Hash(name) ^ static_cast<uint64_t>(seed) * 0x9e3779b97f4a7c15u;
  return Ok();
}

}  // namespace merlin
