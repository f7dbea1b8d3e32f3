#include "tools/plan/cost_files.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/hyper_connection.h"
#include "layers/adaptive_bands.h"
#include "pipeline/layout/pipeline_layout.h"
#include "pipeline/stage/graph_cache.h"
#include "runtime/check.h"
#include "runtime/data/corpus_manifest.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"
#include "tools/config/run_options.h"
#include "tools/plan/profiled_costs.h"

namespace hadal {
namespace {

// Forward and backward of a linear layer: the output; the input's gradient and the weight's.
struct ThereAndBack {
  double forward = 0, backward = 0;

  void Add(const ThereAndBack& other) {
    forward += other.forward;
    backward += other.backward;
  }
};

class RooflineCosts : public StepCosts {
 public:
  explicit RooflineCosts(const Machine& machine)
      : machine_(machine), element_bytes_(machine.precision == Precision::kBf16 ? 2 : 4) {}

  absl::StatusOr<std::vector<SublayerSeconds>> Sublayers(const ModelPlan& plan, const ActivationCapacity& capacity,
                                                         bool recompute) const override {
    // Equal sublayers cost the same, so one of each kind per stack is computed, with and without a window.
    constexpr int kKinds = 6, kStacks = 2;
    std::vector<SublayerSeconds> of_kind(2 * kKinds * kStacks, {-1, 0, 0});
    std::vector<SublayerSeconds> seconds;
    for (const SublayerRecord& record : plan.sublayers) {
      const auto sublayer = static_cast<int32_t>(seconds.size());
      const int kind = kStacks * static_cast<int>(record.kind) + static_cast<int>(record.stack);
      SublayerSeconds& cost = of_kind[kind + (plan.Reach(sublayer) == kWholeSentence ? 0 : kKinds * kStacks)];
      if (cost.forward < 0) {
        cost = Cost(plan.options, record, plan.KeysSeen(sublayer, kTypicalSentenceRows), capacity);
      }
      seconds.push_back(cost);
      const bool repeats = recompute && record.layer >= 0;
      if (record.layer >= 0 && plan.ReadsBlocks(record.stack)) {
        const ThereAndBack reads = BlockReads(plan, sublayer, static_cast<double>(capacity.rows(record.stack)));
        seconds.back().forward += reads.forward;
        seconds.back().backward += reads.backward;
      }
      if (const int32_t weights = plan.ParameterOf(sublayer, ParameterRole::kCombinationWeight); weights >= 0) {
        const auto entries = static_cast<double>(plan.parameters[weights].elements());
        const double pass = PassSeconds(static_cast<double>(capacity.rows(record.stack)) * plan.options.d_model * 4);
        seconds.back().forward += (entries + 1) * pass;
        seconds.back().backward += (3 * entries + 1) * pass;  // its weights' gradients, and those of what it reads
      }
      seconds.back().recompute = repeats ? seconds.back().forward : 0;
    }
    return seconds;
  }

  // Zeroing and norm read and write a gradient. Adam reads it, two moments and a weight, and writes the last three, and
  // also the bf16 weight if there is one.
  double UpdateSeconds(double held, double updated) const override {
    const double update_bytes = 7 * 4.0 + (machine_.precision == Precision::kBf16 ? 2 : 0);
    return (held * 2 * 4.0 + updated * update_bytes) / machine_.memory_bytes_per_second;
  }
  // An iteration: three products, on a CPU two of them by halves, and two passes over A and A².
  double OrthogonalizeSeconds(const ParameterRecord& matrix, int32_t steps) const override {
    const auto n = static_cast<double>(std::min(matrix.rows, matrix.columns));
    const auto m = static_cast<double>(std::max(matrix.rows, matrix.columns));
    const auto product = [&](double of_m, double k) { return ProductSeconds(machine_, n, of_m, k, element_bytes_); };
    const double halves = machine_.precision == Precision::kBf16 ? 1 : 0.5;
    return steps * (halves * (product(n, m) + product(n, n)) + product(m, n) + 2 * PassSeconds(3 * n * n * 4));
  }
  double SumSeconds() const override { return 3 * 4.0 / machine_.memory_bytes_per_second; }
  LinkRate Link(bool leaves_node) const override { return leaves_node ? machine_.inter_node : machine_.intra_node; }
  double GapSeconds() const override { return machine_.gap_seconds; }
  double CallSeconds() const override { return machine_.call_seconds; }
  double GroupedCallSeconds() const override { return machine_.grouped_call_seconds; }
  bool overlap() const override { return machine_.overlap; }
  int32_t backward_parts() const override { return GraphCache::kMostParts; }
  double peak_flops() const override { return machine_.peak_flops; }
  std::string Describe() const override { return absl::StrCat("roofline of ", machine_.name); }

