//! Logins: a random word in a cookie, stored here as its hash, and the connection that runs the
//! user's commands.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use access::Digest;
use axum::Json;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use base::random::Prng;
use protocol::Value;
use serde_json::{Value as Body, json};
use tokio::sync::Mutex as Turn;
use tokio::time::Instant;

use crate::limits::{CREDENTIAL_BYTES_MAX, SESSIONS_MAX};
use crate::link::Conversation;
use crate::shared::Shared;

/// The cookie's name.
const COOKIE: &str = "iolite_session";

/// A login of a user.
#[derive(Clone)]
pub(crate) struct Login {
    /// The user's name.
    pub(crate) user: String,
    /// The connection that runs its commands, one at a time.
    pub(crate) conversation: Arc<Turn<Conversation>>,
    mark: Option<u64>,
    until: Instant,
    used: Instant,
}

/// All logins, by the hash of their word.
#[derive(Default)]
pub(crate) struct Logins(Mutex<HashMap<String, Login>>);

impl Logins {
    fn all(&self) -> MutexGuard<'_, HashMap<String, Login>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of logins.
    pub(crate) fn count(&self) -> usize {
        self.all().len()
    }

    /// Removes the logins that have expired.
    pub(crate) fn end_old(&self) {
        let now = Instant::now();
        self.all().retain(|_, login| login.until > now);
    }

    /// Adds a login and returns its word. If there are too many, the least recently used login is
    /// removed.
    fn add(&self, login: Login) -> String {
        let mut all = self.all();
        while all.len() >= SESSIONS_MAX {
            let oldest = all.iter().min_by_key(|(_, login)| login.used);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else {
                break;
            };
            all.remove(&oldest);
        }
        let mut random = Prng::from_os();
        let word = format!("{}{}", random.hex_id(), random.hex_id());
        all.insert(key(&word), login);
        word
    }
}

fn key(word: &str) -> String {
    Digest::of(word.as_bytes()).to_hex()
}

/// Returns the word in the cookie.
fn word(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).iter();
    let mut cookies = cookies
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(';'));
    cookies.find_map(|one| one.trim().strip_prefix(COOKIE)?.strip_prefix('='))
}

/// Returns the login of a request, if it is known and its user has not changed since.
pub(crate) fn who(shared: &Shared, headers: &HeaderMap) -> Option<Login> {
    let key = key(word(headers)?);
    let login = {
        let mut all = shared.logins.all();
        let login = all.get_mut(&key)?;
        login.used = Instant::now();
        login.clone()
    };
    let is_same = shared.sessions.mark(login.user.as_bytes()) == login.mark;
    if is_same && login.until > Instant::now() {
        return Some(login);
    }
    shared.logins.all().remove(&key);
    None
}

/// The reason why a request is refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal(StatusCode, &'static str);

impl From<Refusal> for Response {
    fn from(Refusal(status, reason): Refusal) -> Self {
        refuse(status, reason)
    }
}

/// As [`who`], for requests that require a login.
///
/// # Errors
/// If the client has to log in first.
pub(crate) fn required(shared: &Shared, headers: &HeaderMap) -> Result<Login, Refusal> {
    who(shared, headers).ok_or(Refusal(StatusCode::UNAUTHORIZED, "log in first"))
}

/// As [`required`], for the values of INFO.
///
/// # Errors
/// As [`required`], and if the user may not run INFO.
pub(crate) fn required_for_info(shared: &Shared, headers: &HeaderMap) -> Result<(), Refusal> {
    let login = required(shared, headers)?;
    if shared.sessions.allows(login.user.as_bytes(), "info") {
        return Ok(());
    }
    let reason = "NOPERM the user has no permissions to run the 'info' command";
    Err(Refusal(StatusCode::FORBIDDEN, reason))
}

/// Ends the login of a request.
pub(crate) fn end(shared: &Shared, headers: &HeaderMap) {
    if let Some(word) = word(headers) {
        shared.logins.all().remove(&key(word));
    }
}

/// `POST /login`: takes a user's name and password and sets a cookie.
pub(crate) async fn log_in(
    State(shared): State<Shared>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    Json(body): Json<Body>,
) -> Response {
    let text = |name: &str| {
        body.get(name)
            .and_then(Body::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let (mut user, password) = (text("user"), text("password"));
    if user.is_empty() {
        "default".clone_into(&mut user);
    }
    if user.len() > CREDENTIAL_BYTES_MAX || password.len() > CREDENTIAL_BYTES_MAX {
        return refuse(
            StatusCode::BAD_REQUEST,
            "the name or the password is too long",
        );
    }
    end(&shared, &headers);
    let mark = shared.sessions.mark(user.as_bytes());
    let Ok(mut conversation) = Conversation::open(shared.sessions.as_ref(), from) else {
        return refuse(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many clients are connected",
        );
    };
    let hello: Vec<&[u8]> = vec![
        b"HELLO",
        b"3",
        b"AUTH",
        user.as_bytes(),
        password.as_bytes(),
        b"SETNAME",
        b"console",
    ];
    match conversation.run(&[hello]).await.as_deref() {
        Ok([Value::Map(_)]) => {}
        Ok([Value::Error(text)]) => {
            return refuse(StatusCode::UNAUTHORIZED, &String::from_utf8_lossy(text));
        }
        Ok(_) => return refuse(StatusCode::UNAUTHORIZED, "the login failed"),
        Err(fault) => return refuse(StatusCode::UNAUTHORIZED, fault.text()),
    }
    let ttl = shared.settings().session_ttl;
    let login = Login {
        user: user.clone(),
        conversation: Arc::new(Turn::new(conversation)),
        mark,
        until: Instant::now() + ttl,
        used: Instant::now(),
    };
    let word = shared.logins.add(login);
    let cookie = format!(
        "{COOKIE}={word}; Path=/; HttpOnly; SameSite=Strict; Max-Age={}{}",
        ttl.as_secs(),
        secure(&shared)
    );
    ([(header::SET_COOKIE, cookie)], Json(json!({"user": user}))).into_response()
}

/// Returns the cookie attribute that restricts the cookie to encrypted connections.
fn secure(shared: &Shared) -> &'static str {
    match shared.settings().is_encrypted {
        true => "; Secure",
        false => "",
    }
}

fn refuse(status: StatusCode, reason: &str) -> Response {
    (status, Json(json!({"error": reason}))).into_response()
}

/// `POST /logout`.
pub(crate) async fn log_out(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    end(&shared, &headers);
    let cookie = format!(
        "{COOKIE}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0{}",
        secure(&shared)
    );
    ([(header::SET_COOKIE, cookie)], Json(json!({}))).into_response()
}

/// `GET /api/session`: returns the user who is logged in, and whether a login is required.
pub(crate) async fn session(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    let user = who(&shared, &headers).map(|login| login.user);
    Json(json!({"user": user, "open": shared.sessions.is_open()})).into_response()
}
