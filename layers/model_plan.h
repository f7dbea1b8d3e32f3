// The model as a list: the ordered sublayers of the whole network and the parameters of each.
//
//   source embedding · encoder (self-attention, feed-forward) × N · target embedding
//                    · decoder (self-attention, cross-attention, feed-forward) × M · output head
// A language model (N = 0) has neither source nor cross-attention:
//   target embedding · decoder (self-attention, feed-forward) × M · output head
// An encoder alone (M = 0) has no target embedding; its head is of the encoder's stack (output_head.h):
//   source embedding · encoder (self-attention, feed-forward) × N · output head
//
// Rank 0 makes the plan from the options, including depth-aware constants, and broadcasts it as fixed-size plain
// records with a hash. Partition, memory, initialisation, checkpoints and names are derived from this list.
// Thread safety: a value; const use from any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/attention_reach.h"
#include "kernels/residual_norm.h"
#include "layers/model_options.h"
#include "runtime/storage.h"

namespace hadal {

enum class SublayerKind : int32_t {
  kSourceEmbedding,
  kSelfAttention,
  kCrossAttention,
  kFeedForward,
  kTargetEmbedding,
  kOutputHead,
};

enum class Stack : int32_t { kEncoder, kDecoder };

// One entry of the list. Plain data: broadcast as bytes.
struct SublayerRecord {
  SublayerKind kind = SublayerKind::kFeedForward;
  Stack stack = Stack::kEncoder;
  int32_t layer = -1;  // 0-based within its stack; -1 for embeddings and head
  NormPlacement norm = NormPlacement::kPost;
  int32_t closing_norm = 0;  // 1: the stack's final LayerNorm follows this sublayer (pre-norm methods, second streams)
  float residual_gain = 1;   // r (layers/README.md, Methods); c·r for a layer's last sublayer
  float branch_gain = 1;     // b, before growth; c·b for a layer's last sublayer
  float skip_gain = 0;       // a; 0 except for a layer's last sublayer
  BranchGrowth branch_growth = BranchGrowth::kConstant;
  float branch_growth_updates = 0;    // T of a growing branch gain
  float branch_growth_steepness = 0;  // k
  int32_t first_parameter = 0;        // its own parameters: [first_parameter, first_parameter + parameters)
  int32_t parameters = 0;
  // Of an embedding or the head: the parameter used as its table, its own or a tied one; with several tables, the
  // first of Tables(). -1: none, as for a front end for speech.
  int32_t table = -1;
  int32_t learned_gain = -1;  // the parameter that multiplies b: its own or its layer's first sublayer's; -1: none
  int32_t cut_before = 1;     // 1: stages, chunks and segments may begin here; 0: must stay with the previous sublayer
  float norm_gain = 1;        // k, a factor of the norm's result that a pre-norm sublayer's branch reads
  float second_gain = 0;      // s of a second stream; 0: one stream. Hash treats this field and norm_gain apart
};

// Returns b of the residual connection at an update, without its learned factor (formulas: BranchGrowth). REQUIRES:
// update ≥ 1.
float BranchGain(const SublayerRecord& sublayer, int64_t update);
// Whether b differs from 1 at any update. If not, no kernel reads b.
bool HasBranchGain(const SublayerRecord& sublayer);

enum class ParameterRole : int32_t {
  kEmbedding,  // embedding table or untied output projection
  kQueryWeight,
  kKeyWeight,
  kValueWeight,
  kQueryBias,
  kKeyBias,
  kValueBias,
  kOutputWeight,  // attention's out_proj
  kOutputBias,
  kHiddenWeight,  // fc1
  kHiddenBias,
  kContractionWeight,  // fc2
  kContractionBias,
  kNormScale,
  kNormShift,
  kClosingNormScale,
  kClosingNormShift,
  kLearnedGain,     // of the layer's branches
  kHeadScale,       // one scalar per head
  kInnerNormScale,  // between the heads and out_proj
  kInnerNormShift,
  kOutputNormScale,  // after the last product
  kOutputNormShift,
  kHiddenNormScale,  // between fc1 and fc2
  kHiddenNormShift,
  kQueryShift,        // before the products of q, k and v
  kInputShift,        // before fc1
  kHiddenShift,       // before the ReLU
  kContractionShift,  // before fc2
  kBranchScale,       // of the branch
  kClosingShift,      // after the stack
  kClosingScale,
  kOmega,  // the learned vector on the residual stream
  // For a stack that combines its layers' outputs (layer_combination.h).
  kCombinationWeight,  // a row of its weights
  kCombinationNormScale,
  kCombinationNormShift,
  kInputNormScale,  // before a branch, beside the method's norm
  kInputNormShift,
  // Of an adaptive embedding or softmax (adaptive_bands.h).
  kTailTable,
  kTailProjection,
  kInputProjection,    // of the first band, of embeddings alone
  kClusterWeight,      // the classes' rows, where the first band's table is an embedding's
  kConvolutionWeight,  // of the front end for speech (speech_front_end.h)
  kConvolutionBias,
  // The maps of several residual streams (kernels/hyper_connection.h).
  kHyperMapWeight,
  kHyperMapGates,
  kHyperMapBias,
  // fc3 of a gated feed-forward.
  kLinearWeight,
  kLinearBias,
  kPositionTable,   // learned positions of an embedding
  kQueryNormScale,  // of each head of queries, and of keys
  kQueryNormShift,
  kKeyNormScale,
  kKeyNormShift,
  kGateWeight,  // of self-attention's heads
  kGateBias,
  kEmbeddingNormScale,
  kEmbeddingNormShift,
  // The head of an encoder alone (output_head.h).
  kHeadWeight,
  kHeadBias,
  kHeadNormScale,
  kHeadNormShift,
  kLogitBias,
  // The reads of a stack's blocks (block_reader.h): a sublayer's, and the closing one behind the stack.
  kReaderQuery,
  kReaderScale,
  kClosingReaderQuery,
  kClosingReaderScale,
};

enum class InitKind : int32_t { kZero, kOne, kUniform, kNormal, kConstant };

// One named tensor. The plan's order of parameters defines the order of (parameter, slice) everywhere.
struct ParameterRecord {
  ParameterRole role = ParameterRole::kEmbedding;
  int32_t sublayer = 0;  // owner: the first sublayer that uses it
  InitKind init = InitKind::kZero;
  float init_scale = 0;  // bound of the uniform distribution, standard deviation of the normal one, or the constant
  int64_t rows = 0;      // [rows, columns]; vectors have columns = 1 and one dimension in files
  int64_t columns = 1;
  int64_t elements() const { return rows * columns; }
  // Whether several sublayers may use it, each with a gradient of its own.
  bool is_table() const {
    return role == ParameterRole::kEmbedding || role == ParameterRole::kTailTable ||
           role == ParameterRole::kTailProjection || role == ParameterRole::kInputProjection;
  }
  bool is_vector() const;         // biases and norms: one dimension in files
  bool is_branch_weight() const;  // the matrix of a linear layer of attention or of a feed-forward
};

// A slice: at most kSliceElements elements of one parameter, at offsets fixed by the model alone. The unit of sharding,
// norms, Adam, checksums and checkpoint entries.
inline constexpr int64_t kSliceElements = int64_t{1} << 20;
inline int64_t SliceCount(const ParameterRecord& parameter) {
  return (parameter.elements() + kSliceElements - 1) / kSliceElements;
}

struct ModelPlan {
  ModelOptions options;
  std::vector<SublayerRecord> sublayers;
  std::vector<ParameterRecord> parameters;
  // The type of the products' operands and results in a run. Chosen together with the run's device; not part of the
  // model, so neither hashed nor broadcast.
  Storage compute_storage = Storage::kFloat32;
  // Whether feed-forward layers keep bit masks of their ReLUs if the model allows it (feed_forward.cc). Depends on the
  // device's library (pipeline/layout/relu_masks.h); true for `hadal plan`, which has no device. A run in fp32 never
  // keeps masks.
  bool relu_masks = true;
  // [parameters] Those that a training run leaves as they are (optimizer.frozen); empty: none. Not part of the model,
  // either.
  std::vector<bool> frozen;
  // Newton–Schulz iterations of an update by Muon; 0: the run's optimizer is Adam (optimizer.kind). Not part of the
  // model, either.
  int32_t muon_steps = 0;

