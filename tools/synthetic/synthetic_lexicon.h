// The words of the synthetic corpus, English and German side by side, with their grammatical properties.
//
// All tables are data (synthetic_lexicon.cc); adding a row adds a word. Regular inflection is in synthetic_english and
// synthetic_german; irregular forms are listed here.
// Thread safety: constants.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace hadal {

enum class Gender : uint8_t { kMasculine, kFeminine, kNeuter };
enum class Case : uint8_t { kNominative, kAccusative, kDative };

// Classes of nouns, as bits: verbs and adjectives list the classes that they combine with.
enum NounClass : uint32_t {
  kPerson = 1 << 0,
  kAnimal = 1 << 1,
  kReadable = 1 << 2,
  kFood = 1 << 3,
  kDrink = 1 << 4,  // mass nouns: no plural, no "a"
  kThing = 1 << 5,  // may be carried
  kClothing = 1 << 6,
  kOpenable = 1 << 7,
  kVehicle = 1 << 8,
  kPlace = 1 << 9,      // a person can be in it
  kLandmark = 1 << 10,  // a person can be behind it
  kShelter = 1 << 11,   // a person can be under it
  kFragile = 1 << 12,
  kMachine = 1 << 13,  // is repaired
  kSwitch = 1 << 14,   // is turned on
  kSong = 1 << 15,
  kRoom = 1 << 16,  // is tidied up
};

struct Noun {
  uint32_t classes;
  std::string_view english, english_plural;
  Gender gender;
  std::string_view german, german_plural;
  bool weak = false;  // n-declension: accusative and dative singular look like the plural
};

struct Adjective {
  uint32_t classes;  // of nouns it may describe
  std::string_view english;
  std::string_view german;  // predicative: "teuer"
  std::string_view stem;    // before an ending: "teur"
};

// The complements of a verb.
enum class Frame : uint8_t {
  kNothing,        // sleeps
  kObject,         // reads the book; helps the man (dative); waits for the bus (preposition)
  kTwoObjects,     // gives the child the book
  kPlace,          // lives in the house
  kDirection,      // goes into the garden
  kThatClause,     // says that …
  kWhetherClause,  // asks whether …
  kInfinitive,     // tries to …
};

struct Verb {
  Frame frame;
  uint32_t subjects, objects;                       // classes
  std::string_view base, third, past, participle;   // English: read, reads, read, read
  std::string_view particle;                        // "up"; a pronoun stands before it
  std::string_view preposition;                     // "for"; stands before every object
  std::string_view prefix;                          // German, separable: "an"
  std::string_view infinitive;                      // without the prefix: rufen
  std::string_view first, second, third_german;     // rufe, rufst, ruft
  std::string_view past_german, participle_german;  // rief, angerufen
  bool with_sein = false;                           // perfect with sein
  std::string_view preposition_german = "";         // of the object: auf
  Case object_case = Case::kAccusative;
};

struct Modal {
  std::string_view english;  // "wants to" is a verb with do-support, the others are auxiliaries
  bool is_verb;
  bool may_be_negated;                     // "must not" means something else than "muss nicht"
  std::string_view first, second, plural;  // kann, kannst, können
};

struct Pronoun {
  std::string_view english, english_object;
  std::string_view german, accusative, dative;
  int person;
  bool plural;
};

enum class DeterminerKind : uint8_t { kDefinite, kDemonstrative, kEvery, kIndefinite, kPossessive, kQuantity };

// Indefinite: "a" before singular count nouns, nothing before plurals and mass nouns.
struct Determiner {
  DeterminerKind kind;
  std::string_view english, english_plural;
  std::string_view german;  // stem before an ending; quantities: the word before "n"
};

// The tenses that a word can be used with are bits over Tense.
enum class Tense : uint8_t { kPresent, kPast, kPerfect, kFuture, kModal };
constexpr uint32_t TenseBit(Tense tense) { return 1u << static_cast<uint32_t>(tense); }

struct TimeAdverb {
  uint32_t tenses;
  std::string_view english, german;
};

struct FrequencyAdverb {
  std::string_view english, german;
};

struct PlacePreposition {
  uint32_t classes;
  std::string_view english, german;  // German: with dative
};

struct Conjunction {
  std::string_view english;
  std::string_view german, german_past;  // when: wenn, als
  bool same_tense;                       // both clauses
};

std::span<const Noun> Nouns();
std::span<const Adjective> Adjectives();
std::span<const Verb> Verbs();
std::span<const Modal> Modals();
std::span<const Pronoun> Pronouns();
std::span<const Determiner> Determiners();
std::span<const TimeAdverb> TimeAdverbs();
std::span<const FrequencyAdverb> FrequencyAdverbs();
std::span<const PlacePreposition> PlacePrepositions();
std::span<const Conjunction> Conjunctions();

}  // namespace hadal
