//! Commands that change the cluster: ADDSLOTS DELSLOTS SETSLOT MEET FORGET REPLICATE FAILOVER RESET
//! and similar.
//!
//! All of them wait for a disk or for other nodes, so they are offloaded, and cannot be in a
//! transaction with other commands.

use base::hash_slot::HASH_SLOTS;
use engine::args::Args;
use engine::cluster::{ClusterOrder, FailoverKind, Ordered, SlotOrder};
use engine::context::Context;
use engine::error::{CommandError, CommandResult, subcommand_syntax};
use protocol::Reply;

use super::{about, admit, slot_arg};

/// Executes an order, on a server that is known to be in cluster mode.
fn carry_out(
    context: &mut Context<'_>,
    order: &ClusterOrder,
    reply: &mut Reply<'_>,
) -> CommandResult {
    if !context.may_block {
        return Err(CommandError::fixed(
            "ERR The cluster is not changed inside of a transaction or a script",
        ));
    }
    context.pace.admit_waiting()?;
    match context.outside(|server| server.order(order))? {
        Ordered::Done => reply.ok(),
        Ordered::Said(text) => reply.simple(&text),
    }
    Ok(())
}

/// Parses slots as ranges of one slot each.
fn single_slots(args: &mut Args<'_>) -> Result<Vec<(u16, u16)>, CommandError> {
    let mut ranges = Vec::new();
    while args.remaining() > 0 {
        let slot = slot_arg(args)?;
        ranges.push((slot, slot));
    }
    Ok(ranges)
}

/// Parses ranges of slots.
fn slot_ranges(args: &mut Args<'_>) -> Result<Vec<(u16, u16)>, CommandError> {
    if !args.remaining().is_multiple_of(2) {
        let name = args.request().arg(1).unwrap_or_default();
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        return Err(CommandError::WrongArity(format!("cluster|{name}").into()));
    }
    let mut ranges = Vec::new();
    while args.remaining() > 0 {
        ranges.push(slot_range(args)?);
    }
    Ok(ranges)
}

/// Parses the first and the last slot of a range.
pub(super) fn slot_range(args: &mut Args<'_>) -> Result<(u16, u16), CommandError> {
    let (first, last) = (slot_arg(args)?, slot_arg(args)?);
    if first > last {
        let text = format!("ERR start slot number {first} is greater than end slot number {last}");
        return Err(CommandError::Text(text.into()));
    }
    Ok((first, last))
}

/// The slots that a request has named.
pub(super) struct NamedSlots(Vec<bool>);

impl NamedSlots {
    /// Returns an empty set.
    pub(super) fn new() -> Self {
        Self(vec![false; HASH_SLOTS])
    }

    /// Adds a slot.
    ///
    /// # Errors
    /// If it was named before.
    pub(super) fn name(&mut self, slot: u16) -> CommandResult {
        if !std::mem::replace(&mut self.0[usize::from(slot)], true) {
            return Ok(());
        }
        let text = format!("ERR Slot {slot} specified multiple times");
        Err(CommandError::Text(text.into()))
    }
}

/// Refuses slots that already have an owner, or have none, and slots that are named twice. The
/// first error is reported.
fn check_slots(
    context: &Context<'_>,
    ranges: &[(u16, u16)],
    are_to_be_owned: bool,
) -> CommandResult {
    let routes = context.shared.hash_slots.routes();
    let mut named = NamedSlots::new();
    for slot in ranges.iter().flat_map(|(first, last)| *first..=*last) {
        if routes.owner(slot).is_some() != are_to_be_owned {
            let why = match are_to_be_owned {
                true => "unassigned",
                false => "busy",
            };
            let text = format!("ERR Slot {slot} is already {why}");
            return Err(CommandError::Text(text.into()));
        }
        named.name(slot)?;
    }
    Ok(())
}