 private:
  double PassSeconds(double bytes) const {
    return std::max(bytes / machine_.memory_bytes_per_second, machine_.kernel_seconds);
  }

  ThereAndBack Linear(double rows, double in, double out) const {
    const auto product = [&](double m, double n, double k) {
      return ProductSeconds(machine_, m, n, k, element_bytes_);
    };
    return {product(rows, out, in), product(rows, in, out) + product(out, in, rows)};
  }

  // Two products forward; backward repeats one of them and computes four more.
  // `seen`: the keys that a query sees.
  ThereAndBack Attention(double query_rows, double key_rows, double width, double seen) const {
    const double flops = 2 * 2 * query_rows * seen * width;
    const double bytes = element_bytes_ * width * (2 * query_rows + 2 * key_rows);
    const auto kernel = [&](double work, double traffic) {
      return std::max(work / machine_.attention_flops, PassSeconds(traffic));
    };
    return {kernel(flops, bytes), kernel(2.5 * flops, 2 * bytes)};
  }

  // Forward reads the branch and the residual and writes the new residual; backward reads the gradient and the sum and
  // writes two gradients.
  ThereAndBack Joint(double rows, double width) const {
    return {PassSeconds(3 * rows * width * element_bytes_), PassSeconds(4 * rows * width * element_bytes_)};
  }

  // In place of Joint with n streams (layers/hyper_segment.cc): the kernels that read and write them, the product that
  // makes the maps, the norm of what the sublayer reads, and the pass that makes its result. All in fp32.
  ThereAndBack Residuals(double rows, double width, const StackMethod& method) const {
    const double n = method.residual_streams;
    const auto maps = static_cast<double>(HyperLogits(method.residual_mixing, method.residual_streams));
    const auto product = [&](double m, double k, double of) { return ProductSeconds(machine_, m, k, of, 4); };
    const auto pass = [&](double trips) { return PassSeconds(trips * rows * width * 4); };
    return {pass(n + 1) + pass(2 * n + 1) + pass(2) + pass(3) + product(rows, maps, n * width),
            pass(3 * n + 2) + pass(3 * n + 1) + pass(3) + pass(3) + product(rows, n * width, maps) +
                product(maps, n * width, rows)};
  }

  // Beside Joint in a stack that reads blocks (layers/block_reading_segment.cc), in fp32: the sublayer's share of the
  // pass over the finished sources, the open sum, and the norm of what it reads.
  ThereAndBack BlockReads(const ModelPlan& plan, int32_t sublayer, double rows) const {
    const double sources =
        static_cast<double>(plan.HistoryBefore(sublayer)) / plan.BlockSublayers(plan.sublayers[sublayer].stack);
    const bool open = plan.OpenSublayers(sublayer) > 0;
    const auto pass = [&](double trips) { return PassSeconds(trips * rows * plan.options.d_model * 4); };
    return {pass(sources + 1) + (open ? pass(3) : 0) + pass(2), pass(3 * sources + 1) + (open ? pass(6) : 0) + pass(3)};
  }

  // A norm of each head of a matrix (kernels/head_norm.h); backward computes it again.
  ThereAndBack HeadNorm(double rows, double width) const {
    const auto pass = [&](double trips) { return PassSeconds(trips * rows * width * element_bytes_); };
    return {pass(2), pass(2) + pass(3)};
  }