  // REQUIRES: ValidateModelOptions(options) is OK.
  static ModelPlan Make(const ModelOptions& options);

  // The records as bytes, preceded by a hash, which Parse checks. Both sides must run the same binary. Errors:
  // DataLoss.
  std::string Serialize() const;
  static absl::StatusOr<ModelPlan> Parse(std::string_view bytes);
  // Covers the records, the number of heads and the block: everything that fixes the names, shapes and first values
  // of the state, and each sublayer's gains, norm and skip. Excludes what a run may change between two checkpoints of
  // one model: dropouts, label smoothing, the longest sentence. Norm gains count only if one is not 1, second gains
  // only if one is not 0, so that other models keep the hash of checkpoints that are older than these fields.
  uint64_t Hash() const;

  // Whether Muon updates the parameter, which then has no second moment: a sublayer's matrix that products read. Adam
  // updates all others: tables, heads, the front end, vectors, the maps of several streams.
  bool uses_muon(int32_t parameter) const;
  bool is_frozen(int32_t parameter) const { return !frozen.empty() && frozen[parameter]; }

  // Returns fairseq's name, e.g. "decoder.layers.3.encoder_attn.k_proj.weight".
  std::string ParameterName(int32_t parameter) const;
  // Returns e.g. "decoder layer 3 cross-attention".
  std::string SublayerName(int32_t sublayer) const;
  int64_t ParameterElements() const;
  // Returns the sublayer's own parameter of this role, or -1.
  int32_t ParameterOf(int32_t sublayer, ParameterRole role) const;
  // Whether a stack's layers read a combination of the outputs of all layers before them.
  bool Combines(Stack stack) const {
    return (stack == Stack::kEncoder ? options.encoder : options.decoder).combine_layers;
  }
  // Whether a stack's sublayers read the sums of the blocks before them (block_reader.h).
  bool ReadsBlocks(Stack stack) const {
    return (stack == Stack::kEncoder ? options.encoder : options.decoder).reads_blocks();
  }
  // The number of sublayers of a block (of the stack's last block: at most). REQUIRES: ReadsBlocks(stack).
  int32_t BlockSublayers(Stack stack) const;
  // How many sublayers of the block that is open at `position` precede it; 0 where a block begins, and behind the
  // stack. REQUIRES: the position is inside or behind a stack that reads blocks.
  int32_t OpenSublayers(int32_t position) const;
  // Whether a stack keeps a history: tensors that several layers or blocks read.
  bool KeepsHistory(Stack stack) const { return Combines(stack) || ReadsBlocks(stack); }
  // The number of entries of the history before `position`. REQUIRES: it is inside or behind a stack with a history.
  int32_t HistoryBefore(int32_t position) const;
  // The stack whose residual sublayer is in front of `position`, or else the one that begins there.
  Stack StackBefore(int32_t position) const {
    return sublayers[sublayers[position - 1].layer >= 0 ? position - 1 : position].stack;
  }
  // The form of every norm of the model.
  NormForm norm_form() const {
    return {.centred = options.block.norm == NormKind::kLayer,
            .epsilon = static_cast<float>(options.block.norm_epsilon)};
  }
  // How far self-attention `sublayer` sees (kernels/attention_reach.h).
  int32_t Reach(int32_t sublayer) const {
    const Block& block = options.block;
    const SublayerRecord& record = sublayers[sublayer];
    const bool global = block.window == 0 || (block.global_every > 0 && record.layer % block.global_every == 0);
    if (record.kind != SublayerKind::kSelfAttention || global) return kWholeSentence;
    return record.stack == Stack::kEncoder ? block.window / 2 : block.window - 1;
  }
  // About how many keys a query of attention `sublayer` sees in a sentence of `length` rows.
  double KeysSeen(int32_t sublayer, double length) const {
    const SublayerRecord& record = sublayers[sublayer];
    const bool causal = record.kind == SublayerKind::kSelfAttention && record.stack == Stack::kDecoder;
    return std::min((causal ? 1.0 : 2.0) * Reach(sublayer) + 1, causal ? length / 2 : length);
  }
  // The parameter of the shift of the norm whose scale is the parameter `scale`; −1: norms have no shift.
  int32_t NormShift(int32_t scale) const { return options.block.norm_shift ? scale + 1 : -1; }
  // Whether a second matrix passes along a stack: a second stream or, inside a block, the sum of that block so far.
  bool HasSecond(Stack stack) const { return HasSecondStream(stack) || ReadsBlocks(stack); }
  // Whether a stack has a second stream (second_stream.h).
  bool HasSecondStream(Stack stack) const {
    return (stack == Stack::kEncoder ? options.encoder : options.decoder).second_stream_gain != 0;
  }
  const StackMethod& Method(Stack stack) const { return stack == Stack::kEncoder ? options.encoder : options.decoder; }
  // The number of a stack's residual streams (hyper_segment.cc).
  int32_t Residuals(Stack stack) const { return Method(stack).residual_streams; }
  // The number of residual streams before `position`; 1 before and after a stack.
  int32_t ResidualsBefore(int32_t position) const {
    const SublayerRecord& next = sublayers[position];
    return next.layer < 0 || begins_stack(position) ? 1 : Residuals(next.stack);
  }
  // The type in which kernels read a parameter: compute_storage for parameters that only products read (matrices,
  // tables, and biases that a product adds), fp32 for all others.
  Storage read_storage(int32_t parameter) const {
    return ReadByProductsAlone(parameter) ? compute_storage : Storage::kFloat32;
  }
  bool ReadByProductsAlone(int32_t parameter) const;
  // The type of a stack's residual stream and its gradient: compute_storage if a norm ends every sublayer, fp32 if the
  // residual stream is a sum over the whole depth or its upper part (pre-norm, no norm).
  Storage residual_storage(Stack stack) const {
    const bool closed = (stack == Stack::kEncoder ? options.encoder : options.decoder).norm == NormPlacement::kPost;
    return closed ? compute_storage : Storage::kFloat32;
  }
  // The type of the output of a segment (segment.cc) of `stack` that ends before `end`.
  Storage segment_storage(Stack stack, int32_t end) const {
    return ends_stack(end) && !KeepsHistory(stack) ? compute_storage : residual_storage(stack);
  }
  // Whether `position` is the first one after a stack.
  bool ends_stack(int32_t position) const { return position == encoder_end() || position == output_head(); }
  // Whether `sublayer` is its stack's first one with a residual connection.
  bool begins_stack(int32_t sublayer) const {
    if (sublayer == source_embedding() + 1) return options.has_encoder();
    return options.has_decoder() && sublayer == target_embedding() + 1;
  }
  // Returns the norm after the sum of a pre-norm layer's last sublayer: the norm of the layer's output if layers are
  // combined, else the norm that ends the stack. −1 if there is none, or if it is the next sublayer's norm.
  int32_t NormBehind(int32_t sublayer) const;
  // Returns the first position ≥ `position` where the list may be cut. REQUIRES: 0 ≤ position ≤ sublayers.
  int32_t NextCut(int32_t position) const;

