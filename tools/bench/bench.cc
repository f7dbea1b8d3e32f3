// `hadal bench step [--d-model D --encoder-layers N …] [--threads T] [--repeats R] [--json]` measures a training step
// against the GEMM limit (tools/bench/bench_step.h). `hadal bench profile FILES… [--set a.b=c]… [--out FILE]` measures
// the costs that the planner needs (tools/bench/bench_profile.h). Both run alone or under mpirun.
#include "tools/commands.h"

#include <unistd.h>

#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "google/protobuf/text_format.h"
#include "launch/device_choice.h"
#include "launch/world.h"
#include "layers/method_presets.h"
#include "layers/model_plan.h"
#include "runtime/comm/collectives.h"
#include "runtime/data/corpus.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"
#include "tools/bench/bench_kernels.h"
#include "tools/bench/bench_profile.h"
#include "tools/bench/bench_step.h"
#include "tools/config/config_loading.h"
#include "tools/config/config_origin.h"
#include "tools/config/run_options.h"
#include "tools/device_flags.h"
#include "tools/output/staged_output.h"
#include "tools/plan/plan_report.h"

namespace hadal {
namespace {

struct BenchArguments {
  BenchStepOptions step;
  std::string method = "deepnorm";
  std::string schedule = "1f1b";
  bool no_limit = false;
  int threads = 0;
  DeviceRequest device;
  TrainOptions run;  // precision, weight_gradient_batch
};

absl::Status BenchInWorld(BenchArguments arguments, World& world) {
  HADAL_ASSIGN_OR_RETURN(arguments.step.method, AsCommonError(ParseResidualMethod(arguments.method)));
  HADAL_ASSIGN_OR_RETURN(arguments.step.schedule, AsCommonError(ParseScheduleKind(arguments.schedule)));
  arguments.step.limit = !arguments.no_limit;
  const ModelPlan plan = ModelPlan::Make(BenchModel(arguments.step));
  Collectives collectives(world.communicator(), absl::Seconds(600));
  HADAL_ASSIGN_OR_RETURN(const ChosenDevice chosen,
                         ChooseDevice(arguments.device, plan, arguments.run, world, collectives));
  arguments.step.compute_storage = chosen.compute_storage;
  if (!chosen.notice.empty()) std::cerr << chosen.notice << "\n";
  return RunBenchStep(arguments.step, world.communicator(), chosen.StreamFor(world.stream()), std::cout);
}

struct ProfileArguments {
  ConfigArguments config;
  BenchProfileOptions options;
  std::string out;
  int threads = 0;
  bool products = false;  // only their speed
};

constexpr char kProfileBeginning[] = "# proto-file: configs/machine.proto\n# proto-message: hadal.config.Profile\n";

absl::Status CheckProfileOutput(const ProfileArguments& arguments) {
  return CheckOutput(arguments.out, {.inputs = arguments.config.files, .is_own = [](std::string_view text) {
                                       return text.starts_with(kProfileBeginning);
                                     }});
}

// What each rank of a run carries for its checkpoints: the vocabularies' files.
absl::StatusOr<int64_t> CarriedBytes(const Corpus& corpus) {
  HADAL_ASSIGN_OR_RETURN(const CorpusVocabularies vocabularies, LoadVocabularies(corpus));
  const int64_t target = std::ssize(vocabularies.target.contents());
  return corpus.manifest().shares_vocabulary() ? target : target + std::ssize(vocabularies.source.contents());
}

absl::Status ReadConfig(ProfileArguments& arguments) {
  HADAL_ASSIGN_OR_RETURN(const config::RunConfig config,
                         LoadConfig(arguments.config.files, arguments.config.overrides));
  const absl::StatusOr<RunOptions> run = MakeRunOptions(config);
  HADAL_RETURN_IF_ERROR(WithOrigins(run.status(), arguments.config.files, arguments.config.overrides));
  arguments.options.train = run->train;
  return absl::OkStatus();
}

// The corpus of the configuration, whose vocabularies the options then have.
absl::StatusOr<Corpus> OpenCorpus(ProfileArguments& arguments, int rank) {
  TrainOptions& train = arguments.options.train;
  if (train.train_data.empty()) {
    return InvalidArgumentError("data.train is not set; a profile measures the micro-batches of a prepared corpus");
  }
  if (!arguments.out.empty() && rank == 0) HADAL_RETURN_IF_ERROR(CheckProfileOutput(arguments));
  HADAL_ASSIGN_OR_RETURN(Corpus corpus, Corpus::Open(train.train_data));
  HADAL_RETURN_IF_ERROR(FollowCorpus(corpus.manifest(), train));
  HADAL_RETURN_IF_ERROR(ValidateModelOptions(train.model));
  HADAL_ASSIGN_OR_RETURN(arguments.options.carried_bytes, CarriedBytes(corpus));
  return corpus;
}

absl::Status ProfileInWorld(ProfileArguments arguments, World& world) {
  Collectives collectives(world.communicator(), absl::Minutes(10));
  HADAL_RETURN_IF_ERROR(collectives.AllOk(ReadConfig(arguments), "reading the configuration"));
  if (arguments.products) {
    const TrainOptions& train = arguments.options.train;
    HADAL_RETURN_IF_ERROR(collectives.Barrier("before the products"));
    const double mine[] = {MeasureRate(train.model, CapacityOf(train.model, train.batch), world.stream()).gflops};
    HADAL_ASSIGN_OR_RETURN(const auto all, collectives.AllGather(mine, "the speed of products"));
    double sum = 0;
    for (const std::vector<double>& of_rank : all) sum += of_rank[0];
    if (world.rank() == 0)
      std::cout << absl::StrFormat("%.2f GFLOP/s per rank\n", sum / static_cast<double>(all.size()));
    return absl::OkStatus();
  }
  const absl::StatusOr<Corpus> corpus = OpenCorpus(arguments, world.rank());
  HADAL_RETURN_IF_ERROR(collectives.AllOk(corpus.status(), "opening the corpus"));
  HADAL_ASSIGN_OR_RETURN(const config::Profile profile,
                         MeasureProfile(arguments.options, *corpus, world.communicator(), world.stream()));
  if (world.rank() != 0) return absl::OkStatus();
  std::string text;
  google::protobuf::TextFormat::PrintToString(profile, &text);
  text = absl::StrCat(kProfileBeginning, text);
  if (!arguments.out.empty()) return ReplaceFile(arguments.out, text, absl::StrCat(getpid()));
  std::cout << text << std::flush;
  return absl::OkStatus();
}

void AddProfileCommand(Command bench, int& exit_code) {
  Command command = bench.AddCommand("profile", "Measure the costs that `hadal plan --profile` needs");
  auto arguments = std::make_shared<ProfileArguments>();
  AddConfigArguments(command, arguments->config);
  command.AddOption("-o,--out", arguments->out, "File (default: standard output)");
  command.AddOption("--threads", arguments->threads, "CPU threads per rank (default: its share of the CPUs)")
      .InRange(0, 1024);
  command.AddNumber("--halvings", arguments->options.halvings,
                    "Number of halvings: also measure micro-batches of 1/2, 1/4, ... of the tokens", 0, 8);
  command.AddNumber("--rounds", arguments->options.rounds, "Measured rounds; results are medians", 1, 1000);
  command.AddFlag("--products", arguments->products,
                  "Measure only the speed of matrix products: what to divide two runs by on a machine that is busy");
  command.Runs([arguments, &exit_code] {
    exit_code = RunInWorld("bench profile", arguments->threads,
                           [&](World& world) { return ProfileInWorld(*arguments, world); });
  });
}

struct KernelArguments {
  BenchKernelsOptions options;
  DeviceRequest device;
  int threads = 0;
  int64_t large_mib = 256;
  std::vector<int64_t> rows;  // empty: by the device
};

absl::Status KernelsInWorld(KernelArguments arguments, World& world) {
  if (world.size() > 1) {
    return InvalidArgumentError("bench kernels measures one device; start it without mpirun or srun");
  }
  arguments.options.shapes.large_bytes = arguments.large_mib << 20;
  Collectives collectives(world.communicator(), absl::Minutes(10));
  // Any model that trains on every device: kernels have none.
  const ModelPlan plan = ModelPlan::Make(BenchModel({}));
  HADAL_ASSIGN_OR_RETURN(const ChosenDevice chosen, ChooseDevice(arguments.device, plan, {}, world, collectives));
  std::vector<int64_t>& rows = arguments.options.shapes.rows;
  if (chosen.device == nullptr) rows = {1024};
  if (!arguments.rows.empty()) rows = arguments.rows;
  return RunBenchKernels(arguments.options, chosen.StreamFor(world.stream()), std::cout);
}

void AddKernelsCommand(Command bench, int& exit_code) {
  Command command = bench.AddCommand("kernels", "Measure each kernel and compare it with the copy bandwidth");
  auto arguments = std::make_shared<KernelArguments>();
  BenchKernelsOptions& options = arguments->options;
  AddDeviceFlags(command, arguments->device);
  command.AddOption("--only", options.only, "Only kernels whose names begin with this, such as \"residual_norm\"");
  command.AddOption("--rows", arguments->rows, "Rows of the model's own shapes (default: 4096,16384; on the CPU 1024)")
      .SplitAt(',')
      .InRange(1, 1 << 24);
  const auto of_whole_heads = [](const std::string& text) {
    int64_t width = 0;
    const bool fits = absl::SimpleAtoi(text, &width) && width >= 64 && width <= 1024 && width % 64 == 0;
    return fits ? std::string() : absl::StrCat(text, " is no multiple of 64 from 64 to 1024");
  };
  command
      .AddOption("--widths", options.shapes.widths, "Their columns: multiples of 64, at most 1024 (default: 512,1024)")
      .SplitAt(',')
      .Checked(of_whole_heads);
  command.AddNumber("--large-mib", arguments->large_mib, "MiB of each tensor of the cases on large tensors", 1,
                    1 << 16);
  command.AddNumber("--repeats", options.repeats, "Timed batches; the result is the median", 1, 1000);
  command.AddOption("--threads", arguments->threads, "CPU threads (default: all)").InRange(0, 1024);
  command.AddFlag("--json", options.json, "Print everything as JSON");
  command.Runs([arguments, &exit_code] {
    exit_code = RunInWorld("bench kernels", arguments->threads,
                           [&](World& world) { return KernelsInWorld(*arguments, world); });
  });
}

void AddModelFlags(Command command, BenchStepOptions& step) {
  const auto add = [&](const char* name, int32_t& value, const char* text, int least = 1, int most = 1 << 20) {
    command.AddNumber(name, value, text, least, most);
  };
  add("--d-model", step.d_model, "Hidden size");
  command.AddOption("--d-ff", step.d_ff, "Feed-forward size (default: 4 times the hidden size)").InRange(1, 1 << 20);
  add("--heads", step.heads, "Attention heads");
  add("--encoder-layers", step.encoder_layers, "Encoder layers, of two sublayers each");
  add("--decoder-layers", step.decoder_layers, "Decoder layers, of three sublayers each");
  add("--vocabulary", step.vocabulary, "Tokens, shared by both sides", 8);
  add("--tokens", step.tokens, "Target tokens of a micro-batch; as many source tokens");
  add("--micro-batches", step.micro_batches, "Micro-batches of a step");
  add("--length", step.length, "Tokens of every sentence", 4, 4096);
  command.AddFlag("--mixed-length", step.mixed_length, "Lengths spread evenly around --length");
  command.AddNumber("--dropout", step.dropout, "Dropout on sublayer outputs, attention and activations", 0.0, 0.9);
}

}  // namespace

void AddBenchCommand(Command app, int& exit_code) {
  Command bench = app.AddCommand("bench", "Measure how fast this machine trains");
  bench.RequireCommand();
  Command command = bench.AddCommand("step", "Measure a training step and the GEMM limit of its products");
  auto arguments = std::make_shared<BenchArguments>();
  BenchStepOptions& step = arguments->step;
  AddModelFlags(command, step);
  command.AddOption("--method", arguments->method, "As model.residual.method of a run's config").ShowDefault();
  command
      .AddOption("--schedule", arguments->schedule,
                 "Schedule of the pipeline: " + absl::StrJoin(AllScheduleNames(), ", "))
      .ShowDefault();
  command.AddNumber("--chunks", step.chunks, "Chunks per rank", 1, 64);
  command.AddNumber("--recompute-every", step.recompute_every, "Recomputation every k sublayers; 0: off", 0, 1 << 20);
  command.AddOption("--threads", arguments->threads, "CPU threads per rank (default: its share of the CPUs)")
      .InRange(0, 1024);
  command.AddNumber("--repeats", step.repeats, "Measured pairs of step and limit", 1, 1000);
  AddDeviceFlags(command, arguments->device);
  command.AddChoice<TrainingPrecision>("--precision", arguments->run.precision,
                                       "As device.precision of a run's config (default: auto)",
                                       {{"auto", TrainingPrecision::kAuto},
                                        {"fp32", TrainingPrecision::kFp32},
                                        {"tf32", TrainingPrecision::kTf32},
                                        {"bf16", TrainingPrecision::kBf16}});
  command.AddFlag(
      "--no-graphs", [arguments] { arguments->step.graphs = GraphMode::kOff; }, "On a GPU, one launch per kernel");
  command.AddFlag("--overlap-weight-gradients", step.overlap_weight_gradients, "As the field of a config's device");
  command.AddNumber("--weight-gradient-batch", arguments->run.weight_gradient_batch, "As device.weight_gradient_batch",
                    1, 16);
  command.AddFlag("--no-limit", arguments->no_limit, "Measure only the step");
  command.AddFlag("--json", step.json, "Print everything as JSON");
  command.Runs([arguments, &exit_code] {
    exit_code =
        RunInWorld("bench step", arguments->threads, [&](World& world) { return BenchInWorld(*arguments, world); });
  });
  AddKernelsCommand(bench, exit_code);
  AddProfileCommand(bench, exit_code);
}

}  // namespace hadal