  SublayerSeconds Cost(const ModelOptions& model, const SublayerRecord& record, double seen,
                       const ActivationCapacity& capacity) const {
    const double d = model.d_model, q = model.query_width(), k = model.key_width();
    const double source = static_cast<double>(capacity.source_rows);
    const double rows = static_cast<double>(capacity.rows(record.stack));
    ThereAndBack sum;
    switch (record.kind) {
      case SublayerKind::kSourceEmbedding:
        if (model.reads_speech()) {
          const double channels = model.front_end_channels;
          sum.Add(Linear(2 * rows, 5.0 * model.frame_width, channels));
          sum.Add(Linear(rows, 5 * channels / 2, 2 * d));
          return {sum.forward, 0, sum.backward};
        }
        [[fallthrough]];
      case SublayerKind::kTargetEmbedding:
        return {PassSeconds(2 * rows * d * element_bytes_), 0, PassSeconds(3 * rows * d * 4)};
      case SublayerKind::kSelfAttention:
        sum.Add(Linear(rows, d, q + 2 * k + (model.block.attention_gate ? q : 0)));
        if (model.block.query_key_norm) sum.Add(HeadNorm(rows, q)), sum.Add(HeadNorm(rows, k));
        sum.Add(Attention(rows, rows, q, seen));
        if (model.block.attention_gate) {
          sum.Add({PassSeconds(3 * rows * q * element_bytes_), PassSeconds(5 * rows * q * element_bytes_)});
        }
        sum.Add(Linear(rows, q, d));
        break;
      case SublayerKind::kCrossAttention:
        sum.Add(Linear(rows, d, q));
        sum.Add(Linear(source, d, 2 * k));
        if (model.block.query_key_norm) sum.Add(HeadNorm(rows, q)), sum.Add(HeadNorm(source, k));
        sum.Add(Attention(rows, source, q, seen));
        sum.Add(Linear(rows, q, d));
        break;
      case SublayerKind::kFeedForward:
        sum.Add(Linear(rows, d, (model.feed_forward_products() - 1.0) * model.d_ff));
        if (!model.fuses_activation()) {
          const double passes = model.block.gated ? 3 : 2, read = rows * model.d_ff * element_bytes_;
          sum.Add({PassSeconds(passes * read), PassSeconds((2 * passes - 1) * read)});
        }
        sum.Add(Linear(rows, model.d_ff, d));
        break;
      case SublayerKind::kOutputHead: {
        ThereAndBack products;
        double logits = 0;
        const auto add = [&](double of_rows, double in, double out) { products.Add(Linear(of_rows, in, out)); };
        if (!model.has_decoder()) add(rows * kTypicalMaskedShare, d, d);
        for (const AdaptiveBand& band : AdaptiveBands(model)) {
          const double of_rows = band.index == 0 ? rows : rows * TokenShare(band, model);
          const double out = band.words + (band.index == 0 ? model.adaptive_cutoffs.count : 0);
          if (band.index > 0) add(of_rows, d, band.width);
          add(of_rows, band.width, out);
          logits += of_rows * out;
        }
        if (!model.adaptive()) {
          const double of_rows = model.has_decoder() ? rows : rows * kTypicalMaskedShare;
          add(of_rows, d, model.target_vocabulary);
          logits = of_rows * model.target_vocabulary;
        }
        const double loss = PassSeconds(2 * logits * element_bytes_);
        return {products.forward + products.backward + loss, 0, 0};
      }
    }
    const StackMethod& method = record.stack == Stack::kEncoder ? model.encoder : model.decoder;
    sum.Add(method.residual_streams > 1 ? Residuals(rows, d, method) : Joint(rows, d));
    return {sum.forward, 0, sum.backward};
  }