  // Returns the end of the segment (segment.cc) that begins at `begin`: after at most `length` sublayers, and at most
  // `last`, moved to where the list may be cut. All sublayers of a segment have the same placement of norms and, in a
  // stack that reads blocks, are in the same block.
  int32_t SegmentEnd(int32_t begin, int32_t length, int32_t last) const;

  // Returns the number of consecutive parameters, from its table on, that a sublayer uses as tables: 1, or all of
  // adaptive bands; 0 without a table.
  int32_t Tables(int32_t sublayer) const;
  // Whether `sublayer` uses `parameter` as a table.
  bool UsesTable(int32_t sublayer, int32_t parameter) const {
    const int32_t table = sublayers[sublayer].table;
    return table >= 0 && table <= parameter && parameter < table + Tables(sublayer);
  }
  // Returns the sublayers that use `parameter` as a table, ascending: usually one, up to three for a tied embedding.
  std::vector<int32_t> Uses(int32_t parameter) const;

  int32_t source_embedding() const { return options.has_encoder() ? 0 : -1; }  // -1: none
  // The first position behind the encoder; 0 without one.
  int32_t encoder_end() const { return options.has_encoder() ? 1 + options.encoder_sublayers() : 0; }
  int32_t target_embedding() const { return options.has_decoder() ? encoder_end() : -1; }  // -1: none
  int32_t output_head() const { return static_cast<int32_t>(sublayers.size()) - 1; }
};

}  // namespace hadal
