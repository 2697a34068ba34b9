//! CLIENT TRACKING, CACHING, TRACKINGINFO and GETREDIR: client caching.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::session::ClientRecord;
use engine::tracking::{Follower, Tracking, TrackingMode, TrackingOptions};
use protocol::Reply;

use super::client::TRACKS;

const OTHER_MODE: &str = "before disabling tracking for this client, and then re-enabling it with \
                          a different mode.";

/// Approximate memory of a prefix besides its text: in the client's list, and in that of all
/// clients.
const PREFIX_BYTES: usize = 160;

/// The options of CLIENT TRACKING ON.
#[derive(Default)]
struct Asked<'a> {
    redirect: Option<Arc<ClientRecord>>,
    broadcasts: bool,
    opts_in: bool,
    opts_out: bool,
    skips_own: bool,
    prefixes: Vec<&'a [u8]>,
}

impl<'a> Asked<'a> {
    fn parse(context: &mut Context<'_>, args: &mut Args<'a>) -> Result<Self, CommandError> {
        let mut asked = Self::default();
        while args.remaining() > 0 {
            let has_more = args.remaining() > 1;
            if has_more && args.take_word("REDIRECT") {
                asked.redirect = Some(asked.redirected(context, args)?);
            } else if has_more && args.take_word("PREFIX") {
                asked.prefixes.push(args.bytes()?);
            } else if args.take_word("BCAST") {
                asked.broadcasts = true;
            } else if args.take_word("OPTIN") {
                asked.opts_in = true;
            } else if args.take_word("OPTOUT") {
                asked.opts_out = true;
            } else if args.take_word("NOLOOP") {
                asked.skips_own = true;
            } else {
                return Err(CommandError::Syntax);
            }
        }
        Ok(asked)
    }

    fn redirected(
        &self,
        context: &mut Context<'_>,
        args: &mut Args<'_>,
    ) -> Result<Arc<ClientRecord>, CommandError> {
        if self.redirect.is_some() {
            return Err(CommandError::fixed(
                "ERR A client can only redirect to a single other client",
            ));
        }
        let id = u64::try_from(args.integer()?).ok();
        let client = id.and_then(|id| context.server.client(id));
        client.ok_or(CommandError::fixed(
            "ERR The client ID you want redirect to does not exist",
        ))
    }

    /// Checks that the options fit each other and the current tracking.
    fn check(&self, current: Option<&Tracking>) -> CommandResult {
        let error = |text: &'static str| Err(CommandError::fixed(text));
        let switches = |what: &str| {
            let text = format!("ERR You can't switch {what} {OTHER_MODE}");
            Err(CommandError::Text(text.into()))
        };
        if !self.broadcasts && !self.prefixes.is_empty() {
            return error("ERR PREFIX option requires BCAST mode to be enabled");
        }
        let mode = current.map(|current| current.mode);
        if mode.is_some_and(|mode| (mode == TrackingMode::Broadcast) != self.broadcasts) {
            return switches("BCAST mode on/off");
        }
        if self.broadcasts && (self.opts_in || self.opts_out) {
            return error("ERR OPTIN and OPTOUT are not compatible with BCAST");
        }
        if self.opts_in && self.opts_out {
            return error("ERR You can't specify both OPTIN mode and OPTOUT mode");
        }
        let was_other = mode == Some(TrackingMode::OptOut) && self.opts_in
            || mode == Some(TrackingMode::OptIn) && self.opts_out;
        if was_other {
            return switches("OPTIN/OPTOUT mode");
        }
        Ok(())
    }

    /// Checks that the client's user may read all keys in the notifications: key names are data.
    fn check_leave(&self, context: &mut Context<'_>) -> CommandResult {
        let permit = &mut context.session.permit;
        if !self.broadcasts || !permit.is_restricted() {
            return Ok(());
        }
        let rules = permit.rules();
        let all: &[&[u8]] = &[b""];
        let prefixes = if self.prefixes.is_empty() {
            all
        } else {
            &self.prefixes
        };
        if prefixes.iter().all(|prefix| rules.reads_prefix(prefix)) {
            return Ok(());
        }
        Err(CommandError::fixed("NOPERM No permissions to access a key"))
    }

    /// Checks that the prefixes overlap neither each other nor `present` ones.
    fn check_prefixes(&self, present: &[Box<[u8]>]) -> CommandResult {
        let overlap = |one: &[u8], other: &[u8]| one.starts_with(other) || other.starts_with(one);
        let refuse = |one: &[u8], what: &str, other: &[u8]| {
            let mut text = b"ERR Prefix '".to_vec();
            text.extend_from_slice(one);
            text.extend_from_slice(format!("' overlaps with {what} prefix '").as_bytes());
            text.extend_from_slice(other);
            text.extend_from_slice(b"'. Prefixes for a single client must not overlap.");
            Err(CommandError::Bytes(text))
        };
        for (number, one) in self.prefixes.iter().enumerate() {
            if let Some(other) = present.iter().find(|other| overlap(one, other)) {
                return refuse(one, "an existing", other);
            }
            let mut behind = self.prefixes[number + 1..].iter();
            if let Some(other) = behind.find(|other| overlap(one, other)) {
                return refuse(one, "another provided", other);
            }
        }
        Ok(())
    }