  const Machine machine_;
  const double element_bytes_;
};

constexpr int64_t kMostCostBytes = int64_t{1} << 24;

absl::Status Copy(const std::string& from, const std::string& to) {
  if (from.empty()) return absl::OkStatus();
  HADAL_ASSIGN_OR_RETURN(const std::string text, ReadFile(from, kMostCostBytes));
  return ReplaceFile(to, text, absl::StrCat(getpid()));
}

}  // namespace

double ProductSeconds(const Machine& machine, double m, double n, double k, double element_bytes) {
  const double tile = machine.matmul_tile, units = machine.matmul_units;
  const double outputs = std::ceil(m / tile) * std::ceil(n / tile);
  const double most_splits = std::max(1.0, std::floor(k / (4 * tile)));
  const double splits = std::clamp(std::floor(units / outputs), 1.0, most_splits);
  const double tiles = outputs * splits;
  const double waves = std::ceil(tiles / units);
  const double tile_flops = 2 * tile * tile * k / splits;
  const double compute = waves * tile_flops * units / machine.matmul_flops;
  const double bytes = element_bytes * (m * k + k * n + m * n) + (splits > 1 ? 4 * splits * m * n : 0);
  return std::max({compute, bytes / machine.memory_bytes_per_second, machine.kernel_seconds});
}

absl::StatusOr<std::unique_ptr<StepCosts>> MakeRooflineCosts(const Machine& machine) {
  if (machine.peak_flops <= 0 || machine.memory_bytes_per_second <= 0) {
    return InvalidArgumentError(
        machine.name,
        " is described without the rates of its devices (peak_tflops of its precision, "
        "memory_gb_per_second); measure them with `hadal bench profile --out FILE` and give --profile FILE");
  }
  return std::make_unique<RooflineCosts>(machine);
}

void AddCostFlags(Command command, const std::string& purpose, CostFiles& files) {
  command.AddOption("--profile", files.profile, absl::StrCat("Costs measured by `hadal bench profile`: ", purpose));
  command.AddOption("--machine", files.machine, absl::StrCat("A machine's description (configs/machines): ", purpose));
}

absl::StatusOr<std::unique_ptr<StepCosts>> LoadedCosts::For(const ModelOptions& model) const {
  if (profile) return MakeProfiledCosts(*profile, model, machine);
  HADAL_CHECK(machine.has_value());
  return MakeRooflineCosts(*machine);
}

absl::StatusOr<LoadedCosts> LoadCosts(const CostFiles& files) {
  LoadedCosts costs;
  if (!files.profile.empty()) {
    HADAL_ASSIGN_OR_RETURN(costs.profile, LoadProfile(files.profile));
  }
  if (!files.machine.empty()) {
    HADAL_ASSIGN_OR_RETURN(costs.machine, LoadMachine(files.machine));
  }
  return costs;
}

absl::Status FollowPreparedCorpus(TrainOptions& options) {
  constexpr int64_t kMostManifestBytes = int64_t{1} << 26;
  if (options.train_data.empty()) {
    return InvalidArgumentError(
        "data.train is not set; give the prefix of a prepared corpus, or pass --vocabulary N to `hadal plan`");
  }
  const std::string path = options.train_data + ".json";
  const absl::StatusOr<std::string> json = ReadFile(path, kMostManifestBytes);
  if (!json.ok()) {
    return InvalidArgumentError("the vocabulary's size comes from the prepared corpus data.train = \"",
                                options.train_data, "\", which cannot be read (", json.status().message(),
                                "). Prepare it, or give `hadal plan` --vocabulary N.");
  }
  HADAL_ASSIGN_OR_RETURN(const CorpusManifest manifest, ManifestFromJson(*json, path));
  return FollowCorpus(manifest, options);
}

CostFiles StoredCosts(const std::string& run_directory) {
  const auto there = [&](const char* name) {
    const std::string path = JoinPath(run_directory, name);
    return PathExists(path) ? path : std::string();
  };
  return {.profile = there(kProfileName), .machine = there(kMachineName)};
}

absl::Status StoreCosts(const CostFiles& files, const std::string& run_directory) {
  HADAL_RETURN_IF_ERROR(Copy(files.profile, JoinPath(run_directory, kProfileName)));
  return Copy(files.machine, JoinPath(run_directory, kMachineName));
}

}  // namespace hadal
