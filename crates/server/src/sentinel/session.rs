//! One connection of a client that asks Sentinels: its input, its subscriptions, and the messages
//! to it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use access::{DEFAULT, LogInError};
use protocol::{Batch, Decoder, Limits, Reply, ReplyBuffer, Request, Resp};

use super::answers::{Answers, Place};
use crate::node::Node;

/// Maximum length of a request: questions are short.
const REQUEST_BYTES_MAX: usize = 16 << 10;
/// Number of requests that are decoded at once.
const BATCH: usize = 16;
/// Maximum number of a client's subscriptions to channels and patterns.
const SUBSCRIPTIONS_MAX: usize = 64;
const SWITCH: &[u8] = b"+switch-master";

/// See the module.
pub(crate) struct Session {
    port: u16,
    /// The address by which failed logins are counted.
    from: String,
    resp: Resp,
    decoder: Decoder,
    input: Vec<u8>,
    is_in: bool,
    channels: BTreeSet<Vec<u8>>,
    patterns: BTreeSet<Vec<u8>>,
    /// The view that was last checked, and its primary.
    version: u64,
    primary: Option<Place>,
}

impl Session {
    pub(crate) fn new(port: u16, from: IpAddr) -> Self {
        Self {
            port,
            from: from.to_canonical().to_string(),
            resp: Resp::V2,
            decoder: Decoder::new(),
            input: Vec::new(),
            is_in: false,
            channels: BTreeSet::new(),
            patterns: BTreeSet::new(),
            version: 0,
            primary: None,
        }
    }

    /// Checks for another primary, and returns the messages for the client.
    pub(crate) fn look(&mut self, node: &Node) -> Vec<u8> {
        let view = &node.group;
        let version = view.version();
        if version == self.version {
            return Vec::new();
        }
        self.version = version;
        let seen = view.get();
        let config = node.core.config.current();
        let name = config.group.sentinel_name.as_str();
        let port = self.port;
        let now = Answers {
            seen: &seen,
            name,
            port,
        }
        .primary();
        let mut buffer = ReplyBuffer::with_capacity(0);
        if let (Some(old), Some(new)) = (&self.primary, &now)
            && old != new
        {
            let text = format!("{name} {} {} {} {}", old.host, old.port, new.host, new.port);
            self.publish(text.as_bytes(), &mut Reply::new(&mut buffer, self.resp));
        }
        // Between two offices the former primary is remembered.
        self.primary = now.or_else(|| self.primary.take());
        buffer.as_slice().to_vec()
    }

    fn publish(&self, text: &[u8], reply: &mut Reply<'_>) {
        if self.channels.contains(SWITCH) {
            reply.push(3);
            reply.bulk_str("message");
            reply.bulk(SWITCH);
            reply.bulk(text);
        }
        let matching =
            |pattern: &&Vec<u8>| matches!(pattern.as_slice(), b"*" | b"+*" | SWITCH | b"+switch*");
        for pattern in self.patterns.iter().filter(matching) {
            reply.push(4);
            reply.bulk_str("pmessage");
            reply.bulk(pattern);
            reply.bulk(SWITCH);
            reply.bulk(text);
        }
    }

    /// Handles received bytes. Returns the answers, and whether the connection goes on.
    pub(crate) fn receive(&mut self, node: &Node, bytes: &[u8]) -> (Vec<u8>, bool) {
        self.input.extend_from_slice(bytes);
        let mut buffer = ReplyBuffer::with_capacity(0);
        let limits = Limits {
            multibulk_max: 64,
            bulk_bytes_max: REQUEST_BYTES_MAX as u64,
            inline_bytes_max: REQUEST_BYTES_MAX,
            ..Limits::default()
        };
        let mut goes_on = true;
        loop {
            let input = std::mem::take(&mut self.input);
            let mut batch = Batch::new();
            let decoded = self.decoder.decode(&input, &limits, BATCH, &mut batch);
            for request in batch.iter(&input) {
                goes_on &= self.answer(node, &request, &mut buffer);
            }
            if let Some(error) = decoded.error {
                Reply::new(&mut buffer, self.resp).error(&format!("ERR Protocol error: {error}"));
                goes_on = false;
            }
            self.input = input;
            self.input.drain(..decoded.consumed);
            if batch.is_empty() || !goes_on {
                break;
            }
        }
        goes_on &= self.input.len() <= REQUEST_BYTES_MAX;
        (buffer.as_slice().to_vec(), goes_on)
    }

    /// Answers one request. Returns whether the connection goes on.
    fn answer(&mut self, node: &Node, request: &Request<'_>, buffer: &mut ReplyBuffer) -> bool {
        let config = node.core.config.current();
        let seen = node.group.get();
        let answers = Answers {
            seen: &seen,
            name: &config.group.sentinel_name,
            port: self.port,
        };
        let mut reply = Reply::new(buffer, self.resp);
        let reply = &mut reply;
        let name = request.name().to_ascii_lowercase();
        let is_in = self.is_in || !node.core.shared.access.users.must_log_in();
        match name.as_slice() {
            b"auth" => self.auth(node, request, reply),
            b"hello" => self.hello(node, request, reply),
            b"quit" => {
                reply.ok();
                return false;
            }
            _ if !is_in => reply.error("NOAUTH Authentication required."),
            b"ping" => match request.arg(1) {
                Some(text) => reply.bulk(text),
                None => reply.simple("PONG"),
            },
            b"sentinel" => answers.sentinel(request, reply),
            b"info" => reply.bulk_str(&answers.info()),
            b"role" => answers.role(reply),
            b"client" => client(request, reply),
            b"command" => reply.array(0),
            b"subscribe" | b"psubscribe" => self.subscribe(&name, request, reply),
            b"unsubscribe" | b"punsubscribe" => self.unsubscribe(&name, request, reply),
            _ => reply.error(&format!(
                "ERR unknown command '{}', with args beginning with: ",
                String::from_utf8_lossy(&name)
            )),
        }
        true
    }

