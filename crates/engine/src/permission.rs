//! Whether a session's user may run a request: the room `access` decides from the command table,
//! and its answers become error replies.
//!
//! A request is checked when it is about to run, however it got there: sent, queued (and again at
//! EXEC), woken after a wait, or called by a script. Other code that runs requests asks
//! `Context::permit`, and reports denials with `Context::report`.

use access::{Catalog, ChannelUse, CommandNames, Denial, KeyUse, Origin, Reason, Report};
use protocol::Request;

use crate::command_index::CommandIndex;
use crate::context::Context;
use crate::error::{CommandError, Denied, shown};
use crate::key_places as places;
use crate::port::{ClientCondition, ClientFilter};
use crate::session::Session;
use crate::spec::{CATEGORIES, Channels, CommandSpec, Flags, KeyAccess, categories_of};
use crate::table::Table;

/// Maximum number of bytes of a user name or an object that an error repeats.
const SHOWN_BYTES_MAX: usize = 256;

impl Table {
    /// Returns the catalog of commands that rules about users refer to. Its numbers are those of
    /// the rows.
    #[must_use]
    pub fn catalog(&self) -> &'static Catalog {
        self.catalog_of(catalog)
    }
}

fn catalog(commands: &[&'static CommandSpec]) -> Catalog {
    let mut rows = Vec::with_capacity(commands.len());
    let mut subcommands = Vec::new();
    let index_of = |at: usize| CommandIndex::try_from(at).unwrap_or(CommandIndex::MAX);
    for (at, spec) in commands.iter().enumerate() {
        let first = commands.len() + subcommands.len();
        rows.push(CommandNames {
            full_name: spec.name.to_lowercase(),
            categories: categories_of(spec),
            container: None,
            subcommands: index_of(first)..index_of(first + spec.subcommands.len()),
        });
        subcommands.extend(spec.subcommands.iter().map(|subcommand| CommandNames {
            full_name: format!("{}|{}", spec.name, subcommand.name).to_lowercase(),
            categories: categories_of(subcommand),
            container: Some(index_of(at)),
            subcommands: 0..0,
        }));
    }
    rows.extend(subcommands);
    Catalog::new(rows, CATEGORIES)
}

/// A request as the rules see it.
pub struct Subject<'r> {
    /// The table that contains its row.
    pub table: &'static Table,
    /// The row's index.
    pub index: CommandIndex,
    /// The row.
    pub spec: &'static CommandSpec,
    /// The request itself.
    pub request: Request<'r>,
}

impl access::Request for Subject<'_> {
    fn command(&self) -> access::CommandId {
        self.index
    }

    fn is_free(&self) -> bool {
        self.spec.flags.has(Flags::NO_AUTH)
    }

    fn argument(&self, at: usize) -> Option<&[u8]> {
        self.request.arg(at)
    }

    fn keys(&self) -> Vec<(usize, KeyUse)> {
        let keys = places::that_fit(self.table, self.spec, &self.request).into_iter();
        let keys = keys.filter(|(_, access)| !access.has(KeyAccess::NOT_KEY));
        keys.map(|(at, access)| (at, key_use(access))).collect()
    }

    fn channels(&self) -> Vec<(usize, ChannelUse)> {
        let all = 1..self.request.len();
        match self.spec.channels {
            Channels::None => Vec::new(),
            Channels::First => vec![(1, ChannelUse::Channel)],
            Channels::All => all.map(|at| (at, ChannelUse::Channel)).collect(),
            Channels::Patterns => all.map(|at| (at, ChannelUse::Pattern)).collect(),
        }
    }
}

fn key_use(access: KeyAccess) -> KeyUse {
    let changes = [KeyAccess::INSERT, KeyAccess::DELETE, KeyAccess::UPDATE];
    KeyUse {
        reads: access.has(KeyAccess::ACCESS),
        writes: changes.iter().any(|change| access.has(*change)),
    }
}

