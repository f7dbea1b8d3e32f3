#include "tools/synthetic/synthetic_sampler.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "tools/synthetic/synthetic_clause_sampler.h"

namespace hadal {
namespace {

class Sampler {
 public:
  Sampler(uint64_t seed, uint64_t index) : draws_(seed, index), clauses_(draws_) {}

  Sentence Draw();

 private:
  Sentence DrawStatement();
  Sentence DrawQuestion();
  Sentence DrawWhQuestion(Question question);
  Sentence DrawReport();
  Sentence DrawConjunction();
  Sentence DrawCoordination();
  Sentence DrawInfinitive();
  Sentence DrawExistential();

  SyntheticDraws draws_;
  ClauseSampler clauses_;
};

Sentence Sampler::DrawStatement() {
  Sentence sentence;
  sentence.main = clauses_.DrawClause({.time_percent = 45, .time_first = true});
  return sentence;
}

Sentence Sampler::DrawQuestion() {
  const auto question = static_cast<Question>(1 + draws_.Weighted(std::array<uint32_t, 7>{40, 10, 10, 8, 12, 10, 10}));
  if (question != Question::kYesNo) return DrawWhQuestion(question);
  Sentence sentence;
  sentence.question = question;
  sentence.main = clauses_.DrawClause({.negated_percent = 0});
  return sentence;
}

Sentence Sampler::DrawWhQuestion(Question question) {
  ClauseWish wish = {.copula_percent = 0, .negated_percent = 0};
  switch (question) {
    case Question::kWho:
      wish.gap = Gap::kSubject;
      break;
    case Question::kWhat:
    case Question::kWhom:
      wish.gap = Gap::kObject;
      wish.frames = FrameBit(Frame::kObject);
      wish.object_case_only = true;
      wish.object_classes = question == Question::kWhom ? static_cast<uint32_t>(kPerson)
                                                        : kReadable | kFood | kDrink | kThing | kClothing | kSong;
      break;
    case Question::kWhere:
      wish.place_percent = 0;
      wish.frames &= ~FrameBit(Frame::kDirection);
      break;
    case Question::kWhen:
      wish.time_percent = 0;
      wish.frequency_percent = 0;
      wish.tenses &= ~TenseBit(Tense::kPerfect);  // "when has he …" is not English
      wish.frames &= ~FrameBit(Frame::kPlace);
      break;
    case Question::kWhy:
      wish.copula_percent = 16;
      wish.negated_percent = 10;
      break;
    case Question::kNone:
    case Question::kYesNo:
      break;
  }
  Sentence sentence;
  sentence.question = question;
  sentence.main = clauses_.DrawClause(wish);
  return sentence;
}

Sentence Sampler::DrawReport() {
  Sentence sentence;
  const bool whether = draws_.Percent(30);
  const bool past = draws_.Percent(40);
  ClauseWish wish = {.tenses = past ? kPast : kPresent,
                     .frames = FrameBit(whether ? Frame::kWhetherClause : Frame::kThatClause),
                     .copula_percent = 0,
                     .negated_percent = whether ? 0u : 12u,
                     .time_percent = 8,
                     .time_first = true};
  sentence.main = clauses_.DrawClause(wish);
  sentence.link = whether ? Link::kWhether : Link::kThat;
  sentence.second = clauses_.DrawClause({.tenses = past ? kPast : kAllTenses, .time_percent = 20});
  return sentence;
}

Sentence Sampler::DrawConjunction() {
  Sentence sentence;
  sentence.link = draws_.Percent(50) ? Link::kConjunctionFirst : Link::kConjunctionLast;
  sentence.conjunction = draws_.Pick(Conjunctions(), [](const Conjunction&) { return true; });
  ClauseWish main = {.time_percent = 15, .time_first = sentence.link == Link::kConjunctionLast};
  ClauseWish second = {.time_percent = 12};
  if (sentence.conjunction->same_tense) {
    main.tenses = second.tenses = draws_.Percent(50) ? kPast : kPresent;
    second.negated_percent = 4;
  } else {
    main.tenses = second.tenses = draws_.Percent(40) ? kPast : kAllTenses & ~kPast;
  }
  sentence.second = clauses_.DrawClause(second);
  sentence.main = clauses_.DrawClause(main);
  return sentence;
}

Sentence Sampler::DrawCoordination() {
  Sentence sentence;
  const uint32_t tenses = draws_.Percent(50) ? kPast : kAllTenses & ~kPast;
  sentence.main = clauses_.DrawClause({.tenses = tenses, .time_percent = 20, .time_first = true});
  sentence.link = draws_.Percent(55) ? Link::kAnd : Link::kBut;
  sentence.second = clauses_.DrawClause({.tenses = tenses, .time_percent = 20});
  return sentence;
}

Sentence Sampler::DrawInfinitive() {
  Sentence sentence;
  sentence.main = clauses_.DrawClause({.tenses = kPresent | kPast | TenseBit(Tense::kPerfect),
                                       .frames = FrameBit(Frame::kInfinitive),
                                       .copula_percent = 0,
                                       .time_percent = 0,
                                       .frequency_percent = 10});
  Clause infinitive;
  infinitive.gap = Gap::kSubject;
  infinitive.subject.pronoun = sentence.main.subject.pronoun;  // for the choice of objects; it is not written
  infinitive.subject.noun = sentence.main.subject.noun;
  const ClauseWish wish = {.frames = FrameBit(Frame::kNothing) | FrameBit(Frame::kObject) |
                                     FrameBit(Frame::kTwoObjects) | FrameBit(Frame::kDirection),
                           .gap = Gap::kSubject};
  infinitive.verb = clauses_.DrawVerb(wish, Tense::kPresent);
  clauses_.DrawObjects(wish, infinitive);
  clauses_.DrawPlace(wish, infinitive);
  sentence.main.infinitive = std::make_unique<Clause>(std::move(infinitive));
  return sentence;
}

Sentence Sampler::DrawExistential() {
  Sentence sentence;
  sentence.existential = true;
  Clause& clause = sentence.main;
  clause.tense = draws_.Percent(70) ? Tense::kPresent : Tense::kPast;
  NounPhrase& subject = clause.subject;
  subject.noun = draws_.Pick(
      Nouns(), [](const Noun& noun) { return (noun.classes & (kPerson | kAnimal | kThing | kFood | kShelter)) != 0; });
  subject.plural = draws_.Percent(40);
  const auto kind = subject.plural ? DeterminerKind::kQuantity : DeterminerKind::kIndefinite;
  subject.determiner = draws_.Pick(Determiners(), [&](const Determiner& row) { return row.kind == kind; });
  const auto describes = [&](const Adjective& adjective) { return (adjective.classes & subject.noun->classes) != 0; };
  if (draws_.Percent(40)) subject.adjective = draws_.Pick(Adjectives(), describes);
  clause.preposition = draws_.Pick(PlacePrepositions(), [](const PlacePreposition&) { return true; });
  clause.place = clauses_.DrawPlacePhrase(clause.preposition->classes, clause);
  return sentence;
}

Sentence Sampler::Draw() {
  switch (draws_.Weighted(std::array<uint32_t, 7>{40, 14, 12, 16, 7, 7, 4})) {
    case 0:
      return DrawStatement();
    case 1:
      return DrawQuestion();
    case 2:
      return DrawReport();
    case 3:
      return DrawConjunction();
    case 4:
      return DrawCoordination();
    case 5:
      return DrawInfinitive();
    default:
      return DrawExistential();
  }
}

}  // namespace

Sentence DrawSentence(uint64_t seed, uint64_t index) { return Sampler(seed, index).Draw(); }

}  // namespace hadal
