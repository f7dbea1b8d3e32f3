// The abstract syntax of the synthetic corpus: the meaning of a sentence, independent of English and German.
//
//   synthetic_sampler draws a Sentence; synthetic_english and synthetic_german each write it as text.
// Both texts are written from the same tree, so they have the same meaning; each writer applies its language's word
// order, agreement and case. Thread safety: plain values.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "tools/synthetic/synthetic_lexicon.h"

namespace hadal {

struct Clause;

// A pronoun, or a noun with what belongs to it.
struct NounPhrase {
  const Pronoun* pronoun = nullptr;
  const Noun* noun = nullptr;
  const Determiner* determiner = nullptr;
  const Adjective* adjective = nullptr;
  bool plural = false;
  std::unique_ptr<Clause> relative;  // a clause with a gap that this noun fills

  int person() const { return pronoun != nullptr ? pronoun->person : 3; }
  bool is_plural() const { return pronoun != nullptr ? pronoun->plural : plural; }
  bool is_person() const { return pronoun != nullptr || (noun->classes & kPerson) != 0; }
};

// What a relative clause or a question leaves out of a clause.
enum class Gap : uint8_t { kNone, kSubject, kObject };

struct Clause {
  Tense tense = Tense::kPresent;
  const Modal* modal = nullptr;  // of Tense::kModal
  bool negated = false;
  Gap gap = Gap::kNone;

  NounPhrase subject;          // empty if the gap is the subject, and in infinitives
  const Verb* verb = nullptr;  // null: the copula, with `complement`
  const Adjective* complement = nullptr;
  bool very = false;
  std::optional<NounPhrase> object;               // empty if the gap is the object
  std::optional<NounPhrase> indirect;             // of Frame::kTwoObjects
  const PlacePreposition* preposition = nullptr;  // of `place`; null in Frame::kDirection
  std::optional<NounPhrase> place;
  const TimeAdverb* time = nullptr;
  bool time_first = false;  // opens the sentence
  const FrequencyAdverb* frequency = nullptr;
  std::unique_ptr<Clause> infinitive;  // of Frame::kInfinitive: without subject and tense
};

// How a second clause joins the first.
enum class Link : uint8_t { kNone, kThat, kWhether, kConjunctionFirst, kConjunctionLast, kAnd, kBut };
enum class Question : uint8_t { kNone, kYesNo, kWho, kWhat, kWhom, kWhere, kWhen, kWhy };

struct Sentence {
  Clause main;
  bool existential = false;  // "there is": main has subject, place and tense only
  Question question = Question::kNone;
  Link link = Link::kNone;
  const Conjunction* conjunction = nullptr;  // of kConjunctionFirst and kConjunctionLast
  std::optional<Clause> second;
};

}  // namespace hadal
