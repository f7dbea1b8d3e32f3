// DecodeLinks sends and receives between ranks while decoding: commands from the searching rank to all others, and over
// each border the residual stream of a step or an encoding, in the order of the commands.
//
// No deadlock with any amount of buffering: every rank executes commands in the same order, each command in ascending
// order of chunks, and a message goes from a chunk to the next. So every wait is for something earlier in that order. A
// send copies the message into a ring of buffers and returns; if the ring is full, it first waits for the oldest send.
// Threads: one. Blocking: as stated; each wait takes at most the timeout given to Bind. Errors: those of
// Communicator::Wait; of ReceiveCommand also those of DecodeCommand::Read.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "pipeline/decode/beam_search.h"
#include "pipeline/layout/decode_capacity.h"
#include "runtime/arena.h"
#include "runtime/comm/communicator.h"

namespace hadal {

// One hypothesis in one decoding step.
struct StepRow {
  int32_t token = 0;      // its newest token
  int32_t position = 0;   // of that token
  int32_t parent = 0;     // index in the lane's previous step of the hypothesis that this one extends
  int32_t cache_row = 0;  // where the token's key and value are written
  int32_t sentence = 0;   // index in the group
};

// DecodeCommand: what the rank of the output head, which runs the search (decode_driver.h), sends to all ranks:
// encode a group of sentences, execute one decoding step of a group, or end.
//
// Commands are few and small (five integers per row); every rank executes them in the order sent. A lane (one group of
// sentences in progress) has a pool of cache rows; row 0 is for padding (decoder_chunk.h), the next rows have the
// keys and values of the encoder's output, sentence after sentence. At the end the searching rank broadcasts the
// translations (TranslationsToBytes). All ranks run the same binary.
struct DecodeCommand {
  enum class Kind : int32_t { kEncode, kStep, kEnd };

  Kind kind = Kind::kEnd;
  int32_t lane = 0;
  std::vector<int32_t> source_offsets;  // kEncode: [sentences + 1]
  std::vector<int32_t> source;          // kEncode: [source rows] tokens, </s> included; for speech, utterance numbers
  std::vector<StepRow> rows;            // kStep

  // Number of integers of the largest command.
  static int64_t MostIntegers(const DecodeCapacity& capacity);
  // Writes the command to `out` and returns the number of integers used.  REQUIRES: `out` is large enough.
  int64_t Write(std::span<int32_t> out) const;
  // Errors: Internal if `in` is not a command.
  absl::Status Read(std::span<const int32_t> in);
};

// Translations: [sentences] lists of hypotheses.
std::string TranslationsToBytes(std::span<const std::vector<Hypothesis>> translations);
// Errors: Internal if `bytes` are truncated.
absl::StatusOr<std::vector<std::vector<Hypothesis>>> TranslationsFromBytes(std::string_view bytes);

class DecodeLinks {
 public:
  // `stream`: where the decoder's activations are; on a device they cross borders through host memory.
  DecodeLinks(const ModelPlan& plan, const PipelineLayout& pipeline, int rank, const DecodeCapacity& capacity,
              const Stream& stream, ArenaLayout& layout);
  void Bind(const Arena& arena, Communicator& communicator, absl::Duration timeout);

  // The searching rank, which has the output head.
  int searcher() const { return searcher_; }

  // On the searching rank: sends the command to all others.
  absl::Status SendCommand(const DecodeCommand& command);
  // On the others: waits for the next command.
  absl::Status ReceiveCommand(DecodeCommand& command);

  // SendResidual sends the output residual of this rank's chunk `chunk` (its index on the rank) to the rank of the next
  // chunk of the depth; ReceiveResidual receives the input residual of this rank's chunk `chunk`. Of a history only
  // the entries that the receiving rank lacks (layers/border.h). If a second stream crosses the border, it follows by
  // another call.
  absl::Status SendResidual(int chunk, ConstAnyMatrix residual);
  absl::Status ReceiveResidual(int chunk, AnyMatrix residual);

  // Waits until all messages sent have been received.
  absl::Status Drain();

 private:
  static constexpr int kBuffers = 2;  // per border and stream

  // The outstanding sends to one peer, oldest first.
  struct Ring {
    std::deque<CommRequest> outstanding;
    int64_t sent = 0;
  };
  absl::Status Post(Ring& ring, int buffers, const void* data, int64_t bytes, int peer, int tag, std::string_view what);
  // Waits until the ring has room for another send.
  absl::Status WaitForRoom(Ring& ring, int buffers, std::string_view what);

  const Stream stream_;
  ScheduleShape shape_;
  int rank_, searcher_;
  int command_buffers_, residual_buffers_;
  int64_t command_bytes_, residual_bytes_, received_bytes_ = 0;
  ArenaSlice command_slice_, residual_slice_, received_slice_;
  std::byte *commands_ = nullptr, *residuals_ = nullptr, *received_ = nullptr;
  std::vector<Ring> command_rings_;   // [ranks]
  std::vector<Ring> residual_rings_;  // [chunks]
  Communicator* communicator_ = nullptr;
  absl::Duration timeout_;
};

}  // namespace hadal
