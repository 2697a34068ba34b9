//! REPLCONF: what a replica reports about itself, and acknowledges.
//!
//! Options come in any order. An unknown option is an error, which replicas ignore. `ACK`, `FACK`
//! and `GETACK` are never answered.

use base::number::parse_i64;

use crate::transcode::Peer;

/// The answer to accepted options.
pub const REPLY_OK: &str = "+OK\r\n";

/// Maximum length of a replica's address.
const ADDRESS_BYTES_MAX: usize = 255;

/// What a connection reported about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replconf {
    /// Whether its snapshot may end with a mark instead of beginning with its length.
    pub can_eof: bool,
    /// Whether it understands `+CONTINUE <id>`.
    pub can_psync2: bool,
    /// The port it listens on, or 0 if it did not report one.
    pub listening_port: u16,
    /// The name it wants to be shown with instead of its address.
    pub ip_address: Option<String>,
    /// Its software and version, if it reported them.
    pub peer: Option<Peer>,
    /// Whether it wants a snapshot and nothing after it.
    pub is_rdb_only: bool,
    /// The content of the snapshot if it is restricted: functions only, or nothing at all.
    pub filter: Option<Filter>,
}

/// The content of a restricted snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Whether it contains libraries of functions.
    pub has_functions: bool,
}

/// Result of a REPLCONF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplconfAnswer {
    /// `+OK`.
    Ok,
    /// No answer is sent.
    Silent(ReplconfEvent),
    /// An error, with its code.
    Error(String),
}

/// An option without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplconfEvent {
    /// The replica has applied a number of bytes of the stream.
    Ack {
        /// Bytes applied.
        offset: u64,
        /// Bytes whose effects are durable on the replica, if it reports them.
        fsynced: Option<u64>,
    },
    /// The primary wants an acknowledgement at once.
    GetAck,
    /// An option without effect.
    Nothing,
}

impl Replconf {
    /// Applies the arguments of a REPLCONF, without its name. Options before an erroneous one are
    /// applied.
    pub fn apply(&mut self, args: &[&[u8]]) -> ReplconfAnswer {
        if args.is_empty() || !args.len().is_multiple_of(2) {
            return error("ERR syntax error");
        }
        let mut pairs = args.chunks_exact(2);
        while let Some([name, value]) = pairs.next() {
            let name = name.to_ascii_lowercase();
            match name.as_slice() {
                b"ack" => {
                    let rest: Vec<&[u8]> = pairs.flatten().copied().collect();
                    return ReplconfAnswer::Silent(ack(value, &rest));
                }
                b"getack" => return ReplconfAnswer::Silent(ReplconfEvent::GetAck),
                name => {
                    if let Err(text) = self.set(name, value) {
                        return ReplconfAnswer::Error(text);
                    }
                }
            }
        }
        ReplconfAnswer::Ok
    }

    fn set(&mut self, name: &[u8], value: &[u8]) -> Result<(), String> {
        match name {
            b"listening-port" => {
                let port = number(value)?;
                self.listening_port = u16::try_from(port).unwrap_or_default();
            }
            b"ip-address" if value.len() > ADDRESS_BYTES_MAX => {
                return Err(format!(
                    "ERR REPLCONF ip-address provided by replica instance is too long: {} bytes",
                    value.len()
                ));
            }
            b"ip-address" => {
                let text = String::from_utf8_lossy(value).into_owned();
                self.ip_address = Some(text).filter(|text| !text.is_empty());
            }
            b"capa" => {
                self.can_eof |= value.eq_ignore_ascii_case(b"eof");
                self.can_psync2 |= value.eq_ignore_ascii_case(b"psync2");
            }
            b"version" => self.peer = Peer::of_version_sent(value),
            b"rdb-only" => self.is_rdb_only = number(value)? != 0,
            b"rdb-filter-only" => self.filter = Some(filter(value)?),
            _ => {
                return Err(format!(
                    "ERR Unrecognized REPLCONF option: {}",
                    name.escape_ascii()
                ));
            }
        }
        Ok(())
    }
}

