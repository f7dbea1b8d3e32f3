// Attention's matrix products, executed by oneDNN's matmul primitive as batches of small matrices.
//
//   forward   S = Q·Kᵀ   O = P·V
//   backward  S again,   dP = dO·Vᵀ   dV = Pᵀ·dO   dQ = dS·K   dK = dSᵀ·Q      (7 products in all, without softmax)
// One call takes neighbouring sentences of equal lengths with all their heads: batch [sentences, heads].
// Causal attention: hadal computes strips that cover the triangle on and below the diagonal; a library computes the
// full square. To compare equal arithmetic, only the fraction of sentences that equals hadal's share of the square is
// multiplied (62% at length 32).
// Shapes: as in kernels/attention.h.
// Threads: own threads, each with the primitives of its own sentences, or oneDNN's. Blocking.
#pragma once

#include <dnnl.hpp>
#include <unordered_map>
#include <vector>

#include "kernels/attention.h"
#include "runtime/stream.h"

namespace hadal {

// Which threads split a product: hadal's, each calling oneDNN serially on its own rows or sentences, or oneDNN's.
enum class ProductThreading { kOwnRows, kLibrary };

// The operands of one attention. Scores and their gradients have AttentionProducts::score_floats() elements.
struct AttentionOperands {
  float *q, *k, *v, *d_output, *scores, *d_scores;  // read; scores are also written
  float *output, *d_q, *d_k, *d_v;                  // written
};

class AttentionProducts {
 public:
  // `query_stride`, `key_stride`: floats between the rows of q, and of k and v; the same for their gradients. The
  // output's rows are contiguous.
  AttentionProducts(const AttentionShape& shape, int64_t head_width, int64_t query_stride, int64_t key_stride,
                    const Stream& stream);

  int64_t score_floats() const { return score_floats_; }
  // Floating-point operations of the two or five products.
  double forward_flops() const { return 2 * product_flops_; }
  double backward_flops() const { return 5 * product_flops_; }

  void Forward(ProductThreading threading, const AttentionOperands& operands);
  void Backward(ProductThreading threading, const AttentionOperands& operands);

 private:
  // One of the seven products of one run of sentences, ready to execute.
  struct Product {
    dnnl::matmul primitive;
    dnnl::memory a, b, c;
    std::unordered_map<int, dnnl::memory> arguments;
    void Execute(dnnl::stream& stream, float* a_data, float* b_data, float* c_data);
  };
  struct Run {
    int64_t first_query = 0, queries = 0, first_key = 0, keys = 0;  // rows; of each sentence
    int64_t sentences = 0;
    int64_t scores = 0;                              // floats before this run's
    Product score, output, d_value, d_query, d_key;  // dP = dO·Vᵀ is the same product as S
  };
  // All runs of one thread, or of the library.
  using Runs = std::vector<Run>;

  Runs MakeRuns(const AttentionShape& shape, int64_t first_sentence, int64_t last_sentence);
  void PrepareProducts(Run& run) const;
  void ForwardRuns(Runs& runs, const AttentionOperands& operands);
  void BackwardRuns(Runs& runs, const AttentionOperands& operands);

  Stream stream_;
  dnnl::engine engine_;
  int64_t heads_, head_width_, query_stride_, key_stride_;
  bool causal_;
  int64_t score_floats_ = 0;
  double product_flops_ = 0;
  std::vector<Runs> own_;  // [threads]
  Runs library_;
};

}  // namespace hadal
