// Draws one clause of a synthetic sentence within the constraints of a ClauseWish.
//
// A clause is drawn top down (tense, verb or copula, subject, objects, place, adverbs). Each part is drawn from the
// rows of the lexicon (synthetic_lexicon.h) that fit the parts drawn before, so that the clause is grammatical in both
// languages and mostly makes sense. Thread safety: none; each sentence has its own sampler.
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

// The allowed properties of a clause.
struct ClauseWish {
  uint32_t tenses = kAllTenses;
  uint32_t frames = kPlainFrames;
  uint32_t copula_percent = 16;
  uint32_t negated_percent = 14;
  uint32_t time_percent = 30;
  uint32_t frequency_percent = 12;
  uint32_t place_percent = 16;
  bool time_first = false;  // whether a time adverb may come first
  Gap gap = Gap::kNone;
  uint32_t object_classes = ~0u;  // of an object that is the gap
  bool object_case_only = false;  // no prepositional object
  const Noun* head = nullptr;     // the noun that fills the gap
};

class ClauseSampler {
 public:
  // `draws` must outlive the object.
  explicit ClauseSampler(SyntheticDraws& draws) : draws_(draws) {}

  Clause DrawClause(const ClauseWish& wish);

  // Parts of a clause, for sentences that are assembled in another way.  REQUIRES: for objects and place, a verb is
  // set.
  const Verb* DrawVerb(const ClauseWish& wish, Tense tense);
  void DrawObjects(const ClauseWish& wish, Clause& clause);
  void DrawPlace(const ClauseWish& wish, Clause& clause);
  // Draws a place of one of `classes`, for a clause.
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
