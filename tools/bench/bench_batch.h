// Random packed micro-batches for benchmarks, with sentences of one length or of lengths spread evenly around it.
//
// A pure function of the options and the micro-batch's number. Thread safety: pure.
#pragma once

#include <cstdint>

#include "runtime/data/packed_batch.h"

namespace hadal {

struct BenchBatchOptions {
  int32_t vocabulary = 8000;
  int32_t tokens = 1024;      // target tokens of a micro-batch, and as many source tokens
  int32_t length = 32;        // of every sentence, with </s>
  bool mixed_length = false;  // lengths spread evenly from 4 to 2·length − 4
};

PackedBatch RandomBatch(const BenchBatchOptions& options, int32_t micro_batch);

}  // namespace hadal
