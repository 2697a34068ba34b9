//! Each server restores the values that the other one dumps.
//!
//! Both servers return all their values as payloads of DUMP and delete all keys. Then each restores
//! the other's payloads. Afterwards both must hold the same data again, including encodings.
//! Deadlines are left out.

use std::io;

use protocol::Value;

use super::sequence::Answer;
use super::state;
use crate::client::Client;
use crate::transcript::show;

/// A value, as its database, key and payload.
struct Dumped {
    database: String,
    key: Vec<u8>,
    payload: Vec<u8>,
}

/// Returns what both servers hold after each has restored the other's values. An error names the
/// server and the refusal.
pub(super) fn exchange(one: &mut Client, two: &mut Client) -> (Answer, Answer) {
    match (dump(one), dump(two)) {
        (Ok(ones), Ok(twos)) => (load(one, &twos), load(two, &ones)),
        (one, two) => {
            let in_words = |side: io::Result<_>| match side {
                Ok(_) => "dumps".to_owned(),
                Err(error) => error.to_string(),
            };
            (Err(in_words(one)), Err(in_words(two)))
        }
    }
}

fn dump(client: &mut Client) -> io::Result<Vec<Dumped>> {
    let mut dumped = Vec::new();
    for database in 0..state::DATABASES {
        let database = database.to_string();
        client.command(&["SELECT", &database])?;
        let Value::Array(keys) = client.command(&["KEYS", "*"])? else {
            continue;
        };
        for key in keys {
            let Value::Bulk(key) = key else { continue };
            match client.command(&[b"DUMP".as_slice(), &key])? {
                Value::Bulk(payload) => dumped.push(Dumped {
                    database: database.clone(),
                    key,
                    payload,
                }),
                // The key has expired since.
                Value::Null => {}
                other => return Err(io::Error::other(format!("DUMP: {}", show(&other)))),
            }
        }
    }
    Ok(dumped)
}

fn load(client: &mut Client, dumped: &[Dumped]) -> Answer {
    restore(client, dumped)
        .and_then(|()| state::read(client))
        .map_err(|error| error.to_string())
}

fn restore(client: &mut Client, dumped: &[Dumped]) -> io::Result<()> {
    client.command(&["FLUSHALL"])?;
    for one in dumped {
        client.command(&["SELECT", &one.database])?;
        let reply = client.command(&[b"RESTORE".as_slice(), &one.key, b"0", &one.payload])?;
        if reply != Value::Simple(b"OK".to_vec()) {
            let (key, payload) = (
                base::words::quote(&one.key),
                base::words::quote(&one.payload),
            );
            let what = format!("RESTORE {key} 0 {payload}: {}", show(&reply));
            return Err(io::Error::other(what));
        }
    }
    Ok(())
}
