#include "tools/corpus/prepare_encoding.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "runtime/process_cpus.h"
#include "runtime/thread_team.h"

namespace hadal {

LineEncoder::LineEncoder(const Vocabulary* source, const Vocabulary& target, int threads)
    : source_(source), target_(target), threads_(threads > 0 ? threads : ProcessCpus()) {}

void LineEncoder::Add(int32_t corpus_id, const ParallelLine& line) {
  if (size_ == texts_.size()) {
    texts_.emplace_back();
    lines_.emplace_back();
  }
  texts_[size_].source = line.source;
  texts_[size_].target = line.target;
  lines_[size_].number = line.number;
  lines_[size_].sample.corpus_id = corpus_id;
  ++size_;
  bytes_ += line.source.size() + line.target.size();
}

std::span<EncodedLine> LineEncoder::Encode() {
  constexpr size_t kTogether = 32;  // lines that a thread takes at a time
  std::atomic<size_t> next = 0;
  ThreadTeam::OfThisThread().Run(threads_, [&](int) {
    for (size_t begin = next.fetch_add(kTogether); begin < size_; begin = next.fetch_add(kTogether)) {
      for (size_t i = begin; i < std::min(begin + kTogether, size_); ++i) {
        Sample& sample = lines_[i].sample;
        if (source_ != nullptr) sample.source = source_->Encode(texts_[i].source);
        sample.target = target_.Encode(texts_[i].target);
      }
    }
  });
  bytes_ = 0;
  return std::span<EncodedLine>(lines_).first(std::exchange(size_, 0));
}

}  // namespace hadal