/// Parses the slots in the arguments of a request.
type Named = fn(&mut Args<'_>) -> Result<Vec<(u16, u16)>, CommandError>;
/// Returns the order for slots.
type Change = fn(Vec<(u16, u16)>) -> ClusterOrder;

/// Executes ADDSLOTS, DELSLOTS and their forms with ranges.
fn change_slots(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    named: Named,
    change: Change,
) -> CommandResult {
    admit(context)?;
    let ranges = named(args)?;
    let order = change(ranges.clone());
    check_slots(context, &ranges, matches!(order, ClusterOrder::DelSlots(_)))?;
    carry_out(context, &order, reply)
}

pub(super) fn add_slots(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    change_slots(context, args, reply, single_slots, ClusterOrder::AddSlots)
}

pub(super) fn add_slots_range(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    change_slots(context, args, reply, slot_ranges, ClusterOrder::AddSlots)
}

pub(super) fn del_slots(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    change_slots(context, args, reply, single_slots, ClusterOrder::DelSlots)
}

pub(super) fn del_slots_range(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    change_slots(context, args, reply, slot_ranges, ClusterOrder::DelSlots)
}

pub(super) fn flush_slots(
    context: &mut Context<'_>,
    _args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    admit(context)?;
    if has_keys(context) {
        return Err(CommandError::fixed(
            "ERR DB must be empty to perform CLUSTER FLUSHSLOTS.",
        ));
    }
    carry_out(context, &ClusterOrder::FlushSlots, reply)
}

fn has_keys(context: &mut Context<'_>) -> bool {
    let databases = context.store.store().databases();
    (0..databases).any(|database| context.store.len(database) > 0)
}

pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(super) fn set_slot(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let seen = super::seen(context)?;
    let me = seen.me().cloned().unwrap_or_default();
    if me.primary.is_some() {
        return Err(CommandError::fixed(
            "ERR Please use SETSLOT only with masters.",
        ));
    }
    let slot = slot_arg(args)?;
    let is_mine = context.shared.hash_slots.routes().serves(slot);
    let complaint = || {
        CommandError::fixed(
            "ERR Invalid CLUSTER SETSLOT action or number of arguments. Try CLUSTER HELP",
        )
    };
    let word = args.bytes()?.to_ascii_uppercase();
    let order = match (word.as_slice(), args.remaining()) {
        (b"STABLE", 0) => SlotOrder::Stable,
        (b"MIGRATING" | b"IMPORTING" | b"NODE", 1) => {
            let id = args.bytes()?;
            let is_node = word == b"NODE";
            if word == b"MIGRATING" && !is_mine {
                let text = format!("ERR I'm not the owner of hash slot {slot}");
                return Err(CommandError::Text(text.into()));
            }
            if word == b"IMPORTING" && is_mine {
                let text = format!("ERR I'm already the owner of hash slot {slot}");
                return Err(CommandError::Text(text.into()));
            }
            let Some(node) = seen.node(id) else {
                let before = if is_node {
                    "ERR Unknown node "
                } else {
                    "ERR I don't know about node "
                };
                return Err(about(before, id, ""));
            };
            if node.primary.is_some() {
                return Err(CommandError::fixed("ERR Target node is not a master"));
            }
            if is_node
                && is_mine
                && !node.is_me
                && context.store.store().keys_in_hash_slot(slot) > 0
            {
                let text = format!(
                    "ERR Can't assign hashslot {slot} to a different node while I still hold keys for this hash slot."
                );
                return Err(CommandError::Text(text.into()));
            }
            let id = text(id);
            match word.as_slice() {
                b"MIGRATING" => SlotOrder::Migrating(id),
                b"IMPORTING" => SlotOrder::Importing(id),
                _ => SlotOrder::Node(id),
            }
        }
        _ => return Err(complaint()),
    };
    carry_out(context, &ClusterOrder::SetSlot(slot, order), reply)
}

pub(super) fn meet(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    admit(context)?;
    if args.remaining() > 3 {
        return Err(subcommand_syntax(args.request()));
    }
    let (host, port_text) = (args.bytes()?, args.bytes()?);
    let parse = |bytes: &[u8]| base::number::parse_i64(bytes);
    let port = parse(port_text)
        .ok_or_else(|| about("ERR Invalid TCP base port specified: ", port_text, ""))?;
    let bus_port = match args.remaining() {
        0 => None,
        _ => {
            let bytes = args.bytes()?;
            let port = parse(bytes);
            Some(port.ok_or_else(|| about("ERR Invalid TCP bus port specified: ", bytes, ""))?)
        }
    };
    let invalid = || {
        let text = [
            b"ERR Invalid node address specified: ",
            host,
            b":",
            port_text,
        ]
        .concat();
        CommandError::Bytes(text)
    };
    let in_range = |port: i64| u16::try_from(port).ok().filter(|port| *port > 0);
    let port = in_range(port).ok_or_else(invalid)?;
    let bus_port = match bus_port {
        Some(port) => Some(in_range(port).ok_or_else(invalid)?),
        None => None,
    };
    if text(host).parse::<std::net::IpAddr>().is_err() {
        return Err(invalid());
    }
    carry_out(
        context,
        &ClusterOrder::Meet(text(host), port, bus_port),
        reply,
    )
}

pub(super) fn forget(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let seen = super::seen(context)?;
    let id = args.bytes()?;
    if seen.node(id).is_some_and(|node| node.is_me) {
        return Err(CommandError::fixed(
            "ERR I tried hard but I can't forget myself...",
        ));
    }
    let own_primary = seen.me().and_then(|me| me.primary.clone());
    if own_primary.is_some_and(|primary| primary.as_bytes() == id) {
        return Err(CommandError::fixed("ERR Can't forget my master!"));
    }
    carry_out(context, &ClusterOrder::Forget(text(id)), reply)
}

pub(super) fn replicate(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let seen = super::seen(context)?;
    let id = args.bytes()?;
    let Some(node) = seen.node(id) else {
        return Err(about("ERR Unknown node ", id, ""));
    };
    if node.is_me {
        return Err(CommandError::fixed("ERR Can't replicate myself"));
    }
    if node.primary.is_some() {
        return Err(CommandError::fixed(
            "ERR I can only replicate a master, not a replica.",
        ));
    }
    let is_free = seen.me().is_none_or(|me| me.ranges.is_empty());
    let is_primary = seen.me().is_none_or(|me| me.primary.is_none());
    if is_primary && (!is_free || has_keys(context)) {
        return Err(CommandError::fixed(
            "ERR To set a master the node must be empty and without assigned slots.",
        ));
    }
    carry_out(context, &ClusterOrder::Replicate(text(id)), reply)
}

pub(super) fn fail_over(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let seen = super::seen(context)?;
    let kind = match args.remaining() {
        0 => FailoverKind::Agreed,
        1 if args.take_word("FORCE") => FailoverKind::Forced,
        1 if args.take_word("TAKEOVER") => FailoverKind::Takeover,
        1 => return Err(CommandError::Syntax),
        _ => return Err(subcommand_syntax(args.request())),
    };
    if seen.me().is_none_or(|me| me.primary.is_none()) {
        return Err(CommandError::fixed(
            "ERR You should send CLUSTER FAILOVER to a replica",
        ));
    }
    carry_out(context, &ClusterOrder::Failover(kind), reply)
}

pub(super) fn reset(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let seen = super::seen(context)?;
    let is_hard = match args.remaining() {
        0 => false,
        1 if args.take_word("HARD") => true,
        1 if args.take_word("SOFT") => false,
        1 => return Err(CommandError::Syntax),
        _ => return Err(subcommand_syntax(args.request())),
    };
    let is_primary = seen.me().is_none_or(|me| me.primary.is_none());
    if is_primary && !seen.is_emptied && has_keys(context) {
        return Err(CommandError::fixed(
            "ERR CLUSTER RESET can't be called with master nodes containing keys",
        ));
    }
    carry_out(context, &ClusterOrder::Reset { is_hard }, reply)
}

pub(super) fn bump_epoch(
    context: &mut Context<'_>,
    _args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    admit(context)?;
    carry_out(context, &ClusterOrder::BumpEpoch, reply)
}

pub(super) fn set_config_epoch(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let seen = super::seen(context)?;
    let epoch = args.integer()?;
    let Ok(told) = u64::try_from(epoch) else {
        let text = format!("ERR Invalid config epoch specified: {epoch}");
        return Err(CommandError::Text(text.into()));
    };
    if seen.nodes.len() > 1 {
        return Err(CommandError::fixed(
            "ERR The user can assign a config epoch only when the node does not know any other node.",
        ));
    }
    carry_out(context, &ClusterOrder::SetConfigEpoch(told), reply)
}

pub(super) fn save_config(
    context: &mut Context<'_>,
    _args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    admit(context)?;
    // Everything that was answered is on disk already.
    reply.ok();
    Ok(())
}