    fn mode(&self) -> TrackingMode {
        match self {
            Self {
                broadcasts: true, ..
            } => TrackingMode::Broadcast,
            Self { opts_in: true, .. } => TrackingMode::OptIn,
            Self { opts_out: true, .. } => TrackingMode::OptOut,
            _ => TrackingMode::Reads,
        }
    }
}

pub(super) fn tracking(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let word = args.bytes()?;
    let asked = Asked::parse(context, args)?;
    if word.eq_ignore_ascii_case(b"on") {
        if context.session.forwards {
            return Err(CommandError::fixed(TRACKS));
        }
        asked.check(context.session.tracking.as_deref())?;
        asked.check_leave(context)?;
        begin(context, &asked)?;
    } else if word.eq_ignore_ascii_case(b"off") {
        end(context);
    } else {
        return Err(CommandError::Syntax);
    }
    reply.ok();
    Ok(())
}

fn begin(context: &mut Context<'_>, asked: &Asked<'_>) -> CommandResult {
    let session = &mut *context.session;
    let mut prefixes = Vec::new();
    if let Some(current) = &session.tracking {
        prefixes = std::mem::take(&mut current.follower.options().prefixes);
    }
    if asked.broadcasts {
        let checked = asked.check_prefixes(&prefixes);
        if checked.is_err() {
            if let Some(current) = &session.tracking {
                current.follower.options().prefixes = prefixes;
            }
            return checked;
        }
        prefixes.extend(asked.prefixes.iter().map(|prefix| Box::from(*prefix)));
        // Without a prefix the client tracks all keys, whatever it tracked before.
        if asked.prefixes.is_empty() && !prefixes.iter().any(|prefix| prefix.is_empty()) {
            prefixes.push(Box::default());
        }
    }
    let tracking = session.tracking.get_or_insert_with(|| {
        let follower = Arc::new(Follower::new(Arc::clone(&session.client)));
        Box::new(Tracking {
            mode: TrackingMode::default(),
            prefix_bytes: 0,
            is_exception: false,
            follower,
        })
    });
    tracking.mode = asked.mode();
    let bytes = prefixes.iter().map(|prefix| prefix.len() + PREFIX_BYTES);
    tracking.prefix_bytes = bytes.sum();
    *tracking.follower.options() = TrackingOptions {
        mode: tracking.mode,
        skips_own: asked.skips_own,
        redirect: asked.redirect.clone(),
        prefixes,
    };
    tracking.follower.tell();
    context.server.follow(&tracking.follower);
    Ok(())
}

/// Ends tracking, as RESET does.
pub(super) fn end(context: &mut Context<'_>) {
    if let Some(tracking) = context.session.tracking.take() {
        tracking.follower.tell_end();
        context.server.unfollow(context.store, &tracking.follower);
    }
}

pub(super) fn caching(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let error = |text: &'static str| Err(CommandError::fixed(text));
    let Some(tracking) = &mut context.session.tracking else {
        return error(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN \
             or OPTOUT mode enabled",
        );
    };
    if args.take_word("YES") {
        if tracking.mode != TrackingMode::OptIn {
            return error(
                "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
            );
        }
    } else if args.take_word("NO") {
        if tracking.mode != TrackingMode::OptOut {
            return error(
                "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
            );
        }
    } else {
        return Err(CommandError::Syntax);
    }
    tracking.is_exception = true;
    reply.ok();
    Ok(())
}

pub(super) fn get_redirect(context: &Context<'_>, reply: &mut Reply<'_>) {
    reply.integer(context.session.client.redirect.load(Ordering::Relaxed));
}

pub(super) fn tracking_info(context: &Context<'_>, reply: &mut Reply<'_>) {
    let session = &*context.session;
    let tracking = session.tracking.as_deref();
    let options = tracking.map(|tracking| tracking.follower.options().clone());
    let is_exception = tracking.is_some_and(|tracking| tracking.is_exception);
    let is_broken = session.client.has_flag(ClientRecord::TRACKING_BROKEN);
    let mut flags = Vec::new();
    match &options {
        None => flags.push("off"),
        Some(options) => {
            flags.push("on");
            match options.mode {
                TrackingMode::Reads => {}
                TrackingMode::Broadcast => flags.push("bcast"),
                TrackingMode::OptIn => flags.push("optin"),
                TrackingMode::OptOut => flags.push("optout"),
            }
            match options.mode {
                TrackingMode::OptIn if is_exception => flags.push("caching-yes"),
                TrackingMode::OptOut if is_exception => flags.push("caching-no"),
                _ => {}
            }
            flags.extend(options.skips_own.then_some("noloop"));
            flags.extend(is_broken.then_some("broken_redirect"));
        }
    }
    reply.map(3);
    reply.bulk(b"flags");
    reply.set(flags.len());
    for flag in flags {
        reply.bulk_str(flag);
    }
    reply.bulk(b"redirect");
    get_redirect(context, reply);
    reply.bulk(b"prefixes");
    let mut prefixes = options.map_or_else(Vec::new, |options| options.prefixes);
    prefixes.sort();
    reply.array(prefixes.len());
    for prefix in prefixes {
        reply.bulk(&prefix);
    }
}