    fn auth(&mut self, node: &Node, request: &Request<'_>, reply: &mut Reply<'_>) {
        let (name, password) = match (request.len(), request.arg(1), request.arg(2)) {
            (2, Some(password), _) => (DEFAULT, password),
            (3, Some(name), Some(password)) => (name, password),
            _ => return reply.error("ERR wrong number of arguments for 'auth' command"),
        };
        if request.len() == 2 && !node.core.shared.access.users.must_log_in() {
            return reply.error(
                "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
            );
        }
        match self.log_in(node, name, password) {
            Ok(()) => reply.ok(),
            Err(refused) => reply.error(refused.text()),
        }
    }

    /// Logs in a user of the node with the password that it has there.
    fn log_in(&mut self, node: &Node, name: &[u8], password: &[u8]) -> Result<(), LogInError> {
        let (access, now_unix_ms) = (&node.core.shared.access, node.core.clock.now_unix_ms());
        let _user = access.log_in(name, password, &self.from, now_unix_ms)?;
        self.is_in = true;
        Ok(())
    }

    fn hello(&mut self, node: &Node, request: &Request<'_>, reply: &mut Reply<'_>) {
        let resp = match request.arg(1) {
            None => self.resp,
            Some(b"2") => Resp::V2,
            Some(b"3") => Resp::V3,
            Some(_) => return reply.error("NOPROTO unsupported protocol version"),
        };
        let is_auth = request
            .arg(2)
            .is_some_and(|word| word.eq_ignore_ascii_case(b"auth"));
        if is_auth {
            let (Some(name), Some(password)) = (request.arg(3), request.arg(4)) else {
                return reply.error("ERR Syntax error in HELLO option 'auth'");
            };
            if let Err(refused) = self.log_in(node, name, password) {
                return reply.error(refused.text());
            }
        }
        if !self.is_in && node.core.shared.access.users.must_log_in() {
            return reply.error(
                "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
            );
        }
        self.resp = resp;
        reply.set_version(resp);
        reply.map(6);
        let proto = if resp == Resp::V3 { 3 } else { 2 };
        for (name, value) in [
            ("server", "redis"),
            ("version", crate::identity::redis_version()),
        ] {
            reply.bulk_str(name);
            reply.bulk_str(value);
        }
        for (name, value) in [("proto", proto), ("id", 1)] {
            reply.bulk_str(name);
            reply.integer(value);
        }
        reply.bulk_str("mode");
        reply.bulk_str("sentinel");
        reply.bulk_str("modules");
        reply.array(0);
    }

    fn subscribe(&mut self, name: &[u8], request: &Request<'_>, reply: &mut Reply<'_>) {
        for channel in request.iter().skip(1) {
            if self.channels.len() + self.patterns.len() >= SUBSCRIPTIONS_MAX {
                return reply.error("ERR too many subscriptions");
            }
            let own = match name {
                b"subscribe" => &mut self.channels,
                _ => &mut self.patterns,
            };
            own.insert(channel.to_vec());
            self.tell_subscribed(name, Some(channel), reply);
        }
    }

    fn unsubscribe(&mut self, name: &[u8], request: &Request<'_>, reply: &mut Reply<'_>) {
        let own = match name {
            b"unsubscribe" => &mut self.channels,
            _ => &mut self.patterns,
        };
        let named: Vec<Vec<u8>> = match request.len() {
            1 => own.iter().cloned().collect(),
            _ => request.iter().skip(1).map(<[u8]>::to_vec).collect(),
        };
        for channel in &named {
            let own = match name {
                b"unsubscribe" => &mut self.channels,
                _ => &mut self.patterns,
            };
            own.remove(channel);
            self.tell_subscribed(name, Some(channel), reply);
        }
        if named.is_empty() {
            self.tell_subscribed(name, None, reply);
        }
    }

    fn tell_subscribed(&self, name: &[u8], channel: Option<&[u8]>, reply: &mut Reply<'_>) {
        reply.push(3);
        reply.bulk(name);
        match channel {
            Some(channel) => reply.bulk(channel),
            None => reply.null(),
        }
        reply.count(self.channels.len() + self.patterns.len());
    }
}

fn client(request: &Request<'_>, reply: &mut Reply<'_>) {
    let word = request.arg(1).unwrap_or_default().to_ascii_lowercase();
    match word.as_slice() {
        b"id" => reply.integer(1),
        b"getname" => reply.null(),
        b"setname" | b"setinfo" | b"no-evict" | b"no-touch" | b"reply" => reply.ok(),
        b"list" => reply.bulk_str(""),
        _ => reply.error("ERR unknown subcommand. Try CLIENT HELP."),
    }
}
