// The residual methods by name: presets of ModelOptions' fields as functions of the model's depth.
//
// N encoder layers, M decoder layers; layer l = 1 … n of a stack; update t, T: branch_growth_updates; r, b, a, c, ω:
// StackMethod (model_options.h), r is 1 where a row has none. Initial weights are given as Xavier gains; q, k, v and
// o = W_o: attention's weights; W_1, W_2: FFN's; W[l,k]: layer_combination.h (row l is read by layer l + 1).
//
//   name           norm  r (encoder / decoder), others    initial weights
//   post_ln        post  1                                uniform; q, k, v 1/sqrt(2), the rest 1 (Vaswani et al. 2017)
//   pre_ln         pre   1                                as post_ln
//   deepnorm       post  0.81 (N^4 M)^1/16 / (3M)^1/4     normal; v, o, FFN 0.87 (N^4 M)^-1/16 / (12M)^-1/4; q, k 1
//   branchnorm     post  1, b = min(1, t/T)               as deepnorm
//   post_ln_init   post  1                                post_ln's as normal, layer l of n divided by n - l + 1
//   ds_init        post  1                                uniform, 1 everywhere, layer l divided by sqrt(l)
//   admin          post  1, ω learned from its profile    as post_ln
//   admin_closed   post  1, ω learned from                as post_ln
//                        sqrt((m + 1)/ln(m + 1) - 1),
//                        m = 2N / 3M sublayers
//   rezero         none  1, b learned per layer from 0    as post_ln
//   r_fixup        none  1; no biases, learned scalars    as post_ln; q, k, v times L^-1/6, W_1 times L^-1/2; W_o, W_2
//                                                         and an untied output projection 0; L = 2N + 3M branches
//   t_fixup        none  1                                uniform; v, o, FFN 0.67 N^-1/4 / (9M)^-1/4, q, k 1/sqrt(2);
//                                                         embeddings times (9N)^-1/4 / (9M)^-1/4
//   dlcl_pre       pre   1; a layer reads a learned       as post_ln; W[l,k] 1/(l + 1)
//                        combination of the outputs
//                        of all layers before it
//   dlcl_post      post  1; likewise                      as dlcl_pre
//   normformer     pre   1; head scale, attention's       as post_ln
//                        output norm, FFN's inner norm
//   sub_ln         pre   1; inner norms of                normal; v, o, FFN sqrt(ln(3M) ln(2N) / 3) / sqrt(ln 3M);
//                        self-attention and FFN           q, k and all of cross-attention 1
//   b2t            post  1, a = 1                         as post_ln
//   b2t_rescaled   post  1, a = 1                         post_ln's divided by sqrt(n)
//   b2t_no_ln      none  1, a = min(n/12, n^-0.15),       as post_ln
//                        c = d_model^-0.2
//   keel           post  2N / 3M; a norm also in front    as post_ln
//                        of each branch
//   peri_ln        pre   1; a norm also behind each       as post_ln
//                        branch
//   ln_scaling     pre   1; layer l's branches read       as post_ln
//                        LN(x)/sqrt(l)
//   mix_ln         mixed 1; the lowest quarter of the     as post_ln
//                        layers post, the others pre
//   completep      pre   branches times 2/n, Adam's       as post_ln
//                        epsilon too; n layers
//   residual_dual  post  1; a second stream adds up       as post_ln
//                        0.05 F(x) without norms
//   mhc            pre   four streams, which branches     as post_ln; maps Xavier, gates 0.01, biases 0
//                        read and write by learned maps
//   mhc_lite       pre   as mhc, with H_res a mean of     as mhc
//                        permutations
//   attn_res       pre   a softmax over the sums of       as post_ln; queries 0, their norms' scales 1
//                        16 blocks
//   attn_res_delta pre   1; the stream, and a softmax     as attn_res
//                        over the sums of 16 blocks
//
// method_presets.md has the constants without an encoder or without a decoder, the sources, and the choices where a
// paper and its code differ.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "layers/model_options.h"

namespace hadal {

enum class ResidualMethod : int32_t {
  kPostLn,
  kPreLn,
  kDeepNorm,
  kBranchNorm,
  kPostLnInit,
  kDsInit,
  kAdmin,
  kAdminClosed,
  kReZero,
  kRFixup,
  kTFixup,
  kDlclPre,
  kDlclPost,
  kNormFormer,
  kSubLn,
  kB2t,
  kB2tRescaled,
  kB2tNoLn,
  kKeel,
  kPeriLn,
  kLnScaling,
  kMixLn,
  kCompleteP,
  kResidualDual,
  kMhc,
  kMhcLite,
  kAttnRes,
  kAttnResDelta,
};

const std::vector<ResidualMethod>& AllResidualMethods();
// Conversions between methods and the table's names. Errors: InvalidArgument, with all names.
absl::StatusOr<ResidualMethod> ParseResidualMethod(const std::string& name);
std::string ResidualMethodName(ResidualMethod method);

// Sets options.encoder, decoder, distribution and branch_growth (not T, its number of updates) from the method, the two
// depths and the width.
void ApplyResidualMethod(ResidualMethod method, ModelOptions& options);

// Replaces the gain of DeepNorm's encoder weights (beta), 0.87 (N^4 M)^-1/16 in the paper, by that of torchscale's
// code, 1.15 (N^4 M)^-1/16, which is 1.32 times larger. REQUIRES: kDeepNorm has been applied. Does nothing in a model
// without an encoder or without a decoder.
void ApplyTorchscaleBeta(ModelOptions& options);

}  // namespace hadal
