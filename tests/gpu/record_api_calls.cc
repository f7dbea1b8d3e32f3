// Prints a C++ source with the calls that a rank makes on its device, which tests/gpu/api_calls_test.cc repeats:
//   - kernels on a second queue beside the main order, with events between them;
//   - training in bf16 with graphs, validations and translations, as one of four ranks (two stages, two replicas) that
//     exchange through the host. From opening the device to closing it.
// The device is the emulated one.
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include "kernels/add.h"
#include "runtime/arena.h"
#include "runtime/side_queue.h"
#include "tests/integration/pipeline_run.h"
#include "tests/support/api_recording.h"
#include "tests/support/test_device.h"

namespace hadal::testing {
namespace {

constexpr int kVocabulary = 61;

void RunBesideTheMainOrder(Device& device) {
  const Stream stream = Stream::On(device, 1);
  ArenaLayout layout;
  const ArenaSlice slice = layout.Reserve<float>("numbers", 4);
  const Arena arena = *Arena::Allocate(layout, &device);
  const Vector numbers = {arena.Get<float>(slice), 4};
  const std::unique_ptr<SideQueue> queue = *SideQueue::Create(device, /*pieces=*/2, /*most_under_way=*/1);
  Add(stream, {.sum = numbers, .values = numbers});
  queue->MarkReady(0, 2);
  for (const size_t piece : {0, 1}) {
    Add(queue->Begin(stream, piece), {.sum = numbers, .values = numbers});
    queue->End(piece);
    while (!queue->Done(piece)) std::this_thread::yield();
  }
}

std::string Record() {
  RunSpec spec;
  spec.model = SmallModel(ResidualMethod::kDeepNorm,
                          {.encoder_layers = 2, .decoder_layers = 2, .d_model = 64, .vocabulary = kVocabulary});
  spec.batch = {.micro_batches = 4, .source_tokens = 16, .target_tokens = 20};
  spec.pipeline.bucket_rows = 8;
  spec.pipeline.replicas = 2;
  spec.compute_storage = Storage::kBFloat16;
  spec.validate_every_step = true;
  spec.bleu_sentences = 2;
  spec.ranks = 4;
  std::unique_ptr<ApiRecording> recording;  // of rank 0's thread
  spec.make_device = [&](int rank) {
    if (rank == 0) {
      recording = std::make_unique<ApiRecording>();
      RunBesideTheMainOrder(*MakeTestDevice(/*seed=*/5));
    }
    return MakeTestDevice(7 + rank);
  };
  Train(spec, RandomCorpus(60, 7, kVocabulary, 5));
  return recording->text();
}

}  // namespace
}  // namespace hadal::testing

int main() {
  const std::string calls = hadal::testing::Record();
  std::printf(
      "#include \"tests/gpu/recorded_api_calls.h\"\n\nnamespace hadal::testing {\n"
      "const char kRecordedApiCalls[] = R\"calls(%s)calls\";\n}  // namespace hadal::testing\n",
      calls.c_str());
}