fn number(value: &[u8]) -> Result<i64, String> {
    let refused = || "ERR value is not an integer or out of range".to_owned();
    parse_i64(value).ok_or_else(refused)
}

fn filter(value: &[u8]) -> Result<Filter, String> {
    let mut filter = Filter::default();
    for word in value.split(u8::is_ascii_whitespace) {
        if word.eq_ignore_ascii_case(b"functions") {
            filter.has_functions = true;
        } else if !word.is_empty() {
            return Err(format!(
                "ERR Unsupported rdb-filter-only option: {}",
                word.escape_ascii()
            ));
        }
    }
    Ok(filter)
}

fn ack(value: &[u8], rest: &[&[u8]]) -> ReplconfEvent {
    let offset = |text: &[u8]| parse_i64(text).and_then(|it| u64::try_from(it).ok());
    let Some(applied) = offset(value) else {
        return ReplconfEvent::Nothing;
    };
    let fsynced = match rest {
        [name, value, ..] if name.eq_ignore_ascii_case(b"fack") => offset(value),
        _ => None,
    };
    ReplconfEvent::Ack {
        offset: applied,
        fsynced,
    }
}

fn error(text: &str) -> ReplconfAnswer {
    ReplconfAnswer::Error(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(conf: &mut Replconf, line: &str) -> ReplconfAnswer {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        conf.apply(&args)
    }

    #[test]
    fn what_replicas_say_is_kept() {
        let mut conf = Replconf::default();
        for line in [
            "listening-port 6380",
            "capa eof capa psync2 capa dual-channel",
            "ip-address replica.example",
            "version 9.0.1",
            "rdb-only 1",
        ] {
            assert_eq!(apply(&mut conf, line), ReplconfAnswer::Ok, "{line}");
        }
        let expected = Replconf {
            can_eof: true,
            can_psync2: true,
            listening_port: 6380,
            ip_address: Some("replica.example".to_owned()),
            peer: Some(Peer::Valkey90),
            is_rdb_only: true,
            filter: None,
        };
        assert_eq!(conf, expected);
        assert_eq!(
            apply(&mut conf, "rdb-filter-only functions"),
            ReplconfAnswer::Ok
        );
        assert!(conf.filter.is_some_and(|filter| filter.has_functions));
        assert_eq!(conf.apply(&[b"rdb-filter-only", b""]), ReplconfAnswer::Ok);
        assert!(conf.filter.is_some_and(|filter| !filter.has_functions));
    }

    #[test]
    fn acknowledgements_are_not_answered() {
        let mut conf = Replconf::default();
        let event =
            |offset, fsynced| ReplconfAnswer::Silent(ReplconfEvent::Ack { offset, fsynced });
        assert_eq!(apply(&mut conf, "ACK 12"), event(12, None));
        assert_eq!(apply(&mut conf, "ACK 12 FACK 8"), event(12, Some(8)));
        let nothing = ReplconfAnswer::Silent(ReplconfEvent::Nothing);
        assert_eq!(apply(&mut conf, "ack -1"), nothing);
        assert_eq!(apply(&mut conf, "ack x"), nothing);
        let getack = ReplconfAnswer::Silent(ReplconfEvent::GetAck);
        assert_eq!(apply(&mut conf, "GETACK *"), getack);
    }

    #[test]
    fn what_is_not_known_is_an_error() {
        let mut conf = Replconf::default();
        for (line, text) in [
            ("capa", "ERR syntax error"),
            ("colour red", "ERR Unrecognized REPLCONF option: colour"),
            (
                "listening-port x",
                "ERR value is not an integer or out of range",
            ),
            (
                "rdb-filter-only keys",
                "ERR Unsupported rdb-filter-only option: keys",
            ),
        ] {
            assert_eq!(
                apply(&mut conf, line),
                ReplconfAnswer::Error(text.to_owned()),
                "{line}"
            );
        }
        assert_eq!(conf, Replconf::default());
    }
}
