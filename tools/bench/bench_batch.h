// Random packed micro-batches for measurements: sentences of one length, or of lengths spread evenly around it.
//
// A function of the options and the micro-batch's number alone. Thread safety: pure.
#pragma once

#include <cstdint>

#include "runtime/data/packed_batch.h"

namespace hadal {

struct BenchBatchOptions {
  int32_t vocabulary = 8000;
  int32_t tokens = 1024;      // target tokens, and source tokens, of a micro-batch
  int32_t length = 32;        // of every sentence, </s> counted
  bool mixed_length = false;  // instead: lengths from 4 to 2·length - 4, evenly
};

PackedBatch RandomBatch(const BenchBatchOptions& options, int32_t micro_batch);

}  // namespace hadal
