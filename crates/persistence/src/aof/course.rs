//! The meaning of the requests of a file in sequence: the database of each command, and which
//! commands form a transaction.
//!
//! The commands of a transaction are held back until its end was read: if the end is missing, none
//! of them is applied.

use std::io::Read;

use engine::spec::InTransaction;
use engine::{Flags, Found, Table};
use store::DatabaseId;

use super::Flaw;
use super::reader::{AofReader, AofRequest, Cut, ReadFault};
use crate::replay::ReplayFault;

/// Maximum bytes of a transaction. A server also holds all of it in memory when it runs.
const TRANSACTION_BYTES_MAX: usize = 1 << 30;

/// Maximum bytes of a name that are shown.
const SHOWN_BYTES_MAX: usize = 64;

/// Takes commands in order, each with its offset and its database. An error means that they cannot
/// be applied.
pub trait Taker {
    /// Takes one command.
    ///
    /// # Errors
    /// [`ReplayFault`]: then it gets no further commands.
    fn take(
        &mut self,
        offset: u64,
        database: DatabaseId,
        request: &[u8],
    ) -> Result<(), ReplayFault>;

    /// Notes that `bytes` more were read.
    fn passed(&mut self, bytes: u64);
}

/// State of the reading of a file.
struct Course<'t, T> {
    table: &'static Table,
    taker: &'t mut T,
    databases: DatabaseId,
    database: DatabaseId,
    transaction: Option<Held>,
}

/// A transaction whose end was not read yet.
struct Held {
    /// Where it begins.
    offset: u64,
    requests: Vec<u8>,
    /// Offset and database of each command, and its end in `requests`.
    commands: Vec<(u64, DatabaseId, usize)>,
}

/// Passes the commands of a file from `offset` on, the position of `source`, to a `taker`, for a
/// server with so many databases. If the file is cut short, returns the offset of the part that is
/// left out.
///
/// # Errors
/// [`Flaw`]; the commands before it were passed on.
pub fn read<R: Read, T: Taker>(
    table: &'static Table,
    source: R,
    offset: u64,
    databases: DatabaseId,
    taker: &mut T,
) -> Result<Option<u64>, Flaw> {
    let mut reader = AofReader::new(source, offset);
    let mut course = Course {
        table,
        taker,
        databases,
        database: 0,
        transaction: None,
    };
    let mut passed = offset;
    loop {
        let mut outcome = Ok(());
        let next = reader.next(|request| {
            if outcome.is_ok() {
                outcome = course.step(&request);
            }
        });
        outcome?;
        course.taker.passed(reader.offset() - passed);
        passed = reader.offset();
        let cut = match next {
            Ok(true) => continue,
            Ok(false) => None,
            Err(ReadFault::Cut(Cut::Short(offset))) => Some(offset),
            Err(ReadFault::Cut(Cut::Damaged(offset))) => return Err(Flaw::Damaged(offset)),
            Err(ReadFault::Io(error)) => return Err(Flaw::Io(error)),
        };
        let transaction = course.transaction.map(|held| held.offset);
        return Ok(transaction.or(cut));
    }
}

impl<T: Taker> Course<'_, T> {
    fn step(&mut self, next: &AofRequest<'_>) -> Result<(), Flaw> {
        let found = self.table.original().find(next.request.name());
        let selects = found.is_some_and(|it| it.spec.flags.has(Flags::SELECTS_DATABASE));
        let in_transaction = found.map(|found| found.spec.in_transaction);
        match (in_transaction, next.request.len()) {
            (_, 2) if selects => self.select(next),
            (Some(InTransaction::Begins), 1) if self.transaction.is_none() => {
                self.transaction = Some(Held {
                    offset: next.offset,
                    requests: Vec::new(),
                    commands: Vec::new(),
                });
                Ok(())
            }
            (Some(InTransaction::Runs), 1) => self.exec(next),
            _ if found.is_some_and(is_loaded) => self.command(next),
            _ => Err(unsuitable(next)),
        }
    }

    fn select(&mut self, next: &AofRequest<'_>) -> Result<(), Flaw> {
        let number = next.request.arg(1).and_then(base::number::parse_u64);
        let database = number.and_then(|number| DatabaseId::try_from(number).ok());
        let Some(database) = database else {
            return Err(Flaw::Damaged(next.offset));
        };
        if database >= self.databases {
            let fault = ReplayFault::NoDatabase {
                position: next.offset,
                database,
                databases: self.databases,
            };
            return Err(fault.into());
        }
        self.database = database;
        Ok(())
    }

    fn command(&mut self, next: &AofRequest<'_>) -> Result<(), Flaw> {
        let Some(held) = &mut self.transaction else {
            self.taker.take(next.offset, self.database, next.bytes)?;
            return Ok(());
        };
        if held.requests.len() + next.bytes.len() > TRANSACTION_BYTES_MAX {
            return Err(Flaw::LongTransaction(held.offset));
        }
        held.requests.extend_from_slice(next.bytes);
        let end = held.requests.len();
        held.commands.push((next.offset, self.database, end));
        Ok(())
    }

    fn exec(&mut self, next: &AofRequest<'_>) -> Result<(), Flaw> {
        let Some(held) = self.transaction.take() else {
            return Err(unsuitable(next));
        };
        let mut start = 0;
        for (offset, database, end) in held.commands {
            self.taker
                .take(offset, database, &held.requests[start..end])?;
            start = end;
        }
        Ok(())
    }
}

/// Whether a command is about keys, as servers log them: including reads that store a result
/// (PFCOUNT).
fn is_loaded(found: &Found) -> bool {
    found.spec.group.is_data() || found.spec.flags.has(Flags::WRITE)
}

fn unsuitable(next: &AofRequest<'_>) -> Flaw {
    let name = next.request.name();
    Flaw::Request {
        offset: next.offset,
        name: name[..name.len().min(SHOWN_BYTES_MAX)]
            .escape_ascii()
            .to_string(),
    }
}
