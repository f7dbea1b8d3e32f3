#include "tools/synthetic/synthetic_lexicon.h"

namespace hadal {
namespace {

constexpr Gender m = Gender::kMasculine;
constexpr Gender f = Gender::kFeminine;
constexpr Gender n = Gender::kNeuter;
constexpr bool kWeak = true;
constexpr bool kSein = true;
constexpr bool kHaben = false;

constexpr uint32_t kLiving = kPerson | kAnimal;
constexpr uint32_t kGoods = kThing | kClothing | kReadable | kFood | kVehicle;
constexpr uint32_t kTable = kThing | kShelter;
constexpr uint32_t kBuilding = kPlace | kLandmark;
constexpr uint32_t kAny = kLiving | kGoods | kBuilding | kShelter | kOpenable;

// clang-format off
constexpr Noun kNouns[] = {
    {kPerson, "man", "men", m, "Mann", "Männer"},
    {kPerson, "woman", "women", f, "Frau", "Frauen"},
    {kPerson, "child", "children", n, "Kind", "Kinder"},
    {kPerson, "boy", "boys", m, "Junge", "Jungen", kWeak},
    {kPerson, "girl", "girls", n, "Mädchen", "Mädchen"},
    {kPerson, "teacher", "teachers", m, "Lehrer", "Lehrer"},
    {kPerson, "friend", "friends", m, "Freund", "Freunde"},
    {kPerson, "doctor", "doctors", m, "Arzt", "Ärzte"},
    {kPerson, "student", "students", m, "Student", "Studenten", kWeak},
    {kPerson, "neighbour", "neighbours", m, "Nachbar", "Nachbarn", kWeak},
    {kPerson, "mother", "mothers", f, "Mutter", "Mütter"},
    {kPerson, "father", "fathers", m, "Vater", "Väter"},
    {kPerson, "brother", "brothers", m, "Bruder", "Brüder"},
    {kPerson, "sister", "sisters", f, "Schwester", "Schwestern"},
    {kPerson, "daughter", "daughters", f, "Tochter", "Töchter"},
    {kPerson, "son", "sons", m, "Sohn", "Söhne"},
    {kPerson, "grandmother", "grandmothers", f, "Großmutter", "Großmütter"},
    {kPerson, "uncle", "uncles", m, "Onkel", "Onkel"},
    {kPerson, "aunt", "aunts", f, "Tante", "Tanten"},
    {kPerson, "farmer", "farmers", m, "Bauer", "Bauern", kWeak},
    {kPerson, "baker", "bakers", m, "Bäcker", "Bäcker"},
    {kPerson, "policeman", "policemen", m, "Polizist", "Polizisten", kWeak},
    {kPerson, "king", "kings", m, "König", "Könige"},
    {kPerson, "queen", "queens", f, "Königin", "Königinnen"},
    {kPerson, "guest", "guests", m, "Gast", "Gäste"},
    {kPerson, "artist", "artists", m, "Künstler", "Künstler"},
    {kPerson, "nurse", "nurses", f, "Krankenschwester", "Krankenschwestern"},
    {kPerson, "colleague", "colleagues", m, "Kollege", "Kollegen", kWeak},
    {kAnimal, "dog", "dogs", m, "Hund", "Hunde"},
    {kAnimal, "cat", "cats", f, "Katze", "Katzen"},
    {kAnimal, "horse", "horses", n, "Pferd", "Pferde"},
    {kAnimal, "bird", "birds", m, "Vogel", "Vögel"},
    {kAnimal, "cow", "cows", f, "Kuh", "Kühe"},
    {kAnimal, "mouse", "mice", f, "Maus", "Mäuse"},
    {kAnimal, "pig", "pigs", n, "Schwein", "Schweine"},
    {kAnimal, "bear", "bears", m, "Bär", "Bären", kWeak},
    {kAnimal, "rabbit", "rabbits", n, "Kaninchen", "Kaninchen"},
    {kAnimal, "duck", "ducks", f, "Ente", "Enten"},
    {kReadable, "book", "books", n, "Buch", "Bücher"},
    {kReadable, "letter", "letters", m, "Brief", "Briefe"},
    {kReadable, "newspaper", "newspapers", f, "Zeitung", "Zeitungen"},
    {kReadable, "story", "stories", f, "Geschichte", "Geschichten"},
    {kReadable, "poem", "poems", n, "Gedicht", "Gedichte"},
    {kReadable, "novel", "novels", m, "Roman", "Romane"},
    {kReadable, "report", "reports", m, "Bericht", "Berichte"},
    {kFood, "apple", "apples", m, "Apfel", "Äpfel"},
    {kFood, "cake", "cakes", m, "Kuchen", "Kuchen"},
    {kFood, "egg", "eggs", n, "Ei", "Eier"},
    {kFood, "pear", "pears", f, "Birne", "Birnen"},
    {kFood, "soup", "soups", f, "Suppe", "Suppen"},
    {kFood, "potato", "potatoes", f, "Kartoffel", "Kartoffeln"},
    {kFood, "tomato", "tomatoes", f, "Tomate", "Tomaten"},
    {kFood, "sausage", "sausages", f, "Wurst", "Würste"},
    {kFood, "banana", "bananas", f, "Banane", "Bananen"},
    {kDrink, "milk", "", f, "Milch", ""},
    {kDrink, "coffee", "", m, "Kaffee", ""},
    {kDrink, "tea", "", m, "Tee", ""},
    {kDrink, "water", "", n, "Wasser", ""},
    {kDrink, "wine", "", m, "Wein", ""},
    {kDrink, "beer", "", n, "Bier", ""},
    {kDrink, "juice", "", m, "Saft", ""},
    {kTable, "table", "tables", m, "Tisch", "Tische"},
    {kThing | kMachine, "chair", "chairs", m, "Stuhl", "Stühle"},
    {kThing | kMachine | kSwitch, "lamp", "lamps", f, "Lampe", "Lampen"},
    {kThing, "bag", "bags", f, "Tasche", "Taschen"},
    {kThing, "key", "keys", m, "Schlüssel", "Schlüssel"},
    {kThing | kMachine, "clock", "clocks", f, "Uhr", "Uhren"},
    {kThing | kFragile, "cup", "cups", f, "Tasse", "Tassen"},
    {kThing | kFragile, "plate", "plates", m, "Teller", "Teller"},
    {kThing | kFragile, "glass", "glasses", n, "Glas", "Gläser"},
    {kThing, "picture", "pictures", n, "Bild", "Bilder"},
    {kThing, "knife", "knives", n, "Messer", "Messer"},
    {kThing, "flower", "flowers", f, "Blume", "Blumen"},
    {kThing, "ball", "balls", m, "Ball", "Bälle"},
    {kThing, "gift", "gifts", n, "Geschenk", "Geschenke"},
    {kThing | kOpenable, "box", "boxes", f, "Kiste", "Kisten"},
    {kThing | kOpenable | kFragile, "bottle", "bottles", f, "Flasche", "Flaschen"},
    {kThing | kShelter, "umbrella", "umbrellas", m, "Regenschirm", "Regenschirme"},
    {kThing | kMachine | kSwitch, "computer", "computers", m, "Computer", "Computer"},
    {kThing | kMachine, "camera", "cameras", f, "Kamera", "Kameras"},
    {kThing, "ring", "rings", m, "Ring", "Ringe"},
    {kClothing, "hat", "hats", m, "Hut", "Hüte"},
    {kClothing, "coat", "coats", m, "Mantel", "Mäntel"},
    {kClothing, "shirt", "shirts", n, "Hemd", "Hemden"},
    {kClothing, "dress", "dresses", n, "Kleid", "Kleider"},
    {kClothing, "jacket", "jackets", f, "Jacke", "Jacken"},
    {kOpenable, "door", "doors", f, "Tür", "Türen"},
    {kOpenable, "window", "windows", n, "Fenster", "Fenster"},
    {kOpenable, "gate", "gates", n, "Tor", "Tore"},
    {kVehicle | kMachine | kLandmark, "car", "cars", n, "Auto", "Autos"},
    {kVehicle | kMachine, "bicycle", "bicycles", n, "Fahrrad", "Fahrräder"},
    {kVehicle | kMachine, "bus", "buses", m, "Bus", "Busse"},
    {kVehicle | kMachine, "ship", "ships", n, "Schiff", "Schiffe"},
    {kPlace, "garden", "gardens", m, "Garten", "Gärten"},
    {kBuilding | kRoom, "house", "houses", n, "Haus", "Häuser"},
    {kPlace | kRoom, "kitchen", "kitchens", f, "Küche", "Küchen"},
    {kBuilding, "school", "schools", f, "Schule", "Schulen"},
    {kPlace, "city", "cities", f, "Stadt", "Städte"},
    {kPlace, "village", "villages", n, "Dorf", "Dörfer"},
    {kBuilding, "church", "churches", f, "Kirche", "Kirchen"},
    {kBuilding, "museum", "museums", n, "Museum", "Museen"},
    {kBuilding, "hotel", "hotels", n, "Hotel", "Hotels"},
    {kPlace, "park", "parks", m, "Park", "Parks"},
    {kPlace, "forest", "forests", m, "Wald", "Wälder"},
    {kPlace | kRoom, "room", "rooms", n, "Zimmer", "Zimmer"},
    {kBuilding, "library", "libraries", f, "Bibliothek", "Bibliotheken"},
    {kPlace | kRoom, "office", "offices", n, "Büro", "Büros"},
    {kBuilding, "restaurant", "restaurants", n, "Restaurant", "Restaurants"},
    {kBuilding, "hospital", "hospitals", n, "Krankenhaus", "Krankenhäuser"},
    {kShelter | kLandmark, "tree", "trees", m, "Baum", "Bäume"},
    {kShelter | kLandmark, "bridge", "bridges", f, "Brücke", "Brücken"},
    {kSong, "song", "songs", n, "Lied", "Lieder"},
};

constexpr Adjective kAdjectives[] = {
    {kAny, "old", "alt", "alt"},
    {kLiving, "young", "jung", "jung"},
    {kGoods | kBuilding | kOpenable | kSong, "new", "neu", "neu"},
    {kAnimal | kThing | kVehicle | kBuilding | kShelter | kOpenable, "big", "groß", "groß"},
    {kAny, "small", "klein", "klein"},
    {kAny | kSong, "beautiful", "schön", "schön"},
    {kPerson | kReadable | kFood | kDrink, "good", "gut", "gut"},
    {kClothing | kVehicle | kThing | kOpenable, "red", "rot", "rot"},
    {kClothing | kVehicle | kThing | kOpenable, "green", "grün", "grün"},
    {kClothing | kVehicle | kThing | kOpenable, "blue", "blau", "blau"},
    {kClothing | kVehicle | kAnimal, "black", "schwarz", "schwarz"},
    {kClothing | kVehicle | kAnimal, "white", "weiß", "weiß"},
    {kAnimal | kClothing, "brown", "braun", "braun"},
    {kGoods, "expensive", "teuer", "teur"},
    {kGoods, "cheap", "billig", "billig"},
    {kThing | kOpenable, "heavy", "schwer", "schwer"},
    {kThing | kClothing | kVehicle | kRoom, "clean", "sauber", "sauber"},
    {kThing | kClothing | kVehicle | kRoom, "dirty", "schmutzig", "schmutzig"},
    {kPerson, "friendly", "freundlich", "freundlich"},
    {kLiving, "tired", "müde", "müd"},
    {kPerson, "happy", "glücklich", "glücklich"},
    {kPerson, "sad", "traurig", "traurig"},
    {kLiving, "clever", "klug", "klug"},
    {kLiving, "strong", "stark", "stark"},
    {kPerson, "poor", "arm", "arm"},
    {kPerson, "rich", "reich", "reich"},
    {kPerson, "famous", "berühmt", "berühmt"},
    {kLiving, "ill", "krank", "krank"},
    {kLiving, "hungry", "hungrig", "hungrig"},
    {kPerson, "lazy", "faul", "faul"},
    {kPlace, "quiet", "ruhig", "ruhig"},
    {kRoom | kPlace, "dark", "dunkel", "dunkl"},
    {kFood | kDrink | kClothing, "warm", "warm", "warm"},
    {kFood | kDrink, "cold", "kalt", "kalt"},
    {kFood | kDrink, "sweet", "süß", "süß"},
    {kFood | kDrink, "fresh", "frisch", "frisch"},
    {kReadable | kSong, "long", "lang", "lang"},
    {kReadable | kSong, "short", "kurz", "kurz"},
    {kReadable | kBuilding, "interesting", "interessant", "interessant"},
    {kReadable | kPerson, "important", "wichtig", "wichtig"},
    {kReadable | kSong, "boring", "langweilig", "langweilig"},
    {kMachine | kFragile, "broken", "kaputt", "kaputt"},
    {kBuilding, "modern", "modern", "modern"},
};

constexpr Verb kVerbs[] = {
    // Frame, subjects, objects | English forms, particle, preposition | prefix, German forms
    {Frame::kNothing, kLiving, 0, "sleep", "sleeps", "slept", "slept", "", "", "", "schlafen", "schlafe", "schläfst", "schläft", "schlief", "geschlafen"},
    {Frame::kNothing, kPerson, 0, "work", "works", "worked", "worked", "", "", "", "arbeiten", "arbeite", "arbeitest", "arbeitet", "arbeitete", "gearbeitet"},
    {Frame::kNothing, kPerson, 0, "dance", "dances", "danced", "danced", "", "", "", "tanzen", "tanze", "tanzt", "tanzt", "tanzte", "getanzt"},
    {Frame::kNothing, kPerson, 0, "laugh", "laughs", "laughed", "laughed", "", "", "", "lachen", "lache", "lachst", "lacht", "lachte", "gelacht"},
    {Frame::kNothing, kPerson, 0, "cry", "cries", "cried", "cried", "", "", "", "weinen", "weine", "weinst", "weint", "weinte", "geweint"},
    {Frame::kNothing, kLiving, 0, "play", "plays", "played", "played", "", "", "", "spielen", "spiele", "spielst", "spielt", "spielte", "gespielt"},
    {Frame::kNothing, kLiving, 0, "wait", "waits", "waited", "waited", "", "", "", "warten", "warte", "wartest", "wartet", "wartete", "gewartet"},
    {Frame::kNothing, kLiving, 0, "swim", "swims", "swam", "swum", "", "", "", "schwimmen", "schwimme", "schwimmst", "schwimmt", "schwamm", "geschwommen", kSein},
    {Frame::kNothing, kPerson, 0, "arrive", "arrives", "arrived", "arrived", "", "", "an", "kommen", "komme", "kommst", "kommt", "kam", "angekommen", kSein},
    {Frame::kNothing, kPerson, 0, "get", "gets", "got", "got", "up", "", "auf", "stehen", "stehe", "stehst", "steht", "stand", "aufgestanden", kSein},
    {Frame::kNothing, kLiving, 0, "wake", "wakes", "woke", "woken", "up", "", "auf", "wachen", "wache", "wachst", "wacht", "wachte", "aufgewacht", kSein},
    {Frame::kNothing, kLiving, 0, "fall", "falls", "fell", "fallen", "asleep", "", "ein", "schlafen", "schlafe", "schläfst", "schläft", "schlief", "eingeschlafen", kSein},
    {Frame::kNothing, kLiving, 0, "come", "comes", "came", "come", "back", "", "zurück", "kommen", "komme", "kommst", "kommt", "kam", "zurückgekommen", kSein},
    {Frame::kNothing, kPerson, 0, "watch", "watches", "watched", "watched", "television", "", "fern", "sehen", "sehe", "siehst", "sieht", "sah", "ferngesehen"},
    {Frame::kNothing, kPerson, 0, "go", "goes", "went", "gone", "shopping", "", "ein", "kaufen", "kaufe", "kaufst", "kauft", "kaufte", "eingekauft"},
    {Frame::kNothing, kPerson, 0, "go", "goes", "went", "gone", "out", "", "aus", "gehen", "gehe", "gehst", "geht", "ging", "ausgegangen", kSein},

    {Frame::kObject, kPerson, kReadable, "read", "reads", "read", "read", "", "", "", "lesen", "lese", "liest", "liest", "las", "gelesen"},
    {Frame::kObject, kPerson, kReadable, "write", "writes", "wrote", "written", "", "", "", "schreiben", "schreibe", "schreibst", "schreibt", "schrieb", "geschrieben"},
    {Frame::kObject, kPerson, kGoods, "buy", "buys", "bought", "bought", "", "", "", "kaufen", "kaufe", "kaufst", "kauft", "kaufte", "gekauft"},
    {Frame::kObject, kPerson, kGoods, "sell", "sells", "sold", "sold", "", "", "", "verkaufen", "verkaufe", "verkaufst", "verkauft", "verkaufte", "verkauft"},
    {Frame::kObject, kLiving, kAny, "see", "sees", "saw", "seen", "", "", "", "sehen", "sehe", "siehst", "sieht", "sah", "gesehen"},
    {Frame::kObject, kLiving, kLiving | kGoods, "find", "finds", "found", "found", "", "", "", "finden", "finde", "findest", "findet", "fand", "gefunden"},
    {Frame::kObject, kPerson, kThing | kClothing | kVehicle, "need", "needs", "needed", "needed", "", "", "", "brauchen", "brauche", "brauchst", "braucht", "brauchte", "gebraucht"},
    {Frame::kObject, kPerson, kLiving, "love", "loves", "loved", "loved", "", "", "", "lieben", "liebe", "liebst", "liebt", "liebte", "geliebt"},
    {Frame::kObject, kLiving, kFood, "eat", "eats", "ate", "eaten", "", "", "", "essen", "esse", "isst", "isst", "aß", "gegessen"},
    {Frame::kObject, kPerson, kDrink, "drink", "drinks", "drank", "drunk", "", "", "", "trinken", "trinke", "trinkst", "trinkt", "trank", "getrunken"},
    {Frame::kObject, kLiving, kLiving | kThing | kClothing, "look", "looks", "looked", "looked", "", "for", "", "suchen", "suche", "suchst", "sucht", "suchte", "gesucht"},
    {Frame::kObject, kPerson, kPerson | kPlace, "know", "knows", "knew", "known", "", "", "", "kennen", "kenne", "kennst", "kennt", "kannte", "gekannt"},
    {Frame::kObject, kPerson, kPerson | kBuilding, "visit", "visits", "visited", "visited", "", "", "", "besuchen", "besuche", "besuchst", "besucht", "besuchte", "besucht"},
    {Frame::kObject, kPerson, kThing | kClothing | kReadable, "forget", "forgets", "forgot", "forgotten", "", "", "", "vergessen", "vergesse", "vergisst", "vergisst", "vergaß", "vergessen"},
    {Frame::kObject, kPerson, kThing, "carry", "carries", "carried", "carried", "", "", "", "tragen", "trage", "trägst", "trägt", "trug", "getragen"},
    {Frame::kObject, kPerson, kClothing | kVehicle | kAnimal, "wash", "washes", "washed", "washed", "", "", "", "waschen", "wasche", "wäschst", "wäscht", "wusch", "gewaschen"},
    {Frame::kObject, kPerson, kMachine, "repair", "repairs", "repaired", "repaired", "", "", "", "reparieren", "repariere", "reparierst", "repariert", "reparierte", "repariert"},
    {Frame::kObject, kPerson, kSong, "sing", "sings", "sang", "sung", "", "", "", "singen", "singe", "singst", "singt", "sang", "gesungen"},
    {Frame::kObject, kLiving, kLiving | kSong, "hear", "hears", "heard", "heard", "", "", "", "hören", "höre", "hörst", "hört", "hörte", "gehört"},
    {Frame::kObject, kPerson, kFragile, "break", "breaks", "broke", "broken", "", "", "", "zerbrechen", "zerbreche", "zerbrichst", "zerbricht", "zerbrach", "zerbrochen"},
    {Frame::kObject, kPerson, kPerson, "ask", "asks", "asked", "asked", "", "", "", "fragen", "frage", "fragst", "fragt", "fragte", "gefragt"},

    {Frame::kObject, kPerson, kPerson, "call", "calls", "called", "called", "", "", "an", "rufen", "rufe", "rufst", "ruft", "rief", "angerufen"},
    {Frame::kObject, kPerson, kOpenable, "open", "opens", "opened", "opened", "", "", "auf", "machen", "mache", "machst", "macht", "machte", "aufgemacht"},
    {Frame::kObject, kPerson, kOpenable, "close", "closes", "closed", "closed", "", "", "zu", "machen", "mache", "machst", "macht", "machte", "zugemacht"},
    {Frame::kObject, kPerson, kPerson, "invite", "invites", "invited", "invited", "", "", "ein", "laden", "lade", "lädst", "lädt", "lud", "eingeladen"},
    {Frame::kObject, kPerson, kPerson, "pick", "picks", "picked", "picked", "up", "", "ab", "holen", "hole", "holst", "holt", "holte", "abgeholt"},
    {Frame::kObject, kPerson, kRoom, "tidy", "tidies", "tidied", "tidied", "up", "", "auf", "räumen", "räume", "räumst", "räumt", "räumte", "aufgeräumt"},
    {Frame::kObject, kPerson, kThing | kClothing, "throw", "throws", "threw", "thrown", "away", "", "weg", "werfen", "werfe", "wirfst", "wirft", "warf", "weggeworfen"},
    {Frame::kObject, kPerson, kClothing, "put", "puts", "put", "put", "on", "", "an", "ziehen", "ziehe", "ziehst", "zieht", "zog", "angezogen"},
    {Frame::kObject, kPerson, kThing | kFood, "bring", "brings", "brought", "brought", "along", "", "mit", "bringen", "bringe", "bringst", "bringt", "brachte", "mitgebracht"},
    {Frame::kObject, kPerson, kSwitch, "turn", "turns", "turned", "turned", "on", "", "an", "machen", "mache", "machst", "macht", "machte", "angemacht"},
    {Frame::kObject, kPerson, kSwitch, "turn", "turns", "turned", "turned", "off", "", "aus", "machen", "mache", "machst", "macht", "machte", "ausgemacht"},
    {Frame::kObject, kLiving, kLiving | kThing | kClothing, "look", "looks", "looked", "looked", "", "at", "an", "sehen", "sehe", "siehst", "sieht", "sah", "angesehen"},
    {Frame::kObject, kLiving, kFood, "eat", "eats", "ate", "eaten", "up", "", "auf", "essen", "esse", "isst", "isst", "aß", "aufgegessen"},

    {Frame::kObject, kPerson, kPerson, "help", "helps", "helped", "helped", "", "", "", "helfen", "helfe", "hilfst", "hilft", "half", "geholfen", kHaben, "", Case::kDative},
    {Frame::kObject, kPerson, kPerson, "thank", "thanks", "thanked", "thanked", "", "", "", "danken", "danke", "dankst", "dankt", "dankte", "gedankt", kHaben, "", Case::kDative},
    {Frame::kObject, kPerson, kPerson, "answer", "answers", "answered", "answered", "", "", "", "antworten", "antworte", "antwortest", "antwortet", "antwortete", "geantwortet", kHaben, "", Case::kDative},
    {Frame::kObject, kLiving, kLiving, "follow", "follows", "followed", "followed", "", "", "", "folgen", "folge", "folgst", "folgt", "folgte", "gefolgt", kSein, "", Case::kDative},

    {Frame::kObject, kPerson, kPerson | kVehicle, "wait", "waits", "waited", "waited", "", "for", "", "warten", "warte", "wartest", "wartet", "wartete", "gewartet", kHaben, "auf"},
    {Frame::kObject, kPerson, kPerson, "think", "thinks", "thought", "thought", "", "of", "", "denken", "denke", "denkst", "denkt", "dachte", "gedacht", kHaben, "an"},
    {Frame::kObject, kPerson, kPerson | kReadable, "laugh", "laughs", "laughed", "laughed", "", "about", "", "lachen", "lache", "lachst", "lacht", "lachte", "gelacht", kHaben, "über"},
    {Frame::kObject, kPerson, kPerson, "talk", "talks", "talked", "talked", "", "to", "", "sprechen", "spreche", "sprichst", "spricht", "sprach", "gesprochen", kHaben, "mit", Case::kDative},
    {Frame::kObject, kLiving, kLiving, "play", "plays", "played", "played", "", "with", "", "spielen", "spiele", "spielst", "spielt", "spielte", "gespielt", kHaben, "mit", Case::kDative},
    {Frame::kObject, kPerson, kPerson | kVehicle, "dream", "dreams", "dreamed", "dreamed", "", "of", "", "träumen", "träume", "träumst", "träumt", "träumte", "geträumt", kHaben, "von", Case::kDative},

    {Frame::kTwoObjects, kPerson, kThing | kReadable | kFood | kClothing, "give", "gives", "gave", "given", "", "", "", "geben", "gebe", "gibst", "gibt", "gab", "gegeben"},
    {Frame::kTwoObjects, kPerson, kThing | kReadable | kVehicle, "show", "shows", "showed", "shown", "", "", "", "zeigen", "zeige", "zeigst", "zeigt", "zeigte", "gezeigt"},
    {Frame::kTwoObjects, kPerson, kThing | kReadable, "send", "sends", "sent", "sent", "", "", "", "schicken", "schicke", "schickst", "schickt", "schickte", "geschickt"},
    {Frame::kTwoObjects, kPerson, kThing | kFood | kDrink, "bring", "brings", "brought", "brought", "", "", "", "bringen", "bringe", "bringst", "bringt", "brachte", "gebracht"},
    {Frame::kTwoObjects, kPerson, kThing | kReadable | kVehicle, "lend", "lends", "lent", "lent", "", "", "", "leihen", "leihe", "leihst", "leiht", "lieh", "geliehen"},

    {Frame::kPlace, kPerson, 0, "live", "lives", "lived", "lived", "", "", "", "wohnen", "wohne", "wohnst", "wohnt", "wohnte", "gewohnt"},
    {Frame::kPlace, kLiving, 0, "sit", "sits", "sat", "sat", "", "", "", "sitzen", "sitze", "sitzt", "sitzt", "saß", "gesessen"},
    {Frame::kPlace, kLiving, 0, "stand", "stands", "stood", "stood", "", "", "", "stehen", "stehe", "stehst", "steht", "stand", "gestanden"},
    {Frame::kDirection, kLiving, 0, "go", "goes", "went", "gone", "", "", "", "gehen", "gehe", "gehst", "geht", "ging", "gegangen", kSein},
    {Frame::kDirection, kLiving, 0, "run", "runs", "ran", "run", "", "", "", "laufen", "laufe", "läufst", "läuft", "lief", "gelaufen", kSein},
    {Frame::kDirection, kLiving, 0, "come", "comes", "came", "come", "", "", "", "kommen", "komme", "kommst", "kommt", "kam", "gekommen", kSein},

    {Frame::kThatClause, kPerson, 0, "know", "knows", "knew", "known", "", "", "", "wissen", "weiß", "weißt", "weiß", "wusste", "gewusst"},
    {Frame::kThatClause, kPerson, 0, "think", "thinks", "thought", "thought", "", "", "", "denken", "denke", "denkst", "denkt", "dachte", "gedacht"},
    {Frame::kThatClause, kPerson, 0, "say", "says", "said", "said", "", "", "", "sagen", "sage", "sagst", "sagt", "sagte", "gesagt"},
    {Frame::kThatClause, kPerson, 0, "believe", "believes", "believed", "believed", "", "", "", "glauben", "glaube", "glaubst", "glaubt", "glaubte", "geglaubt"},
    {Frame::kThatClause, kPerson, 0, "hope", "hopes", "hoped", "hoped", "", "", "", "hoffen", "hoffe", "hoffst", "hofft", "hoffte", "gehofft"},
    {Frame::kThatClause, kPerson, 0, "see", "sees", "saw", "seen", "", "", "", "sehen", "sehe", "siehst", "sieht", "sah", "gesehen"},
    {Frame::kWhetherClause, kPerson, 0, "ask", "asks", "asked", "asked", "", "", "", "fragen", "frage", "fragst", "fragt", "fragte", "gefragt"},
    {Frame::kInfinitive, kPerson, 0, "try", "tries", "tried", "tried", "", "", "", "versuchen", "versuche", "versuchst", "versucht", "versuchte", "versucht"},
    {Frame::kInfinitive, kPerson, 0, "hope", "hopes", "hoped", "hoped", "", "", "", "hoffen", "hoffe", "hoffst", "hofft", "hoffte", "gehofft"},
    {Frame::kInfinitive, kPerson, 0, "forget", "forgets", "forgot", "forgotten", "", "", "", "vergessen", "vergesse", "vergisst", "vergisst", "vergaß", "vergessen"},
    {Frame::kInfinitive, kPerson, 0, "promise", "promises", "promised", "promised", "", "", "", "versprechen", "verspreche", "versprichst", "verspricht", "versprach", "versprochen"},
    {Frame::kInfinitive, kPerson, 0, "plan", "plans", "planned", "planned", "", "", "", "planen", "plane", "planst", "plant", "plante", "geplant"},
};

constexpr Modal kModals[] = {
    {"can", false, true, "kann", "kannst", "können"},
    {"must", false, false, "muss", "musst", "müssen"},
    {"should", false, true, "soll", "sollst", "sollen"},
    {"may", false, true, "darf", "darfst", "dürfen"},
    {"want", true, true, "will", "willst", "wollen"},
};

constexpr Pronoun kPronouns[] = {
    {"I", "me", "ich", "mich", "mir", 1, false},    {"you", "you", "du", "dich", "dir", 2, false},
    {"he", "him", "er", "ihn", "ihm", 3, false},    {"she", "her", "sie", "sie", "ihr", 3, false},
    {"we", "us", "wir", "uns", "uns", 1, true},     {"they", "them", "sie", "sie", "ihnen", 3, true},
};

constexpr Determiner kDeterminers[] = {
    {DeterminerKind::kDefinite, "the", "the", "d"},
    {DeterminerKind::kIndefinite, "a", "", "ein"},
    {DeterminerKind::kDemonstrative, "this", "these", "dies"},
    {DeterminerKind::kEvery, "every", "", "jed"},
    {DeterminerKind::kPossessive, "my", "my", "mein"},
    {DeterminerKind::kPossessive, "your", "your", "dein"},
    {DeterminerKind::kPossessive, "his", "his", "sein"},
    {DeterminerKind::kPossessive, "her", "her", "ihr"},
    {DeterminerKind::kPossessive, "our", "our", "unser"},
    {DeterminerKind::kQuantity, "", "two", "zwei"},
    {DeterminerKind::kQuantity, "", "three", "drei"},
    {DeterminerKind::kQuantity, "", "many", "viele"},
    {DeterminerKind::kQuantity, "", "some", "einige"},
};

constexpr uint32_t kNow = TenseBit(Tense::kPresent);
constexpr uint32_t kThen = TenseBit(Tense::kPast);
constexpr uint32_t kDone = TenseBit(Tense::kPerfect);
constexpr uint32_t kLater = TenseBit(Tense::kFuture);
constexpr uint32_t kMaybe = TenseBit(Tense::kModal);

constexpr TimeAdverb kTimeAdverbs[] = {
    {kNow | kDone | kMaybe, "today", "heute"},
    {kNow | kMaybe, "now", "jetzt"},
    {kNow | kMaybe, "every day", "jeden Tag"},
    {kNow | kThen | kMaybe, "in the morning", "am Morgen"},
    {kNow | kThen | kLater, "in the evening", "am Abend"},
    {kNow | kThen | kLater | kMaybe, "on Sunday", "am Sonntag"},
    {kNow | kThen | kLater, "on Monday", "am Montag"},
    {kNow | kThen | kLater, "in summer", "im Sommer"},
    {kThen, "yesterday", "gestern"},
    {kThen, "last week", "letzte Woche"},
    {kThen, "last year", "letztes Jahr"},
    {kLater | kMaybe, "tomorrow", "morgen"},
    {kLater, "next week", "nächste Woche"},
    {kLater, "soon", "bald"},
};

constexpr FrequencyAdverb kFrequencyAdverbs[] = {
    {"often", "oft"}, {"always", "immer"}, {"sometimes", "manchmal"}, {"never", "nie"}, {"rarely", "selten"},
};

constexpr PlacePreposition kPlacePrepositions[] = {
    {kPlace, "in", "in"},
    {kLandmark, "behind", "hinter"},
    {kLandmark, "in front of", "vor"},
    {kLandmark, "next to", "neben"},
    {kShelter, "under", "unter"},
};

constexpr Conjunction kConjunctions[] = {
    {"because", "weil", "weil", false},   {"although", "obwohl", "obwohl", false},
    {"when", "wenn", "als", true},        {"before", "bevor", "bevor", true},
    {"while", "während", "während", true},
};
// clang-format on

}  // namespace

std::span<const Noun> Nouns() { return kNouns; }
std::span<const Adjective> Adjectives() { return kAdjectives; }
std::span<const Verb> Verbs() { return kVerbs; }
std::span<const Modal> Modals() { return kModals; }
std::span<const Pronoun> Pronouns() { return kPronouns; }
std::span<const Determiner> Determiners() { return kDeterminers; }
std::span<const TimeAdverb> TimeAdverbs() { return kTimeAdverbs; }
std::span<const FrequencyAdverb> FrequencyAdverbs() { return kFrequencyAdverbs; }
std::span<const PlacePreposition> PlacePrepositions() { return kPlacePrepositions; }
std::span<const Conjunction> Conjunctions() { return kConjunctions; }

}  // namespace hadal
