// A device that hangs ends its process with exit code 5 and says what it waits for, wherever a run waits for it: at its
// start, in a step, a validation, a translation, a save, in launches that the driver blocks, and at the end. Over an
// emulated CUDA runtime whose calls are all stuck once one waits for the device.
#include <cstdlib>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "launch/device_choice.h"
#include "launch/exit_code.h"
#include "pipeline/decode/decoder.h"
#include "pipeline/validator.h"
#include "runtime/comm/in_process_communicator.h"
#include "tests/integration/small_trainer.h"
#include "tests/support/emulated_cuda.h"
#include "tests/support/recorded_syncs.h"
#include "tests/support/temporary_directory.h"

namespace hadal::testing {
namespace {

using ::testing::ExitedWithCode;

constexpr int kTimeoutSeconds = 5;       // a step that does not hang must end within it, on a busy machine, too
constexpr int kShortTimeoutSeconds = 1;  // where there is no step

void Hang() { EmulatedCuda::Instance().HangAfter(0); }

// Hangs once the first step has been reported. (Its validation comes next.)
class HangAfterStep final : public MetricsSink {
 public:
  void OnStep(const StepMetrics& /*metrics*/) override { Hang(); }
};

// Hangs once the first validation has been reported. (Its save comes next.)
class HangAfterValidation final : public MetricsSink {
 public:
  void OnValidation(const ValidationMetrics& /*metrics*/) override { Hang(); }
};

class StalledDeviceTest : public ::testing::Test {
 protected:
  StalledDeviceTest() {
    const RunSpec spec = SmallRun(ResidualMethod::kDeepNorm);
    options_.model = spec.model;
    options_.batch = spec.batch;
    options_.optimizer = spec.optimizer;
    options_.pipeline.wait_timeout_seconds = kTimeoutSeconds;
    options_.depth.enabled = false;
    options_.validation.every_steps = 1;
    options_.stop.steps = 2;
    options_.run_directory = directory_.path();
  }

  std::unique_ptr<Device> Open() {
    FoundDevice found = FindDevice({.kind = "cuda"}, ModelPlan::Make(options_.model), options_, 0);
    EXPECT_NE(found.device, nullptr) << found.facts.why_none;
    return std::move(found.device);
  }

  struct Hooks {
    std::function<void(int64_t step)> before_step;
    TranslateValidation translate;
  };
  // Trains, in the child process of a death test. Exits with 0 if nothing ends it.
  void Train(MetricsSink& sink, const Hooks& hooks) {
    const std::unique_ptr<Device> device = Open();
    const Corpus corpus = SmallCorpus();
    InProcessWorld world(1);
    const TrainingSurroundings surroundings{.communicator = world.communicator(0),
                                            .stream = Stream::On(*device, 1),
                                            .train = corpus,
                                            .validation = &corpus,
                                            .sink = sink,
                                            .before_step = hooks.before_step,
                                            .validation_bleu = hooks.translate};
    const absl::Status status = WithTrainer(options_, surroundings, [](Trainer& trainer) {
      const absl::Status ended = trainer.Run().status();
      if (ended.ok()) std::exit(0);
      return ended;
    });
    FAIL() << status;
  }