/// Checks whether a session's user may run a request, by the rules as the session last saw them
/// ([`access::Permit::rules`]). Costs one load and a branch for an unrestricted user.
///
/// # Errors
/// [`CommandError::Denied`].
#[inline]
pub(crate) fn judge(
    table: &'static Table,
    session: &Session,
    command: (CommandIndex, &'static CommandSpec),
    request: Request<'_>,
) -> Result<(), CommandError> {
    if session.permit.is_restricted() {
        judge_restricted(table, session, command, request)
    } else {
        Ok(())
    }
}

#[cold]
fn judge_restricted(
    table: &'static Table,
    session: &Session,
    (index, spec): (CommandIndex, &'static CommandSpec),
    request: Request<'_>,
) -> Result<(), CommandError> {
    let subject = Subject {
        table,
        index,
        spec,
        request,
    };
    let checked = session.permit.seen().check(&subject);
    checked.map_err(|denial| {
        let text = match denial {
            Denial::Command => {
                let mut text = b"NOPERM ".to_vec();
                text.extend(explain(denial, session.permit.user().name(), &subject));
                text
            }
            Denial::Key(_) => b"NOPERM No permissions to access a key".to_vec(),
            Denial::Channel(_) => b"NOPERM No permissions to access a channel".to_vec(),
        };
        CommandError::Denied(Box::new(Denied { denial, text }))
    })
}

/// Returns a full explanation of a denial, for readers who may see it.
pub fn explain(denial: Denial, user: &[u8], subject: &Subject<'_>) -> Vec<u8> {
    let argument = |at| subject.request.arg(at).unwrap_or_default();
    let name = subject.table.full_name(subject.index).unwrap_or_default();
    let (before, what, behind) = match denial {
        Denial::Command => ("run the '", name.as_bytes(), "' command"),
        Denial::Key(at) => ("access the '", argument(at), "' key"),
        Denial::Channel(at) => ("access the '", argument(at), "' channel"),
    };
    [
        b"User ",
        shown(user, SHOWN_BYTES_MAX),
        b" has no permissions to ",
        before.as_bytes(),
        shown(what, SHOWN_BYTES_MAX),
        behind.as_bytes(),
    ]
    .concat()
}

/// Returns the reply at EXEC for a queued request that the user may no longer run.
pub(crate) fn denied_at_exec(denial: Denial) -> Vec<u8> {
    let reason = match denial {
        Denial::Command => "no permission to execute the command or subcommand",
        Denial::Key(_) => "no permission to touch the specified keys",
        Denial::Channel(_) => {
            "no permission to access one of the channels used as arguments to the command"
        }
    };
    let text = format!(
        "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC \
         call. This command is no longer allowed for the following reason: {reason}"
    );
    text.into_bytes()
}

impl Context<'_> {
    /// Checks whether the session's user may run a request, by the user's present rules: the
    /// command or subcommand, and all keys and channels. To be called for every request, directly
    /// before it runs.
    ///
    /// # Errors
    /// [`CommandError::Denied`], to be [reported](Context::report) if the request was to run.
    pub(crate) fn permit(
        &mut self,
        command: (CommandIndex, &'static CommandSpec),
        request: Request<'_>,
    ) -> Result<(), CommandError> {
        if !self.session.permit.is_restricted() {
            return Ok(());
        }
        self.session.permit.rules();
        judge(self.table, self.session, command, request)
    }

    /// Whether the session's user may read every key, and run this request: SORT needs both to
    /// follow patterns.
    pub fn reads_all_keys(
        &mut self,
        (index, spec): (CommandIndex, &'static CommandSpec),
        request: Request<'_>,
    ) -> bool {
        let subject = Subject {
            table: self.table,
            index,
            spec,
            request,
        };
        !self.session.permit.is_restricted() || self.session.permit.rules().reads_all_keys(&subject)
    }

    /// Counts and logs the denial of a request.
    #[cold]
    pub(crate) fn report(
        &mut self,
        denial: Denial,
        index: CommandIndex,
        request: Request<'_>,
        origin: Origin,
    ) {
        let (reason, object) = match denial {
            Denial::Command => {
                let name = self.table.full_name(index).unwrap_or_default();
                (Reason::Command, name.as_bytes())
            }
            Denial::Key(at) => (Reason::Key, request.arg(at).unwrap_or_default()),
            Denial::Channel(at) => (Reason::Channel, request.arg(at).unwrap_or_default()),
        };
        let audit = &self.shared.observer.audit;
        let name = self.table.full_name(index).unwrap_or_default();
        if let (true, Some(spec)) = (audit.is_on(), self.table.spec(index)) {
            audit.note(self, spec, name, request, "denied");
        }
        let user = self.session.permit.user().name().to_vec();
        self.log_denial(reason, origin, object.to_vec(), user);
    }

    /// Counts and logs a denial.
    pub fn log_denial(&mut self, reason: Reason, origin: Origin, object: Vec<u8>, user: Vec<u8>) {
        let filter = ClientFilter::of(ClientCondition::Id(vec![self.session.client.id]));
        let client = self.server.clients(&filter).trim_end().to_owned();
        let report = Report {
            reason,
            origin,
            object,
            user,
            client,
        };
        self.shared.access.denials.add(report, self.now_unix_ms);
    }
}
