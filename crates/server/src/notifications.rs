//! Keyspace notifications: the events that `notify-keyspace-events` publishes.
//!
//! A letter stands for a class of events or for a kind of channel. `K` means `__keyspace@N__:KEY`,
//! whose messages are events, and `E` means `__keyevent@N__:EVENT`, whose messages are keys. `A` is
//! all classes except those of new and missed keys. Without a kind of channel nothing is sent.

use store::EventClass;

/// The letter of each class, in the order in which they are shown.
const CLASSES: [(u8, EventClass); 10] = [
    (b'g', EventClass::GENERIC),
    (b'$', EventClass::STRING),
    (b'l', EventClass::LIST),
    (b's', EventClass::SET),
    (b'h', EventClass::HASH),
    (b'z', EventClass::SORTED_SET),
    (b'x', EventClass::EXPIRED),
    (b'e', EventClass::EVICTED),
    (b't', EventClass::STREAM),
    (b'd', EventClass::MODULE),
];

/// The classes of `A`.
const ALL: EventClass = {
    let (mut all, mut at) = (EventClass::NONE, 0);
    while at < CLASSES.len() {
        all = all.and(CLASSES[at].1);
        at += 1;
    }
    all
};

/// The value of `notify-keyspace-events`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notifications {
    /// Classes of events.
    pub classes: EventClass,
    /// Whether an event goes to the channel of its key.
    pub by_key: bool,
    /// Whether an event goes to the channel of its name.
    pub by_event: bool,
}

impl Notifications {
    /// Parses letters.
    ///
    /// # Errors
    /// Redis' sentence about a letter without meaning.
    pub fn parse(letters: &[u8]) -> Result<Self, String> {
        let mut asked = Self::default();
        for letter in letters {
            let class = match letter {
                b'A' => ALL,
                b'K' => {
                    asked.by_key = true;
                    EventClass::NONE
                }
                b'E' => {
                    asked.by_event = true;
                    EventClass::NONE
                }
                b'm' => EventClass::KEY_MISS,
                b'n' => EventClass::NEW,
                letter => {
                    let class = CLASSES.iter().find(|(known, _)| known == letter);
                    let Some((_, class)) = class else {
                        return Err(
                            "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".to_owned()
                        );
                    };
                    *class
                }
            };
            asked.classes = asked.classes.and(class);
        }
        Ok(asked)
    }

    /// Returns the letters as CONFIG GET shows them, without `n` beside `A`, as in Redis.
    #[must_use]
    pub fn show(self) -> String {
        let shows_new = !self.classes.has_all(ALL);
        self.letters(shows_new)
    }

    /// Returns letters that parse to the same value.
    #[must_use]
    pub fn write(self) -> String {
        self.letters(true)
    }

    fn letters(self, shows_new: bool) -> String {
        let mut letters = String::new();
        if self.classes.has_all(ALL) {
            letters.push('A');
        } else {
            let asked = CLASSES.iter().filter(|(_, class)| self.classes.has(*class));
            letters.extend(asked.map(|(letter, _)| char::from(*letter)));
        }
        let others = [
            ('n', shows_new && self.classes.has(EventClass::NEW)),
            ('K', self.by_key),
            ('E', self.by_event),
            ('m', self.classes.has(EventClass::KEY_MISS)),
        ];
        letters.extend(
            others
                .iter()
                .filter(|(_, is_asked)| *is_asked)
                .map(|(letter, _)| letter),
        );
        letters
    }

    /// Returns the classes whose events are sent.
    #[must_use]
    pub fn in_force(self) -> EventClass {
        if self.by_key || self.by_event {
            self.classes
        } else {
            EventClass::NONE
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::*;

    #[test]
    fn letters_come_back_in_the_order_of_redis() {
        for (asked, shown) in [
            ("", ""),
            ("KEA", "AKE"),
            ("gggK", "gK"),
            ("tzKlE$", "$lztKE"),
            ("KEg$lshzxet", "g$lshzxetKE"),
            ("KEg$lshzxetd", "AKE"),
            ("KEAnm", "AKEm"),
            ("nKm", "nKm"),
            ("Klsd", "lsdK"),
        ] {
            assert_eq!(
                Notifications::parse(asked.as_bytes()).unwrap().show(),
                shown
            );
        }
        let told = Notifications::parse(b"KQ").unwrap_err();
        assert_eq!(
            told,
            "Invalid event class character. Use 'Ag$lshzxeKEtmdn'."
        );
    }

    #[test]
    fn what_is_written_asks_for_the_same() {
        for asked in ["", "KEAnm", "nx", "g$lshzxetK", "E"] {
            let value = Notifications::parse(asked.as_bytes()).unwrap();
            assert_eq!(
                Notifications::parse(value.write().as_bytes()),
                Ok(value),
                "{asked}"
            );
        }
    }

    #[test]
    fn without_a_channel_nothing_is_in_force() {
        let in_force = |asked: &[u8]| Notifications::parse(asked).unwrap().in_force();
        assert_eq!(in_force(b"Anm"), EventClass::NONE);
        assert_eq!(in_force(b"Kg"), EventClass::GENERIC);
        assert_eq!(in_force(b"E"), EventClass::NONE);
        assert!(in_force(b"EA").has_all(ALL));
    }
}