  TemporaryDirectory directory_;
  TrainOptions options_;
  TrainerRecord quiet_;
};

class StalledCallTest : public StalledDeviceTest {
 protected:
  StalledCallTest() { options_.pipeline.wait_timeout_seconds = kShortTimeoutSeconds; }
};

// What a wait of `what` prints at its end.
std::string Says(const std::string& what, int seconds = kTimeoutSeconds) {
  return absl::StrCat("hadal training .*: the device has not finished within ", seconds, "s: ", what);
}

// What the watch prints of a device that is not waited for, after twice the timeout.
std::string Ignores(const std::string& what) {
  return absl::StrCat("has not responded for ", 2 * kShortTimeoutSeconds, "s: ", what);
}

TEST_F(StalledCallTest, AtTheStart) {
  Hang();
  EXPECT_EXIT(Open(), ExitedWithCode(kExitHang), Says("opening the device", kShortTimeoutSeconds));
  EmulatedCuda::Instance().HangAfter(std::numeric_limits<int64_t>::max());
}

TEST_F(StalledDeviceTest, InAStep) {
  const Hooks hooks{.before_step = [](int64_t step) { step == 1 ? Hang() : void(); }};
  EXPECT_EXIT(Train(quiet_, hooks), ExitedWithCode(kExitHang), Says("kernels"));
}

TEST_F(StalledDeviceTest, InAValidation) {
  HangAfterStep sink;
  EXPECT_EXIT(Train(sink, {}), ExitedWithCode(kExitHang), Says("kernels"));
}

TEST_F(StalledDeviceTest, InATranslation) {
  const auto translate = [this](Engine& engine, int64_t update) -> absl::StatusOr<TranslatedValidation> {
    const ModelPlan plan = ModelPlan::Make(options_.model);
    const PipelineLayout pipeline = *MakePipelineLayout(plan, options_.batch, options_.pipeline, 1, 0);
    InProcessWorld world(1);
    const auto decoder = Decoder::Create(plan, pipeline, engine.stage().parameters(), engine.stage().stream(),
                                         world.communicator(0), {}, absl::Minutes(10));
    if (!decoder.ok()) return decoder.status();
    Hang();
    return (*decoder)->Translate(std::vector<std::vector<int32_t>>{{5, 6, 7}}, update).status();
  };
  EXPECT_EXIT(Train(quiet_, {.translate = translate}), ExitedWithCode(kExitHang), Says("(kernels|a copy)"));
}

TEST_F(StalledDeviceTest, InASave) {
  HangAfterValidation sink;
  options_.stop.steps = 1;
  EXPECT_EXIT(Train(sink, {}), ExitedWithCode(kExitHang), Says("(kernels|a copy to the host)"));
}

// Only the writing thread uses the device while the training thread waits for the file.
TEST_F(StalledDeviceTest, ASlowFileIsNotAStalledDevice) {
  constexpr int kPatientSeconds = 15;  // nothing else may take as long here, on a busy machine, too
  options_.pipeline.wait_timeout_seconds = kPatientSeconds;
  options_.stop.steps = 1;
  const auto save = [this] {
    RecordedSyncs syncs;
    syncs.Before(".safetensors", [] { absl::SleepFor(absl::Seconds(2 * kPatientSeconds + 1)); });
    Train(quiet_, {});
  };
  EXPECT_EXIT(save(), ExitedWithCode(0), "");
}

TEST_F(StalledCallTest, InTheCopiesOfAnotherThread) {
  const auto copy = [this] {
    const std::unique_ptr<Device> device = Open();
    std::byte* const memory = *device->Allocate(64);
    Hang();
    std::thread([&] {
      std::byte bytes[64];
      device->CopyOut(bytes, memory, 64);
    }).join();
  };
  EXPECT_EXIT(copy(), ExitedWithCode(kExitHang), Says("a copy to the host", kShortTimeoutSeconds));
}

// The driver holds up launches, because its queue is full: after twice the timeout.
TEST_F(StalledCallTest, InALaunch) {
  const auto launch = [this] {
    const std::unique_ptr<Device> device = Open();
    std::byte* const memory = *device->Allocate(64);
    Hang();
    for (;;) device->Clear(memory, 64);
  };
  EXPECT_EXIT(launch(), ExitedWithCode(kExitHang), Ignores("a call of its driver"));
}

// Work whose end is asked for and never waited for, as that of transfers.
TEST_F(StalledCallTest, InAnEventThatIsPolled) {
  const auto poll = [this] {
    const std::unique_ptr<Device> device = Open();
    const DeviceQueues::Event event = *device->queues().MakeEvent();
    Hang();
    device->queues().Record(event, DeviceQueues::kMain);
    while (!device->queues().Reached(event)) std::this_thread::yield();
  };
  EXPECT_EXIT(poll(), ExitedWithCode(kExitHang), Ignores(".*launched work"));
}

TEST_F(StalledCallTest, AtTheEnd) {
  EXPECT_EXIT(
      {
        std::unique_ptr<Device> device = Open();
        Hang();
        device.reset();
      },
      ExitedWithCode(kExitHang), Says("closing the device", kShortTimeoutSeconds));
}

}  // namespace
}  // namespace hadal::testing
