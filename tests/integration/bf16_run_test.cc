// Whole training runs in bf16 on a device beside the same in fp32 on the CPU.
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pipeline/trainer.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/compute_thread.h"
#include "runtime/status_macros.h"
#include "tests/integration/pipeline_run.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_device.h"

namespace hadal::testing {
namespace {

constexpr int kVocabulary = 61;

RunSpec SmallRun(ResidualMethod method) {
  RunSpec spec;
  spec.model = SmallModel(method, 32, kVocabulary);
  spec.model.encoder_layers = spec.model.decoder_layers = 2;
  ApplyResidualMethod(method, spec.model);
  spec.batch = {.micro_batches = 2, .source_tokens = 20, .target_tokens = 20};
  spec.optimizer.clip_norm = 0.5;
  spec.steps = 2;
  return spec;
}

RunSpec InBf16(RunSpec spec) {
  spec.compute_storage = Storage::kBFloat16;
  spec.make_device = [](int rank) { return MakeTestDevice(7 + rank); };
  return spec;
}

Corpus SmallCorpus() { return RandomCorpus(60, 9, kVocabulary, 5); }

TEST(Bf16RunTest, Measure) {
  const Corpus corpus = SmallCorpus();
  for (const ResidualMethod method :
       {ResidualMethod::kDeepNorm, ResidualMethod::kPostLn, ResidualMethod::kPreLn, ResidualMethod::kReZero,
        ResidualMethod::kBranchNorm, ResidualMethod::kB2t, ResidualMethod::kSubLn, ResidualMethod::kTFixup,
        ResidualMethod::kAdmin, ResidualMethod::kNormFormer}) {
    RunSpec spec = SmallRun(method);
    spec.steps = 20;
    const RunOutcome cpu = Train(spec, corpus), device = Train(InBf16(spec), corpus);
    double worst = 0, mean = 0, norm = 0;
    for (size_t i = 0; i < cpu.loss.size(); ++i) {
      worst = std::max(worst, std::abs(device.loss[i] / cpu.loss[i] - 1));
      mean += device.loss[i] / cpu.loss[i] - 1;
      norm = std::max(norm, std::abs(device.gradient_norm[i] / cpu.gradient_norm[i] - 1));
    }
    std::printf("%-12s worst %.2e mean %+.2e last %.4f vs %.4f norm %.2e\n",
                std::string(ResidualMethodName(method)).c_str(), worst, mean / 20, device.loss.back(), cpu.loss.back(),
                norm);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace hadal::testing
