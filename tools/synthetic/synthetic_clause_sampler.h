// Draws one clause of a synthetic sentence: who does what, to whom, where and when, within what the sentence wishes of
// it.
//
// A clause is drawn top down (tense, verb or copula, subject, objects, place, adverbs), each from the rows of the
// lexicon (synthetic_lexicon.h) that fit what is there already, so that it is grammatical in both languages and mostly
// makes sense. Thread safety: none; each sentence has its own.
#pragma once

#include <cstdint>

#include "tools/synthetic/synthetic_clause.h"
#include "tools/synthetic/synthetic_draws.h"

namespace hadal {

constexpr uint32_t kPresent = TenseBit(Tense::kPresent);
constexpr uint32_t kPast = TenseBit(Tense::kPast);
constexpr uint32_t kAllTenses =
    kPresent | kPast | TenseBit(Tense::kPerfect) | TenseBit(Tense::kFuture) | TenseBit(Tense::kModal);

constexpr uint32_t FrameBit(Frame frame) { return 1u << static_cast<uint32_t>(frame); }
constexpr uint32_t kPlainFrames = FrameBit(Frame::kNothing) | FrameBit(Frame::kObject) | FrameBit(Frame::kTwoObjects) |
                                  FrameBit(Frame::kPlace) | FrameBit(Frame::kDirection);

// What a clause may be.
struct ClauseWish {
  uint32_t tenses = kAllTenses;
  uint32_t frames = kPlainFrames;
  uint32_t copula_percent = 16;
  uint32_t negated_percent = 14;
  uint32_t time_percent = 30;
  uint32_t frequency_percent = 12;
  uint32_t place_percent = 16;
  bool time_first = false;  // allowed
  Gap gap = Gap::kNone;
  uint32_t object_classes = ~0u;  // of the gap that is an object
  bool object_case_only = false;  // no prepositional object
  const Noun* head = nullptr;     // fills the gap
};

class ClauseSampler {
 public:
  // `draws` must outlive the object.
  explicit ClauseSampler(SyntheticDraws& draws) : draws_(draws) {}

  Clause DrawClause(const ClauseWish& wish);

  // The parts of a clause that sentences of a shape of their own put together.  REQUIRES: for objects and place, a
  // verb.
  const Verb* DrawVerb(const ClauseWish& wish, Tense tense);
  void DrawObjects(const ClauseWish& wish, Clause& clause);
  void DrawPlace(const ClauseWish& wish, Clause& clause);
  // Somewhere of `classes`, for a clause.
  NounPhrase DrawPlacePhrase(uint32_t classes, const Clause& clause) {
    return DrawPhrase(classes, Use::kPlace, clause);
  }

 private:
  enum class Use { kSubject, kObject, kPlace };

  Tense DrawTense(uint32_t tenses);
  void DrawCopula(const ClauseWish& wish, Clause& clause);
  void DrawSubject(const ClauseWish& wish, Clause& clause);
  void DrawAdverbs(const ClauseWish& wish, Clause& clause);
  NounPhrase DrawPhrase(uint32_t classes, Use use, const Clause& clause);
  NounPhrase DrawPronoun(Use use, const Clause& clause);
  const Determiner* DrawDeterminer(const NounPhrase& phrase, Use use, const Clause& clause);
  void DrawRelative(NounPhrase& phrase);

  SyntheticDraws& draws_;
  int relatives_left_ = 1;  // a sentence has at most one
};

}  // namespace hadal
