#include "pipeline/instruments/run_diagnosis.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/math.h"

namespace hadal {
namespace {

constexpr size_t kBlockUpdates = 10;
constexpr int kBlocksInARow = 3;
constexpr size_t kWindowBlocks = 5;   // of the loss
constexpr double kLeastRates = 0.01;  // Σ over the updates

constexpr double kLowEncoderShare = 1e-3, kEncoderShare = 1e-2;
constexpr double kVanishedShare = 1e-4, kPresentShare = 1e-3;
constexpr double kAtUnigrams = 0.05, kBelowUnigrams = 0.3;  // nats below the entropy
constexpr double kLeastMove = 0.01;                         // of the nll, from one window to the next
constexpr double kJump = 0.5;                               // nats

const char* Name(Stack stack) { return stack == Stack::kEncoder ? "encoder" : "decoder"; }

template <typename Points>
double MeanNll(const Points& points, size_t begin, size_t end) {
  double sum = 0;
  for (size_t i = begin; i < end; ++i) sum += points[i].nll;
  return sum / static_cast<double>(end - begin);
}

}  // namespace

RunDiagnosis::RunDiagnosis(const ModelPlan& plan, const RateOptions& rate)
    : plan_(plan), rate_(rate), token_counts_(static_cast<size_t>(plan.options.target_vocabulary)) {
  for (size_t s = 0; s < plan.sublayers.size(); ++s) {
    if (plan.sublayers[s].layer >= 0) sublayers_.push_back(static_cast<int32_t>(s));
  }
  squares_.resize(sublayers_.size());
}

std::vector<std::string> RunDiagnosis::AfterStep(const StepMetrics& step, std::span<const PackedBatch> batches) {
  if (step.skipped || step.target_tokens == 0) return {};
  for (const PackedBatch& batch : batches) {
    for (int64_t row = 0; row < batch.sentence_target_rows(); ++row) {
      ++token_counts_[static_cast<size_t>(batch.target[static_cast<size_t>(row)])];
    }
  }
  const Point point{step.step, step.update, step.nll, step.learning_rate};
  if (!lowest_) lowest_ = point;
  if (points_.size() == 2 * kBlockUpdates) points_.erase(points_.begin(), points_.begin() + kBlockUpdates);
  if (points_.size() % kBlockUpdates == 0) std::fill(squares_.begin(), squares_.end(), 0.0);
  points_.push_back(point);
  learning_rates_ += step.learning_rate;
  for (size_t s = 0; s < squares_.size(); ++s) {
    squares_[s] += double{step.depth_gradient_norms[s]} * step.depth_gradient_norms[s];
  }
  if (points_.size() % kBlockUpdates != 0) return {};
  const size_t begin = points_.size() - kBlockUpdates;
  blocks_.push_back(points_[begin]);
  blocks_.back().nll = MeanNll(points_, begin, points_.size());
  if (!Moved()) blocks_ = {blocks_.back()};
  if (blocks_.size() > 2 * kWindowBlocks) blocks_.pop_front();
  std::vector<std::string> found{LossJump(), EncoderWithoutGradient(), Vanishing(Stack::kEncoder),
                                 Vanishing(Stack::kDecoder), LossOfFrequencies()};
  std::erase(found, "");
  return found;
}

bool RunDiagnosis::Moved() const { return learning_rates_ >= kLeastRates; }

bool RunDiagnosis::Advance(bool holds, bool opposite, int blocks, State& state) const {
  if (state.phase == State::Phase::kOver) return false;
  const bool begins = state.phase == State::Phase::kNotYet;
  if (!(begins ? holds : opposite)) {
    state.blocks = 0;
    return false;
  }
  if (begins && state.blocks == 0) state.since = blocks_.back().step;
  if (++state.blocks < blocks || (begins && !Moved())) return false;
  state.blocks = 0;
  state.phase = begins ? State::Phase::kHolds : State::Phase::kOver;
  return true;
}

double RunDiagnosis::StackSquares(Stack stack) const {
  double sum = 0;
  for (size_t s = 0; s < squares_.size(); ++s) sum += plan_.sublayers[sublayers_[s]].stack == stack ? squares_[s] : 0;
  return sum;
}

std::string RunDiagnosis::EncoderWithoutGradient() {
  if (!plan_.options.translates()) return "";
  const double ratio = std::sqrt(StackSquares(Stack::kEncoder) / StackSquares(Stack::kDecoder));
  const bool low = ratio < kLowEncoderShare;
  const bool high = ratio > kEncoderShare;
  if (!Advance(low, high, kBlocksInARow, encoder_)) return "";
  if (encoder_.phase == State::Phase::kOver) {
    return absl::StrFormat("over: the encoder's gradient is %.2g of the decoder's again", ratio);
  }
  return absl::StrFormat(
      "the encoder's gradient has been %.2g of the decoder's since step %d: the output hardly depends on the source. "
      "What usually helps: %s",
      ratio, encoder_.since,
      encoder_.since == 1 ? "other gains of the cross-attention (model.residual.decoder)"
                          : "a lower learning_rate.peak or a longer warm-up");
}

int RunDiagnosis::VanishingSublayers(Stack stack, double share) const {
  double largest = 0;
  for (size_t s = 0; s < squares_.size(); ++s) {
    if (plan_.sublayers[sublayers_[s]].stack == stack) largest = std::max(largest, squares_[s]);
  }
  int count = 0;
  for (size_t s = 0; s < squares_.size(); ++s) {
    if (plan_.sublayers[sublayers_[s]].stack != stack) continue;
    if (!(squares_[s] < share * share * largest)) break;
    ++count;
  }
  return count;
}

std::string RunDiagnosis::Vanishing(Stack stack) {
  const bool of_encoder = stack == Stack::kEncoder;
  const int32_t encoder = plan_.options.has_encoder() ? plan_.options.encoder_sublayers() : 0;
  const int32_t size = of_encoder ? encoder : static_cast<int32_t>(sublayers_.size()) - encoder;
  const int enough = std::max(3, (size + 9) / 10);
  const int vanished = VanishingSublayers(stack, kVanishedShare);
  State& state = vanishing_[static_cast<size_t>(stack)];
  if (!Advance(vanished >= enough, VanishingSublayers(stack, kPresentShare) < enough, kBlocksInARow, state)) return "";
  if (state.phase == State::Phase::kOver) {
    return absl::StrCat("over: the gradients of the ", Name(stack), "'s lower layers no longer vanish");
  }
  const int32_t place = (of_encoder ? 0 : encoder) + vanished;
  const int32_t above = sublayers_[static_cast<size_t>(place)];
  return absl::StrFormat(
      "gradients vanish from %s layer %d down since step %d: in each of the %s's %d lowest sublayers (of %d) the "
      "gradient's norm is below %.0e of the largest one's. What usually helps: a method made for this depth "
      "(model.residual.method), or a lower learning_rate.peak",
      Name(stack), plan_.sublayers[above].layer, state.since, Name(stack), vanished, size, kVanishedShare);
}

double RunDiagnosis::UnigramEntropy() const {
  const double total = static_cast<double>(std::accumulate(token_counts_.begin(), token_counts_.end(), int64_t{0}));
  double entropy = 0, distinct = 0;
  for (const int64_t count : token_counts_) {
    if (count == 0) continue;
    const double share = static_cast<double>(count) / total;
    entropy -= share * Log(share);
    distinct += 1;
  }
  return entropy + (distinct - 1) / (2 * total);
}

std::string RunDiagnosis::LossOfFrequencies() {
  if (blocks_.size() < 2 * kWindowBlocks || frequencies_.phase == State::Phase::kOver) return "";
  const double before = MeanNll(blocks_, 0, kWindowBlocks), now = MeanNll(blocks_, kWindowBlocks, blocks_.size());
  const double entropy = UnigramEntropy();
  const bool stays = now >= entropy - kAtUnigrams && std::abs(now - before) < kLeastMove * before;
  if (!Advance(stays, now < entropy - kBelowUnigrams, 1, frequencies_)) return "";
  if (frequencies_.phase == State::Phase::kOver) {
    return absl::StrFormat("over: the nll is %.3f, below the %.3f of token frequencies alone", now, entropy);
  }
  std::string text =
      now < entropy + kBelowUnigrams
          ? absl::StrFormat(
                "the loss stays at that of token frequencies alone since step %d (nll %.3f, frequencies "
                "%.3f): the output depends on neither source nor prefix. ",
                blocks_.front().step, now, entropy)
          : absl::StrFormat("the loss has not moved since step %d (nll %.3f; token frequencies alone reach %.3f). ",
                            blocks_.front().step, now, entropy);
  if (static_cast<double>(points_.back().update) < rate_.warmup_updates) {
    absl::StrAppendFormat(&text, "Warm-up lasts until update %.0f: it may be too early to tell. ",
                          rate_.warmup_updates);
  }
  return text + "What usually helps: a lower learning_rate.peak, a longer warm-up, or a method made for this depth";
}

std::string RunDiagnosis::LossJump() {
  const Point& block = blocks_.back();
  if (jumped_ || block.nll <= lowest_->nll + kJump) {
    if (block.nll < lowest_->nll) lowest_ = block;
    return "";
  }
  jumped_ = true;
  size_t first = points_.size() - 1;  // of the last points that are all above
  while (first > 0 && points_[first - 1].nll > lowest_->nll + kJump / 2) --first;
  const Point& at = points_[first];
  const double warmup = rate_.schedule == RateSchedule::kTFixup ? 0 : rate_.warmup_updates;
  const double beyond = static_cast<double>(at.update) - warmup;
  std::string when = "without warm-up";
  if (warmup > 0) {
    when = beyond <= 0 ? absl::StrFormat("in warm-up, at update %d of %.0f", at.update, warmup)
                       : absl::StrFormat("%.0f updates after the end of warm-up", beyond);
  }
  return absl::StrFormat(
      "the loss jumped at step %d, from nll %.3f (step %d) to %.3f in the mean of 10 updates; the learning rate was "
      "%.3g there (peak %.3g), %s. What usually helps: a lower learning_rate.peak or a longer warm-up",
      at.step, lowest_->nll, lowest_->step, block.nll, at.learning_rate, rate_.peak, when);
}

}  // namespace hadal
